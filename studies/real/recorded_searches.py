"""Methods that sample whole paths, on recorded paths of a real model, in every order of the paths.

    python -m studies.real.recorded_searches PATHS.jsonl.gz --questions FILE.jsonl --policy FOLDER
        [--stoppers FOLDER ...] [--against "best_of_n 2"]

A row of PATHS is a path: `question`, `steps`, and `scores` with a list of step scores for each PRM.
A path without scores was cut before its end: here its steps have score 0, and its last step is cut.
A search takes the paths of its question in one order, and each question is searched once for each
order. So methods that stop early or drop paths are compared on the paths of those that take all of
them. The accuracy and the tokens of a question are means over the orders, and the intervals are by
question. The policy's folder gives the tokenizer, which counts the tokens. A question with fewer
paths than most is left out: a path that was sampled twice is recorded once. A stopper of
`train_stopper` searches at each price of its training.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cats_jax
import search
from cats_jax.controllers.stopper import load_stopper
from cats_jax.datasets.loading import read_questions
from cats_jax.grading import MathGrader
from cats_jax.models.huggingface.tokenizer import load_tokenizer
from cats_jax.protocols import (
    Finish,
    Generation,
    Path,
    Question,
    Scoring,
    Step,
    StepRequest,
    StepSample,
    TokenUsage,
)
from cats_jax.reporting.statistics import accuracy, paired

_METHODS = search.methods
METHODS: Sequence[tuple[str, int, search.Strategy]] = (
    ("`majority`", 4, search.majority()),
    ("`majority`", 3, search.majority()),
    ("`adaptive_consistency`, confidence .85", 4, _METHODS.adaptive_consistency(confidence=0.85)),
    ("`early_stopping_consistency`, window 2", 4, _METHODS.early_stopping_consistency(window=2)),
    ("`best_of_n`", 4, search.best_of_n(path_score="last")),
    ("`best_of_n`", 3, search.best_of_n(path_score="last")),
    ("`best_of_n`", 2, search.best_of_n(path_score="last")),
    ("`best_of_n_weighted`", 4, _METHODS.best_of_n_weighted(path_score="last")),
    ("`best_of_n_weighted`", 3, _METHODS.best_of_n_weighted(path_score="last")),
    *(
        (
            f"`sequential_best_of_n`, stop {stop}",
            4,
            _METHODS.sequential_best_of_n(stop=float(stop), path_score="last"),
        )
        for stop in (".5", ".6", ".7")
    ),
    (
        "`sequential_best_of_n`, stop .7, weighted vote",
        4,
        _METHODS.sequential_best_of_n(stop=0.7, path_score="last", vote="weighted"),
    ),
    ("`sequential_halving`", 4, _METHODS.sequential_halving(path_score="last")),
    ("`speculative_rejection`, 512 tokens", 4, _METHODS.speculative_rejection(memory_tokens=512)),
)
"""The last step score is a path's score, as the layers for own samples were chosen with it."""


MAX_DEPTH = 32


class RecordedStep(NamedTuple):
    """A step of a recorded path; the first token id of `step` is its `place` among all steps."""

    step: Step
    score: float
    finish: Finish


class RecordedPaths:
    """A policy and a PRM in one: they hand out recorded paths in the order that an id names.

    Args:
        steps: all recorded steps; those of a path follow one another.
        beginnings: places of the first steps of each question's paths, by its text.
    """

    name = "recorded"
    num_parameters = 1
    sparsity_total = sparsity_last_layer = 0.0

    def __init__(
        self, steps: Sequence[RecordedStep], beginnings: Mapping[str, Sequence[int]]
    ) -> None:
        self._steps = steps
        self.beginnings = beginnings
        self._begun = Counter[str]()

    def check_question(self, question: Question) -> None:
        """Every recorded question fits."""

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Nothing is cached."""

    def forget(self) -> None:
        """Hand out the paths from the beginning of each order again."""
        self._begun.clear()

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """The next recorded step of each path; at the root the next paths of the order."""
        samples = [[self._next(request) for _ in request.seeds] for request in requests]
        usage = [TokenUsage(generated=sum(each.num_tokens for each in group)) for group in samples]
        return Generation(samples, usage, 0.0)

    def _next(self, request: StepRequest) -> StepSample:
        if request.path:
            place = request.path[-1].token_ids[0] + 1
        else:
            name, order = request.question.id, request.question.id.partition("#")[2]
            place = self.beginnings[request.question.text][int(order[self._begun[name]])]
            self._begun[name] += 1
        step, _, finish = self._steps[place]
        return StepSample(step, finish, None)

    def score(self, questions: Sequence[Question], paths: Sequence[Path]) -> Scoring:
        """The recorded score of each path's last step."""
        scores = [self._steps[path[-1].token_ids[0]].score for path in paths]
        return Scoring([*scores], [TokenUsage()] * len(paths), 0.0)


def recorded(
    rows: Iterable[Mapping[str, Any]], prm: str, num_tokens: Callable[[str], int]
) -> RecordedPaths:
    """The paths of each question that has as many as most questions have."""
    steps: list[RecordedStep] = []
    beginnings = defaultdict[str, list[int]](list)
    for row in rows:
        texts, is_whole = row["steps"], "scores" in row
        scores = row["scores"][prm] if is_whole else [0.0] * len(texts)
        ends: list[Finish] = ["step" for _ in texts[1:]]
        ends.append("end" if is_whole else "length")
        beginnings[row["question"]].append(len(steps))
        for text, score, finish in zip(texts, scores, ends, strict=True):
            ids = (len(steps), *[0] * (num_tokens(text + "\n\n") - 1))
            steps.append(RecordedStep(Step(text, ids), score, finish))
    ((usual, _),) = Counter(map(len, beginnings.values())).most_common(1)
    whole = {text: places for text, places in beginnings.items() if len(places) == usual}
    return RecordedPaths(steps, whole)


def searched(
    strategy: search.Strategy,
    num_candidates: int,
    world: RecordedPaths,
    golds: Mapping[str, str],
    grader: MathGrader,
    **options: Any,
) -> tuple[list[float], list[float]]:
    """Share of right answers and mean tokens of each question, over all orders of its paths.

    `options` are those of a stopper: `params` and `price`.
    """
    world.forget()
    texts, number = [*world.beginnings], max(map(len, world.beginnings.values()))
    orders = ["".join(map(str, order)) for order in itertools.permutations(range(number))]
    searcher = cats_jax.Searcher(
        policy=world,
        scorer=world,
        strategy=strategy,
        num_candidates=num_candidates,
        max_depth=MAX_DEPTH,
        grader=grader,
        **options,
    )
    questions = [Question(f"{i}#{order}", text) for i, text in enumerate(texts) for order in orders]
    right, tokens = defaultdict[str, float](float), defaultdict[str, float](float)
    for question, result in zip(questions, searcher.run(questions), strict=True):
        is_right = result.answer is not None and grader.equivalent(
            result.answer, golds[question.text]
        )
        right[question.text] += is_right / len(orders)
        tokens[question.text] += result.ledger.generated / len(orders)
    return [right[text] for text in texts], [tokens[text] for text in texts]


def stopper_rows(
    folder: str, world: RecordedPaths
) -> Iterable[tuple[str, int, search.Strategy, dict[str, Any]]]:
    """A stopper at each price of its training, and the options of its searches."""
    stopper = load_stopper(folder)
    number = max(map(len, world.beginnings.values()))
    for price in stopper.prices:
        options = {"params": stopper.actor, "price": price}
        scores = "scores" if stopper.uses_scores else "answers"
        yield f"`learned_stopping`, {scores}, price {price:g}", number, stopper.strategy(), options


def unquoted(name: str, number: int) -> str:
    """A row's method and N, as `--against` names them."""
    return f"{name} {number}".replace("`", "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Whole-path methods on recorded paths.")
    parser.add_argument("paths", type=pathlib.Path)
    parser.add_argument("--questions", required=True, help="data set with the gold answers")
    parser.add_argument("--policy", type=pathlib.Path, required=True)
    parser.add_argument("--prm", default="head-own", help="name of the scores")
    parser.add_argument("--stoppers", nargs="*", default=[], help="folders of train_stopper")
    parser.add_argument("--against", default="majority 4", help="method and N of the first row")
    options = parser.parse_args()
    with gzip.open(options.paths, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    tokenizer = load_tokenizer(options.policy)
    world = recorded(
        rows, options.prm, lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
    )
    known = read_questions(options.questions)
    golds = {item.text: known.answers[item.id] for item in known.questions}
    stoppers = [row for folder in options.stoppers for row in stopper_rows(folder, world)]
    methods = [*((*each, {}) for each in METHODS), *stoppers]
    first = [i for i, (name, n, *_) in enumerate(methods) if unquoted(name, n) == options.against]
    if not first:
        parser.error(f"--against: one of {[unquoted(name, n) for name, n, *_ in methods]}")
    methods.insert(0, methods.pop(first[0]))
    print(f"{len(world.beginnings)} questions, each searched with every order of its paths")
    print(
        f"| method | N | right | 95 % interval | tokens | difference from {options.against} | p |"
    )
    print("|---|---|---|---|---|---|---|")
    with MathGrader() as grader:
        base: list[float] = []
        for name, number, strategy, given in methods:
            right, tokens = searched(strategy, number, world, golds, grader, **given)
            base = base or right
            found, against = accuracy(right), paired(right, base)
            print(
                f"| {name} | {number} | {found.value:.3f} | {found.low:.3f} to {found.high:.3f} "
                f"| {sum(tokens) / len(tokens):.0f} | {against.difference.value:+.3f} "
                f"({against.difference.low:+.3f} to {against.difference.high:+.3f}) "
                f"| {against.p_value:.2g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
