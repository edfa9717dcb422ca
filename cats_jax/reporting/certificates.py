"""Which answers of a run are certified by the lead of the best path, and how often they are right.

Let R* of a finished path be 1 if its answer is right, else 0. For the paths of a question, let
epsilon bound |score - R*|. If the selected path leads every path with another answer by more than 2
epsilon, its R* is larger than theirs, so its answer is right.

Epsilon is the quantile, over the questions of a held-out run, of a question's largest deviation. A
certified answer can be wrong only on a question with a larger deviation than epsilon. The share of
such questions is about 1 - quantile. If all paths of a question give the same answer, there is no
lead, and the answer is not certified.
"""

from __future__ import annotations

import json
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from theory.certificates import is_best_certified
from theory.estimators import Estimate, estimate_epsilon, exceedance

from ..errors import BadInputError
from ..grading.graders import make_grader, recorded_grader
from ..live.results import SearchResult
from ..protocols import AnswerGrader
from ..runs.folder import Row, RunFolder, read_run
from ..runs.merge import clashing_label, rescored_setting
from ..specs.certificates import LIMITS
from ..storage.manifest import differences
from . import statistics
from .finished_paths import finished_paths, scored_answers
from .groups import Group, Key, groups, identity, interval, mean_by_question
from .run_tables import IDENTITY
from .sheets import Column, Record, Sheet, plain, share, span

QUANTILE = 0.5
"""Default quantile. A truth is 0 or 1, so a deviation may be near 1; if most questions have a path
with such a deviation, a higher quantile certifies nothing."""


class NothingToCertifyError(BadInputError):
    """A held-out run is of another setting, or has no group of a run with scored paths."""


def observed_gap(result: SearchResult, grader: AnswerGrader) -> float | None:
    """Lead of the best path's score, in [0, 1], over the best path with another answer.

    None if no path has both an answer and a score, if all answers are equal, or if the search
    selected an answer other than that of the best path.
    """
    paths = scored_answers(result)
    if not paths or result.answer is None:
        return None
    best, score = max(paths, key=lambda path: path[1])
    if not grader.equivalent(best, result.answer):
        return None
    others = [value for answer, value in paths if not grader.equivalent(answer, best)]
    return score - max(others) if others else None


def is_certified(result: SearchResult, epsilon: float, grader: AnswerGrader) -> bool:
    """Whether the search's answer is certified: it leads by more than 2 epsilon."""
    gap = observed_gap(result, grader)
    return gap is not None and bool(is_best_certified(gap, epsilon))


def describe_certificate(result: SearchResult, epsilon: float, grader: AnswerGrader) -> str:
    """One line on whether the answer is certified, and why."""
    gap = observed_gap(result, grader)
    if result.answer is None:
        return "not certified: the search gives no answer"
    if gap is None:
        return (
            "not certified: no path with another answer to lead, or the answer is not that of the "
            "path with the best score"
        )
    found = "certified" if is_best_certified(gap, epsilon) else "not certified"
    return f"{found}: it leads by {gap:.3f}, 2 epsilon is {2 * epsilon:.3f}"


def certify(run: RunFolder, held_out: RunFolder, *, quantile: float = QUANTILE) -> list[Record]:
    """Certificates of each group that both runs have, with scores and trees.

    Args:
        run, held_out: the run whose answers are certified, and one of the same strategies, N and
            PRMs on other questions.
        quantile: share of held-out questions on which epsilon holds, in (0, 1].

    Returns:
        For each group `epsilon` of the held-out run with its distribution-free interval; the shares
        of questions on which some path deviates by more (`exceeded`), whose answer is certified
        (`certified`), and whose certified answer is wrong (`wrong`, at most `exceeded`); and the
        accuracies of the certified answers (`accuracy`) and of the other ones (`others`), None
        without such answers.

    Raises:
        BadInputError: the runs share questions.
        NothingToCertifyError: no group can be certified.
    """
    check_held_out((row.question for row in run.rows), run.manifest, run.folder, held_out)
    grader = make_grader(recorded_grader(run.manifest["config"]))
    # The keys lack the data set, because the held-out questions may come from others.
    references: defaultdict[Key, list[Row]] = defaultdict(list)
    for reference in groups(held_out.rows):
        references[reference.key] += reference.rows
    found = []
    for group in groups(run.rows):
        if group.key not in references or group.prm is None:
            continue
        known = finished_paths(held_out, references[group.key], grader)
        own = finished_paths(run, group.rows, grader)
        if not known.scores.size or not own.scores.size:
            continue
        epsilon = estimate_epsilon(
            known.scores, known.truths, level=quantile, units=known.questions
        )
        exceeded = exceedance(epsilon.value, own.scores, own.truths, units=own.questions)
        found.append(_certified(run, group, epsilon, exceeded, grader))
    if not found:
        raise NothingToCertifyError(
            f"nothing to certify in {str(run.folder)!r}: no strategy, N and PRM with stored trees "
            f"is also in {str(held_out.folder)!r}"
        )
    return found


def held_out_run(folder: pathlib.Path | None, quantile: float) -> RunFolder | None:
    """The run that a certificate's epsilon comes from, at a quantile in (0, 1]; None without one.

    Raises:
        BadInputError: the folder is not a run's, another quantile, or a quantile without a folder.
    """
    if not 0.0 < quantile <= 1.0:
        raise BadInputError(f"--quantile {quantile:g}: must be in (0, 1], such as 0.5")
    if folder is None and quantile != QUANTILE:
        raise BadInputError(f"--quantile {quantile:g}: is that of --held-out: give a run there")
    return None if folder is None else read_run(folder)


def check_held_out(
    questions: Iterable[str],
    manifest: Mapping[str, Any],
    folder: pathlib.Path,
    held_out: RunFolder,
) -> None:
    """Raise BadInputError if a held-out run has a question of a run.

    Another policy or limit, or another meaning of a label, is a NothingToCertifyError. Questions
    are compared by the digests of their texts. Manifests of earlier versions lack them: then by id.

    Args:
        questions: ids of the run's questions.
        manifest, folder: of the run.
    """
    # A planned manifest has tuples where a stored one has lists.
    both = json.loads(json.dumps(manifest)), held_out.manifest
    texts = [each.get("texts") for each in both]
    if texts[0] and texts[1]:
        shared, example = set(texts[0]) & set(texts[1]), ""
    else:
        shared = set(questions) & {row.question for row in held_out.rows}
        example = f", such as {min(shared, default='')!r}"
    if shared:
        raise BadInputError(
            f"{str(held_out.folder)!r} is not held out: it shares {len(shared)} questions with "
            f"{str(folder)!r}{example}; use a run on other questions"
        )
    kept = [
        {
            "policy": each["models"].get("policy"),
            "rescored": rescored_setting(each["config"]),
            **{name: each["config"].get(name) for name in LIMITS},
        }
        for each in both
    ]
    others = [line for name in kept[0] for line in differences(kept[0][name], kept[1][name], name)]
    if clashing := clashing_label(*both):
        others.append(f"{clashing} is another one")
    if others:
        raise NothingToCertifyError(
            f"--held-out {str(held_out.folder)!r} is of another setting than {str(folder)!r} "
            f"({'; '.join(others):.200}), and its epsilon is that of its own: search its questions "
            "with the models and limits of this run"
        )


def check_certifiable(
    configurations: Iterable[tuple[str, int, str | None]], held_out: RunFolder
) -> None:
    """Raise BadInputError if a held-out run can't certify answers of a run that is planned.

    Args:
        configurations: (label, N, PRM) of the configurations whose trees the run stores.
    """
    there = {group.key for group in groups(held_out.rows) if any(row.tree for row in group.rows)}
    planned = {key for key in configurations if key[2] is not None}
    if not planned & there:
        raise BadInputError(
            f"--held-out {str(held_out.folder)!r}: it has none of this run's strategies with their "
            "N and PRM and with stored trees: search its questions with one of them first"
        )


def certified_answers(run: RunFolder, held_out: RunFolder, quantile: float) -> Sheet:
    """Which share of a run's answers is certified at a quantile, and how often those are right."""

    def ends(name: str) -> tuple[str, ...]:
        return (name, f"{name}_low", f"{name}_high")

    records = certify(run, held_out, quantile=quantile)
    several = any(record["dataset"] for record in records)
    columns = (
        *([Column("data set", ("dataset",), plain, 0, left=True)] if several else []),
        *IDENTITY,
        Column("epsilon", ("epsilon",), share, 3),
        Column("its interval", ("epsilon_low", "epsilon_high"), span, 6),
        Column("certified", ("certified",), share, 1),
        Column("accuracy of certified", ends("accuracy"), _with_ends, 2),
        Column("of the others", ends("others"), _with_ends, 4),
        Column("certified, wrong", ends("wrong"), _with_ends, 5),
        Column("epsilon exceeded", ("exceeded",), share, 7),
    )
    title = f"certified answers: they lead by more than 2 epsilon, quantile {quantile:g}"
    return Sheet("certificates", title, columns, tuple(records))


def _with_ends(value: float, low: float, high: float) -> str:
    return f"{value:.3f} ({low:.3f}-{high:.3f})"


def _certified(
    run: RunFolder, group: Group, epsilon: Estimate, exceeded: Estimate, grader: AnswerGrader
) -> Record:
    flags = [
        (row, row.tree is not None and is_certified(run.tree(row), epsilon.value, grader))
        for row in group.rows
    ]
    certified = [(row, row.correct) for row, is_sure in flags if is_sure]
    others = [(row, row.correct) for row, is_sure in flags if not is_sure]
    wrong = [(row, is_sure and not row.correct) for row, is_sure in flags]
    return {
        "dataset": group.dataset,
        **identity(group),
        **interval("epsilon", epsilon),
        **interval("certified", _share(flags)),
        **interval("accuracy", _share(certified)),
        **interval("others", _share(others)),
        **interval("wrong", _share(wrong)),
        **interval("exceeded", exceeded),
    }


def _share(flags: Sequence[tuple[Row, bool]]) -> Estimate | None:
    """Share of questions, each with the mean over its seeds; None without questions."""
    values = mean_by_question((row.question, float(flag)) for row, flag in flags)
    return statistics.accuracy(list(values.values())) if values else None
