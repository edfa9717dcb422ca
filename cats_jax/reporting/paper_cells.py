"""The groups of runs for which the paper's tables have a number.

Models are named by ids, to which `theory.paper.HUB_IDS` maps the paper's names. A run's policy is
found by the name of its folder, a PRM by that name or by its label in recipes/paper, a data set by
its name in recipes, and a row of an ablation by its strategy's label in recipes/paper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from theory import paper

from ..errors import BadInputError
from ..runs.folder import RunFolder
from .groups import Group, groups

DATASETS = {
    "math500": "MATH-500",
    "aime24": "AIME24",
    "gsm8k": "GSM8K",
    "olympiadbench": "OlympiadBench",
}
"""Name of a data set in recipes -> name in words. "Math" of `tab:compare` is read as MATH-500."""

POLICY = paper.HUB_IDS["Qwen2.5-Instruct-7B"]
"""The policy of the ablations: our reading where the paper names a PRM in its place."""

PRMS = tuple(paper.HUB_IDS[row.prm] for row in paper.SPARSITY_ABLATION)
"""The paper's PRMs."""

CATS_LABEL = "cats"
"""Label of CATS with the paper's setting in recipes/paper."""

_PRM_LABELS: dict[str, str] = dict(
    zip(
        ("math-shepherd", "rlhflow-mistral", "rlhflow-deepseek", "skywork", "qwen2.5-math-prm"),
        PRMS,
        strict=True,
    )
)


@dataclass(frozen=True)
class PaperCell:
    """A mean accuracy that an ablation of the paper prints.

    Attributes:
        row: the row in words.
        labels: labels of strategies for this row; the first label that the runs have counts.
        dataset: name of the data set in recipes.
        prms: PRMs over which the mean is taken, together with the seven N.
        accuracy: mean accuracy, in percent.
    """

    row: str
    labels: tuple[str, ...]
    dataset: str
    prms: tuple[str, ...]
    accuracy: float


@dataclass(frozen=True)
class PaperTable:
    """An ablation: its label in the paper's source, what differs between rows, its cells."""

    label: str
    about: str
    cells: tuple[PaperCell, ...]


def _sparsity_cells() -> Iterator[PaperCell]:
    for dataset, row in itertools.product(("math500", "aime24"), paper.SPARSITY_ABLATION):
        for labels in (("with", CATS_LABEL), ("without",)):
            accuracy = getattr(row, f"{dataset}_{labels[0]}")
            prms = (paper.HUB_IDS[row.prm],)
            yield PaperCell(f"{labels[0]} sparsity", labels, dataset, prms, accuracy)


def _mean_cells(rows: Iterable[tuple[str, float]]) -> tuple[PaperCell, ...]:
    return tuple(PaperCell(label, (label,), "math500", PRMS, accuracy) for label, accuracy in rows)


ABLATIONS = (
    PaperTable("tab:abl_sparse", "the sparsity in the state", tuple(_sparsity_cells())),
    PaperTable(
        "tab:lambda",
        "weights of the reward",
        _mean_cells(
            (f"cost {r.lambda_c:g}, margin {r.lambda_m:g}, score {r.lambda_r:g}", r.accuracy)
            for r in paper.REWARD_ABLATION
        ),
    ),
    PaperTable(
        "tab:actor-critic-ablation",
        "sizes of the networks",
        _mean_cells(
            (
                f"actor {r.actor_layers}x{r.actor_dim}, critic {r.critic_layers}x{r.critic_dim}",
                r.accuracy,
            )
            for r in paper.NETWORK_ABLATION
        ),
    ),
    PaperTable(
        "tab:gamma-ablation",
        "discount",
        _mean_cells((f"{r.discount:g}", r.accuracy) for r in paper.DISCOUNT_ABLATION),
    ),
)
"""The ablations. Their cells are means over the seven N and, except in the first, the five PRMs."""


class CatsCell(NamedTuple):
    """The identity of a group of CATS, in the paper's terms.

    Attributes:
        policy, dataset: id of a policy of the paper, and key of `DATASETS`.
        label, num_candidates: label of the strategy, and N.
        prm: id of a PRM of the paper, or the label of another one.
    """

    policy: str
    dataset: str
    label: str
    prm: str
    num_candidates: int


def searched(runs: Sequence[RunFolder]) -> dict[CatsCell, Group]:
    """The groups of CATS whose policy and data set are in the paper.

    Raises:
        BadInputError: two runs have a group with the same terms.
    """
    found: dict[CatsCell, Group] = {}
    owners: dict[CatsCell, RunFolder] = {}
    for run in runs:
        policy, datasets, prms, labels = _terms(run)
        if policy is None:
            continue
        for group in groups(run.rows):
            dataset = datasets.get(group.dataset)
            if dataset is None or group.prm is None or group.strategy not in labels:
                continue
            key = CatsCell(policy, dataset, group.strategy, prms[group.prm], group.num_candidates)
            if key in found:
                raise BadInputError(
                    f"--paper: {group.name} with {group.prm!r} on {DATASETS[dataset]} is in "
                    f"{str(owners[key].folder)!r} and, with other settings, in "
                    f"{str(run.folder)!r}: name one of the two"
                )
            found[key], owners[key] = group, run
    return found


def nothing_found(runs: Sequence[RunFolder]) -> str:
    """A sentence for runs that share nothing with the paper's tables, which lists what each has."""
    policies, datasets, prms, labels = [], [], [], []
    for run in runs:
        config = run.manifest["config"]
        policies.append(_last(str(config["policy"].get("path", ""))))
        datasets += [_dataset_names(spec)[0] for spec in config["questions"]]
        prms += [group.prm for group in groups(run.rows) if group.prm is not None]
        labels += [row.strategy for row in run.rows]
    of_policies = [_last(paper.HUB_IDS[name]) for name in paper.POLICIES]
    of_prms = [_last(paper.HUB_IDS[row.prm]) for row in paper.SPARSITY]
    return (
        "the paper's tables have nothing of these runs, which have the policies "
        f"{_list(policies)}, the data sets {_list(datasets)}, the PRMs {_list(prms)} and the "
        f"strategies {_list(labels)}; looked for were CATS with the policies "
        f"{_list(of_policies)}, the data sets {_list(DATASETS)} and the PRMs {_list(of_prms)}"
    )


def prm_name(prm: str) -> str:
    """The paper's name of a PRM, or the label of another one."""
    return next((name for name, hub_id in paper.HUB_IDS.items() if hub_id == prm), prm)


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _terms(run: RunFolder) -> tuple[str | None, dict[str, str], dict[str, str], set[str]]:
    """(policy, data sets by rows' label, PRMs by label, labels of CATS) of a run."""
    config, models = run.manifest["config"], run.manifest["models"]
    policy = _hub_id(str(config["policy"].get("path", "")), str(models["policy"].get("name", "")))
    datasets: dict[str, str] = {}
    for spec in config["questions"]:
        name = next((name for name in _dataset_names(spec) if name in DATASETS), None)
        if name is not None:
            # Rows name their data set only if the run has several.
            datasets[str(spec.get("label")) if len(config["questions"]) > 1 else ""] = name
    prms: dict[str, str] = {row.prm: row.prm for row in run.rows if row.prm is not None}
    for spec in config["prms"]:
        label = str(spec["label"])
        prms[label] = _hub_id(str(spec.get("path", ""))) or _PRM_LABELS.get(label, label)
    labels = {spec["label"] for spec in config["strategies"] if spec["name"] == "cats"}
    return policy, datasets, prms, labels


def _dataset_names(spec: Mapping[str, Any]) -> list[str]:
    return [str(spec[key]) for key in ("dataset", "label") if spec.get(key)] or ["none"]


def _hub_id(*names: str) -> str | None:
    ids = {_last(hub_id): hub_id for hub_id in paper.HUB_IDS.values()}
    return next((ids[_last(name)] for name in names if _last(name) in ids), None)


def _last(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
