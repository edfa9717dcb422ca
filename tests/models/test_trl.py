"""PRMs that TRL's own `PRMTrainer` trained, with the scores that TRL's trainer predicts."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import prm_families
import pytest
from prm_cards import PATHS, QUESTION

from cats_jax.models.huggingface.scorer import HuggingFaceScorer
from cats_jax.models.prm.family import choose_format
from cats_jax.protocols import Question, Step

# TRL and accelerate in a folder of their own, on top of the packages of `.venv`.
BESIDE = pathlib.Path(__file__).parents[2] / ".venv-beside"
SCRIPT = pathlib.Path(prm_families.__file__).with_name("trl_prm.py")
YAML = 'layout: text\ntag: "\\n\\n"\njoined: false\nread_out: {layers: [score], label: 1}\n'


def prepared(folder, *, begin, separator):
    """A folder for `trl_prm`; `begin`: whether the tokenizer has a token that begins a text."""
    folder.mkdir()
    start = prm_families.trl(folder / "start")
    if begin:
        file = start / "tokenizer_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "bos_token": "<|endoftext|>"}))
    train = [
        {
            "prompt": f"{a}+{b}?",
            "completions": [f"{a} + {b}", f"= {c}."],
            "labels": [True, c == a + b],
        }
        for a, b, c in [(1, 2, 3), (2, 2, 4), (3, 4, 9), (5, 2, 1)]
    ]
    test = [
        {"prompt": QUESTION, "completions": steps, "labels": [True] * len(steps)}
        for steps in PATHS.values()
    ]
    rows = {"separator": separator, "train": train, "test": test}
    (folder / "rows.json").write_text(json.dumps(rows))
    return folder


def ours(folder, form):
    scorer = HuggingFaceScorer(folder, choose_format(form, folder))
    found = []
    for texts in PATHS.values():
        path = tuple(Step(text, ()) for text in texts)
        paths = [path[: i + 1] for i in range(len(path))]
        found.append(scorer.score([Question("q", QUESTION)] * len(paths), paths).all_scores())
    return found


@pytest.mark.slow
def test_scores_equal_those_of_the_trainer(tmp_path):
    assert BESIDE.is_dir(), "run `make beside-env`"
    (tmp_path / "blank.yaml").write_text(YAML)
    formats = {"plain": "auto", "begun": "auto", "blank": str(tmp_path / "blank.yaml")}
    folders = [
        prepared(
            tmp_path / name, begin=name == "begun", separator="\n\n" if name == "blank" else "\n"
        )
        for name in formats
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(BESIDE),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    done = subprocess.run(
        [sys.executable, SCRIPT, *folders],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for folder, form in zip(folders, formats.values(), strict=True):
        expected = json.loads((folder / "scores.json").read_text())
        found[folder.name] = np.concatenate(ours(folder / "trained", form))
        np.testing.assert_allclose(found[folder.name], np.concatenate(expected), atol=1e-5)
        # What was read is the trained model, and neither the separator nor the first token is lost.
        assert np.ptp(found[folder.name]) > 0.01
        assert (
            np.abs(found[folder.name] - np.concatenate(ours(folder / "start", form))).max() > 0.01
        )
    assert np.abs(found["plain"] - found["begun"]).max() > 1e-3
