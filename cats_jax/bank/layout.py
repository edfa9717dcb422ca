"""Loading a bank's folder as the arrays of `search.bank`."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import search
from search import bank as search_bank

from ..datasets.digests import text_digest
from ..errors import BadInputError, RunWarning, known_names
from ..specs.calibrations import IDENTITY, Calibrations
from ..storage.reading import reading
from ..storage.rules import COUNT, check_entries, optional
from .store import WHILE_GROWING, read_manifest, read_sparsity, read_tables
from .trees import apart


@dataclass(frozen=True)
class LoadedBank:
    """A bank, loaded for training and replays.

    Attributes:
        arrays: arrays for `search.bank`.
        ids, texts, gold: ids, texts and right answers of the questions, in the order of `arrays`.
        prms: labels of the PRMs, in the order of the PRM axis.
        manifest: manifest of the folder, which states what the bank was collected from.
        nodes: columns of the nodes as from `store.read_tables`, but with parents as rows of
            `arrays`.
    """

    arrays: search_bank.Bank
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    gold: tuple[str, ...]
    prms: tuple[str, ...]
    manifest: Mapping[str, Any]
    nodes: Mapping[str, np.ndarray]


def load_bank(
    folder: str | pathlib.Path,
    *,
    prms: Sequence[str] | None = None,
    calibrations: Calibrations = (),
    expected: Mapping[str, Any] | None = None,
    world: str | None = None,
) -> LoadedBank:
    """Read the complete blocks of a bank; each needs the scores of every PRM that is kept.

    Args:
        folder: folder of the bank.
        prms: labels of the PRMs to keep, in that order; default: all.
        calibrations: calibrations of PRMs; a PRM without one gets the identity.
        expected: fingerprints that the bank's models must have, see `build.fingerprints`; other
            models are not checked.
        world: version that the bank's embedded world must have, see `build.world_version`.

    Raises:
        BadInputError: the folder holds no bank or one of another format, the world or a model is
            not the expected one, the bank lacks a PRM or some of its scores, or a file is damaged.
    """
    way_out = "collect it anew, or copy it anew"
    with reading(f"step bank {str(folder)!r}", way_out):
        bank = _load(folder, prms, dict(calibrations), expected or {}, world)
        planned = bank.manifest["questions"].get("count")
        check_entries({"count": planned}, {"count": optional(COUNT)}, "questions.")
    if planned is not None and len(bank.ids) < planned:
        warnings.warn(
            f"step bank {str(folder)!r} has {len(bank.ids)} of its {planned} questions yet",
            RunWarning,
            stacklevel=2,
        )
    return bank


def _load(
    folder: str | pathlib.Path,
    prms: Sequence[str] | None,
    known: Mapping[str, Sequence[float]],
    expected: Mapping[str, Any],
    world: str | None,
) -> LoadedBank:
    manifest = read_manifest(folder)
    _check_origin(folder, manifest, expected, world)
    labels = tuple(spec["label"] for spec in manifest["config"]["prms"])
    chosen = labels if prms is None else tuple(prms)
    for label in chosen:
        if label not in labels:
            raise BadInputError(
                f"step bank {str(folder)!r} has no PRM {label!r}: {known_names(label, labels)}"
            )
    questions, nodes = read_tables(folder, chosen)
    _check_nodes(questions, nodes)
    sparsity = read_sparsity(folder)
    contexts = [
        search.Context(
            sparsity_total=sparsity[label][0],
            sparsity_last_layer=sparsity[label][1],
            calibration=search.Calibration(*known.get(label, IDENTITY)),
        )
        for label in chosen
    ]
    sizes = np.array(questions["num_nodes"])
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # The tables number parents within a question; the arrays number rows over all questions.
    nodes = {**nodes, "parent": nodes["parent"] + np.repeat(roots, sizes)}
    nodes["parent"][roots] = -1
    return LoadedBank(
        arrays=_arrays(manifest["config"], questions, nodes, roots, contexts),
        ids=tuple(questions["id"]),
        texts=tuple(questions["text"]),
        gold=tuple(questions["gold"]),
        prms=chosen,
        manifest=manifest,
        nodes=nodes,
    )


def _arrays(
    config: Mapping[str, Any],
    questions: Mapping[str, Any],
    nodes: Mapping[str, np.ndarray],
    roots: np.ndarray,
    contexts: Sequence[search.Context],
) -> search_bank.Bank:
    samplings = tuple(
        search.Sampling(**entry["sampling"]) for entry in config["allocation"]["draws"]
    )
    first_draw, drawn = _draw_lists(nodes["parent"], nodes["draws"], samplings)
    return search_bank.Bank(
        root=_int32(roots),
        level=_int32(questions["level"]),
        prompt_tokens=_int32(np.array(questions["prompt_tokens"])),
        first_draw=_int32(first_draw),
        drawn=_int32(drawn),
        invalid=jnp.asarray(nodes["invalid"]),
        done=jnp.asarray(nodes["done"]),
        text=_int32(nodes["text_class"]),
        log_prob=_float32(np.minimum(nodes["log_prob"], 0.0)),
        **{name: _int32(nodes[name]) for name in ("answer", "num_tokens", "prm_tokens")},
        **{name: _float32(nodes[name]) for name in ("score", "value")},
        temperature=_float32([sampling.temperature for sampling in samplings]),
        top_p=_float32([sampling.top_p for sampling in samplings]),
        top_k=_int32([sampling.top_k for sampling in samplings]),
        context=jax.tree.map(lambda *values: _float32(values), *contexts),
        max_depth=jnp.int32(config["max_depth"]),
    )


def without_prm(bank: LoadedBank) -> search_bank.Bank:
    """The arrays for a search that calls no PRM, which no PRM keeps from reading a path.

    A node that no PRM could read while the bank grew has no draws, so it stays unreadable.
    """
    score = jnp.asarray(bank.arrays.score)
    refused = score == search_bank.UNREADABLE
    lacks_draws = jnp.all(refused, axis=1, keepdims=True) & (
        bank.manifest["scored"] == WHILE_GROWING
    )
    return bank.arrays.replace(score=jnp.where(refused & ~lacks_draws, 0.0, score))


def check_disjoint(first: Sequence[str], second: Sequence[str], what: str) -> None:
    """Raise BadInputError if two lists of questions share a question; it names the first one.

    The lists have the questions' texts, which are compared by `text_digest`. Ids may be mere row
    numbers.
    """
    known = set(map(text_digest, second))
    shared = [text for text in dict.fromkeys(first) if text_digest(text) in known]
    if shared:
        raise BadInputError(
            f"{what} overlap: {len(shared)} are in both, such as {shared[0][:80]!r}: collect "
            "the bank from another set"
        )


def check_same_models(first: LoadedBank, second: LoadedBank, what: str) -> None:
    """Raise BadInputError if two banks, which `what` names, differ in policy or a label's PRM."""
    names = {"policy": "policies", **{f"prm {each}": f"PRMs {each!r}" for each in first.prms}}
    for name, plural in names.items():
        models = [bank.manifest["models"].get(name) for bank in (first, second)]
        if models[0] != models[1]:
            raise BadInputError(
                f"{what} were collected with different {plural}: their fingerprints differ; "
                "collect both with the same"
            )


def _check_nodes(questions: Mapping[str, Any], nodes: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the nodes are trees with draws that can be listed."""
    sizes = np.array(questions["num_nodes"])
    if sizes.min() < 1 or sizes.sum() != len(nodes["parent"]):
        raise ValueError("its questions have other numbers of nodes than its tables")
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    parent, draws = nodes["parent"], nodes["draws"]
    if np.any((place > 0) & ((parent < 0) | (parent >= place))):
        raise ValueError("a node's parent is no node before it")
    if draws.min() < 0 or draws.astype(np.int64).sum() > _MAX_DRAWS:
        raise ValueError(f"its draws are not in 0..{_MAX_DRAWS}")


_MAX_DRAWS = 1 << 30


def _check_origin(
    folder: str | pathlib.Path,
    manifest: Mapping[str, Any],
    expected: Mapping[str, Any],
    world: str | None,
) -> None:
    if world is not None and manifest["world"] != world:
        raise BadInputError(
            f"step bank {str(folder)!r} is from version {manifest['world']} of the embedded world, "
            f"this is {world}: collect it anew"
        )
    for name, fingerprint in expected.items():
        if name not in manifest["models"]:
            known = known_names(name, manifest["models"])
            raise BadInputError(f"step bank {str(folder)!r} has no {name}: {known}")
        if manifest["models"][name] != fingerprint:
            raise BadInputError(
                f"step bank {str(folder)!r} was collected with another {name}: its fingerprint "
                "differs; collect the bank anew with this one"
            )


def _draw_lists(
    parent: np.ndarray, draws: np.ndarray, samplings: tuple[search.Sampling, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The children drawn at each node under each setting, as concatenated lists.

    A setting without draws at a node takes those of the nearest setting with draws.

    Returns:
        Starts of the lists, i[V S + 1], and the concatenated lists of rows.
    """
    size, settings = draws.shape
    totals = np.zeros((size, settings), np.int64)
    children = np.flatnonzero(parent >= 0)
    np.add.at(totals, parent[children], draws[children])
    source = np.tile(np.arange(settings), (size, 1))
    for setting, sampling in enumerate(samplings):
        # From far to near, so that the nearest one with draws is written last.
        others = sorted(range(settings), key=lambda s: -apart(samplings[s], sampling))
        for other in others:
            has = totals[:, other] > 0
            source[has, setting] = other
    counts = np.take_along_axis(totals, source, axis=1)
    taken = np.take_along_axis(draws[children], source[parent[children]], axis=1)
    row = np.repeat(np.repeat(children, settings), taken.ravel())
    cell = np.repeat(
        (parent[children, None] * settings + np.arange(settings)).ravel(), taken.ravel()
    )
    # The order within a list is random, because a search takes its entries one after another.
    order = np.lexsort((np.random.default_rng(0).random(row.size), cell))
    first = np.concatenate([[0], np.cumsum(counts.ravel())])
    return first, row[order]


def _int32(values: Any) -> Any:
    return jnp.asarray(np.asarray(values), jnp.int32)


def _float32(values: Any) -> Any:
    return jnp.asarray(np.asarray(values), jnp.float32)
