"""Every field of a controller's checkpoint with a wrong value: read, or refused in one line."""

import dataclasses
import json

import pytest
from mutations import damaged, mutations, reads_or_refuses
from untrained import untrained

import cats_jax
import learners
import search
from cats_jax.controllers import checkpoint

_ACTIONS = search.cats.ActionTable.product(num_extra=(0, 2), num_retain=(1,), temperature=(0.6,))
_CONFIG = dataclasses.replace(
    learners.CATS,
    cats=dataclasses.replace(search.cats.CATS, actions=_ACTIONS, excluded_features=("gap",)),
    num_candidates=(4,),
    actor_hidden=(4,),
    critic_hidden=(4,),
)
_INFO = {
    "questions": ["q0"],
    "texts": ["How?"],
    "models": {"policy": {"name": "weak"}},
    "calibration": {"exact": [0.5, 1.0, 0.0]},
}


def _saved(folder):
    return checkpoint.save(folder, untrained(_CONFIG), _CONFIG, info=_INFO)


def test_a_checkpoint_with_one_wrong_value_is_read_or_refused_by_file(tmp_path):
    folder = _saved(tmp_path / "c")
    assert reads_or_refuses(lambda: cats_jax.load_controller(folder), str(folder), "nothing")
    file = folder / checkpoint.JSON_NAME
    whole = file.read_text()
    for text in mutations(json.loads(whole), 101):
        file.write_text(text)
        reads_or_refuses(lambda: cats_jax.load_controller(folder), "c", text)
    for data in damaged(whole.encode(), 4):
        file.write_bytes(data)
        reads_or_refuses(lambda: cats_jax.load_controller(folder), "c", data)


# Threads of Orbax outlive the loop that they report to.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_checkpoint_with_damaged_arrays_is_read_or_refused_by_file(tmp_path, caplog):
    folder = _saved(tmp_path / "c")
    for file in sorted((folder / "params").rglob("*")):
        if not file.is_file():
            continue
        whole = file.read_bytes()
        for data in (b"", *damaged(whole, 1)) if whole else ():
            file.write_bytes(data)
            reads_or_refuses(lambda: cats_jax.load_controller(folder), str(folder), data)
        file.unlink()
        reads_or_refuses(lambda: cats_jax.load_controller(folder), str(folder), file.name)
        file.write_bytes(whole)
    assert not [record for record in caplog.records if record.name == "absl"]
