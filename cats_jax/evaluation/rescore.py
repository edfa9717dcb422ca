"""Rescoring: another aggregation, vote, PRM or grader on saved trees, without sampling.

Rows are rescored only if the result equals that of a run with the other setting; all others are
left out. The grader can change for every strategy that does not compare answers. The vote can
change for strategies with an option `vote` whose answer rule reads neither path weights nor
calibrated scores. The aggregation or the PRM can change only for strategies that read scores and
keep all paths (best-of-N, plain or weighted): in others, scores decide which paths are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import search
from search.aggregations import AGGREGATIONS
from search.state import empty_paths

from ..controllers.strategies import SearchMethod, build_strategy, options_of
from ..errors import BadInputError
from ..grading.graders import grade_answer, is_covered
from ..live import calls
from ..live.abstention import decided
from ..live.ledger import Ledger
from ..live.results import PRM_CONTEXT, ROOT, SearchPath, SearchResult
from ..live.tree import SearchTree, candidate_step
from ..models.resolve import resolve_format
from ..models.source import ModelSource
from ..protocols import AnswerGrader, Path, Step, StepScorer, warn_note
from ..runs.folder import Row, RunFolder, RunWriter, read_run, row_key
from ..specs.functions import AT_ENDPOINTS, is_function_name
from ..specs.recipe import PrmSpec, StrategySpec, model_settings, parse_strategy
from ..storage.manifest import MANIFEST, make_manifest
from ..storage.reading import reading
from ..storage.rules import SHARE, check_entries, one_of, optional
from .asked import asked_of_model
from .cells import pool_name
from .guarantees import is_guarantee
from .shared_paths import SharedPaths

_CHOOSING = {"threshold": optional(SHARE), "path_score": optional(one_of(*AGGREGATIONS))}


@dataclass(frozen=True)
class Change:
    """The settings that a rescoring changes; None leaves a setting as it was.

    Attributes:
        path_score: name of the aggregation of step scores.
        vote: "best", "weighted" or "majority".
        prm: PRM that scores again every step that the run scored.
    """

    path_score: str | None = None
    vote: str | None = None
    prm: PrmSpec | None = None

    @property
    def of_scores(self) -> bool:
        """Whether the change affects path scores."""
        return self.path_score is not None or self.prm is not None


@dataclass(frozen=True)
class Rescored:
    """A rescored run, and the strategies that were left out of it.

    Attributes:
        run: the new run as read from its folder.
        left_out: for the label of each strategy left out, the reason.
    """

    run: RunFolder
    left_out: Mapping[str, str]


def rescore(
    run: RunFolder,
    folder: str | pathlib.Path,
    change: Change,
    grader: AnswerGrader,
    scorer: StepScorer | None = None,
    *,
    models: ModelSource | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    grader_name: str = "",
    functions: bool = True,
) -> Rescored:
    """Rescore a run's trees and write the rows to a new run folder.

    Args:
        run: the run to rescore, as read.
        folder: folder of the new run; must differ from the old run's.
        change: the settings that change.
        grader: extracts the answers again, compares them for the vote, and grades the chosen one.
        scorer: the PRM of `change.prm`, loaded.
        models: source of that PRM in place of `scorer`; it is loaded after all checks.
        fingerprint: name and digests of that PRM, for the manifest.
        grader_name: name of the grader, for the manifest: readers of the new run grade with it.
            Without a name they grade with the grader of the questions.
        functions: whether strategies that the manifest names as `module:function` are loaded, which
            runs their code.

    Raises:
        BadInputError: no row can be rescored, or the folder can't be used.
    """
    rows, left_out = rescorable_rows(run, folder, change, functions=functions)
    change, (entries, specs) = _after_earlier(run, change), _strategies(run)
    prms = {prm["label"]: prm for prm in run.manifest["config"]["prms"]}
    methods = {
        (label, prm): _changed_method(
            specs[label], _path_score(entries[label], prms.get(prm), change), change
        )
        for label, prm in {(row.strategy, row.prm) for row in rows}
    }
    remote = {label for label, spec in prms.items() if spec.get("path") in AT_ENDPOINTS}
    if models is not None and change.prm is not None:
        fingerprint = models.fingerprint(change.prm)
    manifest = _manifest(run, change, grader_name, fingerprint)
    with RunWriter(folder, manifest) as writer, contextlib.closing(SharedPaths()) as shared:
        if models is not None and change.prm is not None:
            scorer = models.prm(change.prm)
        # The largest N scores all paths of a pool; the other rows read these scores.
        for row in sorted(rows, key=lambda row: -row.num_candidates):
            new = _renamed(row, change)
            if new.key in writer.keys:
                continue
            if row.status == "failed" and row.tree is None:
                writer.add(new, None)
                continue
            result = run.tree(row)
            if change.prm is not None and scorer is not None and row.prm is not None:
                pool = pool_name(_strategy(specs[row.strategy]), row.seed) or row.key
                prm, end = shared.share_scores(
                    f"{pool}, PRM {row.prm}", change.prm.label, row.num_candidates, scorer
                )
                _score(result, prm, at_endpoint=row.prm in remote)
                end(result.question, row.status != "failed" and not result.ledger.prm_refused)
            if row.status == "failed":
                writer.add(dataclasses.replace(new, ledger=result.ledger), result)
                continue
            _choose(result, methods[row.strategy, row.prm], grader)
            certified = entries[row.strategy].get("certified") or {}
            result = decided(result, certified.get("threshold"))
            writer.add(_graded(new, result, grader), result)
    warn_note(scorer)
    return Rescored(read_run(folder), left_out)


def rescorable_rows(
    run: RunFolder, folder: str | pathlib.Path, change: Change, *, functions: bool = True
) -> tuple[list[Row], dict[str, str]]:
    """The rows that a change can rescore, and by label why the other strategies are left out.

    Raises:
        BadInputError: there is no such row, `change.prm` would give rows of several PRMs the same
            key, the run has a limit that depends on the PRM, or the folder is the run's.
    """
    if pathlib.Path(folder).resolve() == run.folder.resolve():
        raise BadInputError("rescore: the output must be another folder than the run's")
    scored_by = sorted({row.prm for row in run.rows if row.prm is not None})
    if change.prm is not None and len(scored_by) > 1:
        raise BadInputError(
            f"rescore: the run has rows of several PRMs ({', '.join(scored_by)}), which --prm "
            "would make the same: rescore a run with one, such as `cats-jax evaluate RECIPE --prms "
            f"{shlex.quote(scored_by[0])} --output FOLDER` makes"
        )
    config = run.manifest["config"]
    limit = next((name for name in ("max_tokens", "max_seconds") if config.get(name)), None)
    if change.prm is not None and limit is not None:
        raise BadInputError(
            f"rescore: the run has {limit}, which includes the PRM's part, so that searches with "
            "another PRM end elsewhere: run the recipe with the PRM"
        )
    change, (entries, specs) = _after_earlier(run, change), _strategies(run)
    left_out = {
        label: reason
        for label, spec in specs.items()
        for prm in config["prms"] or [None]
        if (
            reason := _why_not(
                spec, _path_score(entries[label], prm, change), change, functions=functions
            )
        )
    }
    for row in run.rows:
        if row.tree is None and row.status != "failed":
            left_out.setdefault(row.strategy, "rows without a tree: run it with `trees: true`")
        if change.prm is not None and row.ledger.prm_refused:
            reason = f"PRM {row.prm} could not read some paths, which have no end: run it again"
            left_out.setdefault(row.strategy, reason)
        has_tree = row.tree is not None and row.strategy not in left_out
        if change.prm is not None and has_tree and _has_gaps(run.tree(row)):
            left_out[row.strategy] = (
                "its PRM scored some steps only, as an outcome model does: run it with the PRM"
            )
    rows = [row for row in run.rows if row.strategy not in left_out]
    if not rows:
        reasons = "; ".join(f"{label}: {reason}" for label, reason in left_out.items())
        raise BadInputError(f"rescore: no row of {str(run.folder)!r} can be rescored ({reasons})")
    return rows, left_out


def _after_earlier(run: RunFolder, change: Change) -> Change:
    """The change, with the aggregation and the vote of an earlier rescoring that it leaves."""
    earlier = run.manifest["config"].get("rescored") or {}
    return dataclasses.replace(
        change,
        path_score=change.path_score or earlier.get("path_score"),
        vote=change.vote or earlier.get("vote"),
    )


def _path_score(
    entry: Mapping[str, Any], prm: Mapping[str, Any] | None, change: Change
) -> str | None:
    """The aggregation of a strategy without one: its certificate's, or that of its PRM by now."""
    if entry.get("certified"):
        return entry["certified"].get("path_score")
    return change.prm.path_score if change.prm is not None else (prm or {}).get("path_score")


def _strategies(run: RunFolder) -> tuple[dict[str, Any], dict[str, StrategySpec]]:
    """The entries of the strategies in the manifest, and their specs, by label."""
    with reading(repr(str(run.folder / MANIFEST))):
        config = run.manifest["config"]
        entries = {entry["label"]: entry for entry in config["strategies"]}
        certified = [entry.get("certified") or {} for entry in entries.values()]
        for each in (*certified, *config["prms"]):
            check_entries({name: each.get(name) for name in _CHOOSING}, _CHOOSING)
        specs = {
            label: parse_strategy({"name": each["name"], "label": label, **dict(each["options"])})
            for label, each in entries.items()
        }
    return entries, specs


def _why_not(spec: StrategySpec, path_score: str | None, change: Change, *, functions: bool) -> str:
    if is_function_name(spec.name) and not functions:
        return f"it is the function {spec.name}: --functions runs it, if you trust the run folder"
    strategy = _strategy(spec, path_score)
    if strategy.comparison is not None:
        return "a judge chose its answers, and trees do not hold the comparisons"
    if change.of_scores and not strategy.uses_scores:
        return "it reads no scores"
    if change.of_scores and not strategy.keeps_all_paths:
        return "its search depends on path scores"
    if change.path_score is not None and "path_score" not in options_of(spec):
        return "it has one path score"
    if change.vote is not None and "vote" not in options_of(spec):
        return "it has one way to choose"
    if change.vote is not None and not _is_answered_by_tree(strategy):
        return "its votes go by what trees do not hold"
    return ""


def _is_answered_by_tree(strategy: search.Strategy) -> bool:
    """Whether the answer rule needs neither path weights nor calibrated scores: trees lack both."""
    return not (strategy.weights_paths or strategy.calibrated)


def _strategy(spec: StrategySpec, path_score: str | None = None) -> search.Strategy:
    return build_strategy(spec, path_score).strategy


def _changed_method(
    spec: StrategySpec, path_score: str | None, change: Change
) -> SearchMethod | None:
    """The method that answers by a tree; None if the strategy's answers need more than that."""
    changed = {"path_score": change.path_score, "vote": change.vote}
    options = dict(spec.options) | {k: v for k, v in changed.items() if v is not None}
    method = build_strategy(
        StrategySpec(spec.name, spec.label, tuple(sorted(options.items()))), path_score
    )
    return method if _is_answered_by_tree(method.strategy) else None


def _has_gaps(result: SearchResult) -> bool:
    """Whether a scored step continues one without a score, as with an outcome model."""
    scored = [candidate for candidate in result.candidates if candidate.score is not None]
    have = {ROOT, *(candidate.id for candidate in scored)}
    return any(candidate.parent not in have for candidate in scored)


def _score(result: SearchResult, scorer: StepScorer, *, at_endpoint: bool) -> None:
    """Score all scored candidates again, step by step; the ledger gets the new PRM's cost.

    The result is exact for strategies whose search does not depend on scores, if the PRM can read
    all paths. Paths that it can't read are dropped; a search would have dropped them earlier and
    given the following samples other seeds. `at_endpoint`: the old PRM was behind a chat endpoint,
    so its FLOPs count as 0.

    Raises:
        BadInputError: the old PRM's FLOPs are not known.
    """
    old = result.ledger
    if old.prm_computed and not old.prm_flops and not at_endpoint:
        raise BadInputError(
            "rescore: the PRM's part of the run's FLOPs is not known, because the run is of an "
            "earlier version, or its PRM is your own with num_parameters 0: run it again"
        )
    ledger = dataclasses.replace(
        old,
        flops=old.flops - old.prm_flops,
        prm_flops=0.0,
        prm_cost=0.0,
        prm_computed=0,
        prm_cached=0,
        prm_calls=0,
        prm_seconds=0.0,
    )
    scored = [candidate for candidate in result.candidates if candidate.score is not None]
    for candidate in scored:
        candidate.score = candidate.path_score = None
    for _, group in itertools.groupby(scored, lambda candidate: candidate.step):
        step = list(group)
        paths = [_path_to(result, candidate.id) for candidate in step]
        scoring = calls.score(scorer, [result.question] * len(paths), paths)
        for candidate, score in zip(step, scoring.scores, strict=True):
            if score is None:
                candidate.invalid = PRM_CONTEXT
                # Steps after such a step are too long, too; a search would not have sampled them.
                ledger.prm_refused += not _is_refused(result, candidate.parent)
            candidate.score = score
        computed = sum(usage.computed for usage in scoring.usage)
        ledger.prm_computed += computed
        ledger.prm_cached += sum(usage.cached for usage in scoring.usage)
        ledger.prm_cost += sum(usage.cost for usage in scoring.usage)
        ledger.prm_calls += 1
        spent = scoring.seconds
        ledger.prm_seconds += scoring.inside_seconds if spent is None else sum(spent)
        ledger.prm_flops += 2.0 * scorer.num_parameters * computed
    scorer.keep_only(result.question, [])
    ledger.flops += ledger.prm_flops
    result.ledger = ledger
    before, chosen = result.paths, result.chosen
    result.paths = [path for path in before if not _is_refused(result, path.nodes[-1])]
    if chosen is not None:
        is_left = before[chosen] in result.paths
        result.chosen = result.paths.index(before[chosen]) if is_left else None
    if before and not result.paths:
        result.answer, result.status, result.reason = None, "no_answer", ""


def _is_refused(result: SearchResult, node: int) -> bool:
    return node != ROOT and result.candidates[node - 1].invalid == PRM_CONTEXT


def _path_to(result: SearchResult, node: int) -> Path:
    steps: list[Step] = []
    while node:
        candidate = result.candidates[node - 1]
        steps.append(candidate_step(candidate))
        node = candidate.parent
    return tuple(reversed(steps))


def _choose(result: SearchResult, method: SearchMethod | None, grader: AnswerGrader) -> None:
    """Extract the answers again, aggregate the scores and choose among the finished paths.

    Without a method, chosen path and path scores stay as they were.
    """
    tree = SearchTree(result.question, grader)
    if not result.paths:
        return
    depth = max(len(path.nodes) for path in result.paths)
    # Padded, so that results of about the same size share a program.
    shape = _padded(len(result.paths)), _padded(depth)
    scores, lengths = np.zeros(shape, np.float32), np.zeros(shape[0], np.int32)
    answers = np.full(shape[0], -1, np.int32)
    log_probs, num_tokens = np.zeros(shape[0], np.float32), np.zeros(shape[0], np.int32)
    paths: list[SearchPath] = []
    for row, path in enumerate(result.paths):
        steps = [result.candidates[node - 1] for node in path.nodes]
        lengths[row] = len(steps)
        scores[row, : len(steps)] = [step.score or 0.0 for step in steps]
        answer = grader.extract(path.steps)
        answers[row] = tree.answer_class(answer)
        steps[-1].answer = answer
        log_probs[row] = steps[-1].log_prob or 0.0
        num_tokens[row] = steps[-1].num_tokens
        paths.append(dataclasses.replace(path, answer=answer))
    chosen = -1 if result.chosen is None else result.chosen
    if method is not None:
        strategy, params, price, rate, *_ = method
        # The tree does not hold the rest of the context.
        context = search.Context(price, prm_token_cost=rate)
        known = {
            "depth": lengths,
            "step_scores": scores,
            "answer": answers,
            "log_prob": log_probs,
            "num_tokens": num_tokens,
        }
        row_and_values = _row_and_path_scores(params, context, known, strategy=strategy)
        chosen, values = int(row_and_values[0]), np.asarray(row_and_values[1])
        for row, path in enumerate(paths):
            steps = [result.candidates[node - 1] for node in path.nodes]
            if all(step.score is not None for step in steps):
                steps[-1].path_score = float(values[row])
                step_scores = tuple(float(score) for score in scores[row, : len(steps)])
                paths[row] = dataclasses.replace(
                    path, path_score=steps[-1].path_score, step_scores=step_scores
                )
    result.paths = paths
    result.chosen = None if chosen < 0 else chosen
    result.answer = None if chosen < 0 else paths[chosen].answer
    if result.status in ("answered", "no_answer"):
        if method is not None or result.status == "answered":
            result.reason = ""  # of the old choice, or of its grade
        result.status = "no_answer" if result.answer is None else "answered"


def _padded(size: int) -> int:
    """The smallest power of two that is at least 4 and at least `size`."""
    return max(4, 1 << (size - 1).bit_length())


@functools.partial(jax.jit, static_argnames="strategy")
def _row_and_path_scores(
    params: Any,
    context: search.Context,
    known: Mapping[str, jax.Array],
    *,
    strategy: search.Strategy,
) -> tuple[jax.Array, jax.Array]:
    """The row that answers or -1, and the path score of each row; rows of depth 0 are padding."""
    valid = known["depth"] > 0
    capacity, longest = known["step_scores"].shape
    finished = empty_paths(capacity, longest, np.int32(0)).replace(
        valid=valid, weight=valid.astype(jnp.float32), **known
    )
    row = strategy.answer(params, finished, context, strategy.aggregation)
    return row, strategy.aggregation.value(finished.step_scores, finished.depth)


def _renamed(row: Row, change: Change) -> Row:
    """A row with the label of the PRM that scores it now, and without a tree."""
    prm = row.prm if row.prm is None or change.prm is None else change.prm.label
    key = row_key(row.strategy, row.num_candidates, prm, row.seed, row.question)
    return dataclasses.replace(row, key=key, prm=prm, tree=None)


def _graded(row: Row, result: SearchResult, grader: AnswerGrader) -> Row:
    grade = grade_answer(grader, result.answer, row.gold, row.tolerance)
    return dataclasses.replace(
        row,
        answer=result.answer,
        correct=grade.correct,
        covered=grade.correct
        or is_covered(grader, [path.answer for path in result.paths], row.gold, row.tolerance),
        status=result.status,
        reason=result.reason or (grade.error and f"not graded: {grade.error}"),
        ledger=Ledger(**dataclasses.asdict(result.ledger)),
    )


def _manifest(
    run: RunFolder, change: Change, grader_name: str, fingerprint: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The run's manifest with the change, without guarantees: they do not hold for changed rows."""
    old = run.manifest["config"]
    labels = [str(entry["label"]) for entry in old["strategies"]]
    config = {
        **old,
        "name": f"{old['name']}-rescored",
        "rescored": {
            "from": run.folder.name,
            "rows": len(run.rows),
            "grader": grader_name,
            "path_score": change.path_score,
            "vote": change.vote,
            "prm": None,
        },
    }
    names = ("revisions", "asked", "texts", "spent", "fitted_on", "chosen_on")
    kept = {name: run.manifest[name] for name in names if name in run.manifest}
    models = run.manifest["models"]
    if change.prm is not None:
        name = f"prm {change.prm.label}"
        settings = model_settings(resolve_format(change.prm))
        config["prms"], config["rescored"]["prm"] = [settings], settings
        models = {**_without_prms(models), name: fingerprint or {"name": change.prm.path}}
        if kept.get("asked") is not None:
            kept["asked"] = {**_without_prms(kept["asked"]), name: asked_of_model(change.prm)}
    manifest = make_manifest(
        config=config,
        models=models,
        questions=run.manifest["questions"],
        seeds=run.manifest["seeds"],
        notes=[note for note in run.notes if not is_guarantee(note, labels)],
    )
    return {**manifest, **kept}


def _without_prms(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of a manifest by model, without those of the run's PRMs, which are not called."""
    return {name: value for name, value in entries.items() if not name.startswith("prm ")}
