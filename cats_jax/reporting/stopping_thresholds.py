"""Stop early: the lowest score at which a search path by path loses little against all N paths.

The paths of a best-of-N run are independent, so its first paths have the distribution of those of a
search that stops. The certified strategy is `sequential_best_of_n` with the threshold as its
`stop`. Searches with limits are refused, because a limit ends the two searches at different paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import theory

from ..controllers.strategies import revisions_of
from ..errors import BadInputError
from ..grading.graders import make_grader, recorded_grader
from ..protocols import AnswerGrader
from ..runs.folder import Row, RunFolder
from ..specs.certificates import KIND, probability
from ..specs.recipe import StrategySpec
from .certificate_premises import (
    COST_SHARE,
    about_run,
    check_one_seed,
    check_rows,
    check_shares,
)
from .certified_configurations import draw_tested
from .figure_setup import frame, make_panels
from .finished_paths import path_grades
from .groups import Group, groups
from .selective_answers import THRESHOLDS
from .sheets import Column, Record, Sheet, plain, share, up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHOLE, _STOPPED = "best_of_n", "sequential_best_of_n"


@dataclass(frozen=True)
class StoppingCertificate:
    """The certified thresholds of a best-of-N run for searches that stop early.

    Attributes:
        max_loss: accuracy that may be lost against all N paths, in (0, 1).
        delta: largest probability that a certified threshold or a bound on its cost is false.
        group: the rows of best-of-N.
        found: the tests of all thresholds.
        bounds: f64[31], upper bounds on the loss, which hold together at the level of the claims.
        paths_bounds: f64[31], upper bounds on the mean number of paths, likewise.
        run: the run.
    """

    max_loss: float
    delta: float
    group: Group
    found: theory.Stopping
    bounds: np.ndarray
    paths_bounds: np.ndarray
    run: RunFolder

    @property
    def chosen(self) -> int | None:
        """Index of the lowest certified threshold; None if no threshold is certified."""
        return self.found.index

    @property
    def words(self) -> str:
        """The claim as a clause."""
        return f"accuracy at most {self.max_loss:g} below that of {self.group.name} without a stop"

    def label(self, place: int) -> str:
        """The strategy that stops at a threshold."""
        return f"{self.group.strategy}, stop {THRESHOLDS[place]:.4f}"

    @property
    def paths(self) -> np.ndarray:
        """Mean number of paths of a question at each threshold, f64[31]."""
        return self.found.num_paths.mean(axis=1)

    @property
    def lost(self) -> np.ndarray:
        """Share of harmful questions at each threshold, f64[31]."""
        return self.found.harmful / self.found.right.shape[1]

    def records(self) -> list[Record]:
        """The rows of the table and of the file, one for each threshold."""
        return [
            {
                "strategy": self.label(i),
                "num_candidates": self.group.num_candidates,
                "prm": self.group.prm,
                "stop": float(threshold),
                "certified": "yes" if self.found.certified[i] else "no",
                "accuracy": float(self.found.right[i].mean()),
                "lost": float(self.lost[i]),
                "bound": float(self.bounds[i]),
                "p_value": float(self.found.p_values[i]),
                "paths": float(self.paths[i]),
                "paths_bound": float(self.paths_bounds[i]),
            }
            for i, threshold in enumerate(THRESHOLDS)
        ]

    def as_json(self) -> dict[str, Any]:
        """The certificate; its strategy is the path-by-path search with the certified `stop`."""
        about = about_run(self.run)
        config = about["config"]
        if self.chosen is not None:
            label = self.label(self.chosen)
            whole = _entry(self.run, self.group)
            options = dict(whole["options"] or ())
            options["stop"] = float(THRESHOLDS[self.chosen])
            entry = {"name": _STOPPED, "label": label, "options": [*options.items()]}
            if whole.get("certified"):
                entry["certified"] = {**whole["certified"], "threshold": None}
            config = {**config, "strategies": [*config["strategies"], entry]}
            about["revisions"] = revisions_of([StrategySpec(_STOPPED, label, ())])
        return {
            "kind": KIND,
            "words": self.words,
            "claim": {"stopping": True, "max_loss": self.max_loss},
            "delta": self.delta,
            "cost_share": COST_SHARE,
            "order": "descending",
            "num_questions": self.found.right.shape[1],
            "chosen": self.chosen,
            "configurations": self.records(),
            **about,
            "config": config,
        }


def certify_stopping(run: RunFolder, max_loss: float, *, delta: float) -> StoppingCertificate:
    """Find the lowest certified threshold of the one best-of-N configuration of a run.

    Args:
        run: a run of `best_of_n` at one N with one PRM and one seed, with trees and without limits.
        max_loss: accuracy that may be lost against all N paths, in (0, 1).
        delta: largest probability that a certified threshold or a bound on its cost is false.

    Raises:
        BadInputError: the run can't certify a threshold; the message states the reason.
    """
    check_shares(delta=delta, max_loss=max_loss)
    group = _best_of_n(run)
    number, level = len(group.rows), (1 - COST_SHARE) * delta
    needed = int(np.ceil(np.log(level) / np.log1p(-max_loss)))
    if number < needed:
        raise BadInputError(
            f"{number} questions certify nothing here, whatever the answers are: a loss of at most "
            f"{max_loss:g} takes at least {needed} questions"
        )
    scores, right = path_outcomes(run, group)
    # Not the first path of the best score: best-of-N takes the one that finished first.
    whole = [row.correct for row in group.rows]
    found = theory.certify_stopping(
        scores, right, THRESHOLDS, max_loss=max_loss, delta=level, whole=whole
    )
    choices = THRESHOLDS.size
    bounds = theory.binomial_upper(found.harmful, number, delta=level / choices)
    paths = [
        theory.cost_upper(
            row, limit=group.num_candidates, delta=COST_SHARE * delta, num_choices=choices
        )
        for row in found.num_paths
    ]
    return StoppingCertificate(
        max_loss, delta, group, found, np.asarray(bounds), np.array(paths), run
    )


def path_outcomes(run: RunFolder, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Scores f64[n, N] and grades bool[n, N] of the paths of best-of-N, in order of sampling.

    A path that did not finish or has no answer has the score -1.

    Raises:
        BadInputError: a row lacks its tree.
    """
    grader = make_grader(recorded_grader(run.manifest["config"]))
    scores = np.full((len(group.rows), group.num_candidates), -1.0)
    right = np.zeros(scores.shape, bool)
    for i, row in enumerate(group.rows):
        for place, score, correct in _paths(run, row, grader):
            scores[i, place], right[i, place] = score, correct
    return scores, right


def stopping_sheet(certificate: StoppingCertificate) -> Sheet:
    """The table of all thresholds; a note below it names the lowest certified one."""
    columns = (
        Column("stop from score", ("stop",), lambda value: up(value, 4), 0),
        Column("certified", ("certified",), plain, 0),
        Column("paths", ("paths",), lambda value: f"{value:.2f}", 1),
        Column("paths at most", ("paths_bound",), lambda value: up(value, 2), 3),
        Column("lost", ("lost",), share, 2),
        Column("loss at most", ("bound",), up, 3),
        Column("accuracy", ("accuracy",), share, 4),
        Column("p", ("p_value",), lambda value: f"{value:.2g}", 3),
    )
    group = certificate.group
    note = "no threshold is certified: on other questions take more of them, or a larger --max-loss"
    if certificate.chosen is not None:
        at = certificate.chosen
        note = (
            f"the search may stop from a score of {up(THRESHOLDS[at], 4)} on: "
            f"{certificate.paths[at]:.1f} of {group.num_candidates} paths a question, at most "
            f"{up(certificate.paths_bounds[at], 1)}"
        )
    return Sheet(
        name="certificate",
        title=(
            f"{certificate.words}, tested on {len(group.rows)} questions; what is certified holds "
            f"with probability {probability(certificate.delta)}"
        ),
        columns=columns,
        records=tuple(certificate.records()),
        notes=(note, "lost: questions that only the search without a stop answers right"),
    )


def draw_stopping(certificate: StoppingCertificate) -> Figure:
    """The observed loss of each threshold with its bound, against the paths of a question."""
    figure, (axes,) = make_panels(1)
    tested = certificate.found.certified, certificate.paths, certificate.lost, certificate.bounds
    draw_tested(axes, *tested)
    label = f"the claim: {certificate.max_loss:g}"
    axes.axhspan(0.0, certificate.max_loss, color="#2f7d4f", alpha=0.12, linewidth=0.0)
    axes.axhline(certificate.max_loss, color="#c1272d", linewidth=1.0, label=label)
    axes.set_ylim(0.0, max(4 * certificate.max_loss, 0.05))
    note = f"bars: to the bounds, which hold together; delta {certificate.delta:g}"
    frame(figure, [axes], certificate.words, note, "paths of a question", "share of harmful")
    return figure


def _best_of_n(run: RunFolder) -> Group:
    """The one group of best-of-N of a run whose thresholds can be certified."""
    found = groups(run.rows)
    check_rows(run, found)
    limits = [name for name in ("budget", "max_tokens") if run.manifest["config"].get(name)]
    if limits:
        raise BadInputError(
            f"--stopping: the run has {limits[0]}, which ends a search path by path elsewhere: "
            "evaluate without it"
        )
    entries = [_entry(run, group) for group in found]
    votes = [dict(entry["options"] or ()).get("vote", "best") for entry in entries]
    if votes != ["best"] or entries[0]["name"] != _WHOLE:
        names = ", ".join(f"{group.name} {group.prm or ''}".strip() for group in found)
        raise BadInputError(
            f"--stopping is about one configuration of {_WHOLE}, and there are {names:.200}: name "
            "one by --strategies, --num-candidates and --prms"
        )
    if dict(entries[0]["options"] or ()).get("beam_width") is not None:
        raise BadInputError(
            f"--stopping: {found[0].name} has beam_width, which drops paths by their scores: "
            "evaluate without it"
        )
    check_one_seed(run, "--stopping")
    return found[0]


def _entry(run: RunFolder, group: Group) -> Mapping[str, Any]:
    """The entry of the manifest for the strategy of a group."""
    strategies = run.manifest["config"]["strategies"]
    return next(each for each in strategies if each["label"] == group.strategy)


def _paths(run: RunFolder, row: Row, grader: AnswerGrader) -> list[tuple[int, float, bool]]:
    """Place, score and grade of each finished path with an answer; a failed search has none."""
    if row.tree is None:
        if row.status == "failed":
            return []
        raise BadInputError(
            "--stopping reads the scores in the trees, which rows of the run lack: evaluate with "
            "`trees: true`"
        )
    result = run.tree(row)
    grades = path_grades(row, result, grader)
    return [
        (result.candidates[path.nodes[0] - 1].pool_row, path.path_score, grades[path.answer])
        for path in result.paths
        if path.answer is not None and path.path_score is not None
    ]
