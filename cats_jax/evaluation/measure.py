"""Estimates how long a recipe takes, from about a minute of its own searches.

Each strategy searches the recipe's first eight questions at its smallest N, however long that
takes. More questions and larger N follow while the minute lasts. Nothing is graded or written.

The wall time of a search is divided among policy, PRM and the rest in the proportion of its
ledgers. This gives seconds per sampled token and per PRM token. The time of a cell, per question,
is the sample's number of tokens at these rates, times N / (N of the sample) if the cell's N was not
measured. The range covers the spread between the questions. Its lower end assumes that batches
larger than measured take no longer. Paths that cells share (`SharedPaths`) are sampled once, and
scored once by each PRM. The estimate includes loading the models and the compiling of each cell's
first search, but not grading and writing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import stats

from ..grading.graders import default_grader
from ..live.ledger import Ledger
from ..live.results import SearchResult
from ..models.source import ModelSource
from ..protocols import Question
from ..specs.recipe import PrmSpec, Recipe
from .cells import Cell, resolved_cells, resolved_recipe
from .runners import LocalRunner
from .wall_times import WallTimes

MEASURED_SECONDS = 60.0
"""Seconds of searching that `measure` spends by default; loading comes on top."""

_FIRST_QUESTIONS = 8
"""Number of questions of a strategy's first search; fewer show little of their spread."""

_CONFIDENCE = 0.95

_UNKNOWN_SPREAD = 2.0
"""Factor of the range, upwards and downwards, if only one question was measured."""


@dataclass(frozen=True)
class Sample:
    """A measured search of a cell.

    Attributes:
        cell: the cell.
        ledgers: one per question.
        seconds: wall time of the search without `startup`.
        startup: seconds that the search takes only once, for compiling. If the same questions were
            searched twice, the seconds by which the second search was faster. Otherwise, the core's
            seconds in the ticks that compiled.
    """

    cell: Cell
    ledgers: tuple[Ledger, ...]
    seconds: float
    startup: float

    def affordable(self, ends: float, scale: float = 1.0) -> int:
        """Number of questions that fit in twice until `ends`, at `scale` times the cost."""
        each = scale * self.seconds / len(self.ledgers)
        return int(max(0.0, ends - time.perf_counter()) / (2 * max(each, 1e-6)))

    def rates(self) -> tuple[float, float, float]:
        """Seconds per sampled token, per PRM token, and per question for all else."""
        spent = sum(ledger.seconds for ledger in self.ledgers)
        # Some of the wall time is charged to no question.
        factor = self.seconds / spent if spent > 0 else 0.0
        policy = factor * sum(ledger.policy_seconds for ledger in self.ledgers)
        prm = factor * sum(ledger.prm_seconds for ledger in self.ledgers)
        sampled = sum(ledger.generated for ledger in self.ledgers)
        scored = sum(ledger.prm_computed for ledger in self.ledgers)
        rest = (self.seconds - policy - prm) / len(self.ledgers)
        return policy / max(sampled, 1), prm / max(scored, 1), rest


@dataclass(frozen=True)
class CellTime:
    """The estimated time of a cell.

    Attributes:
        cell: the cell.
        rows: number of its rows.
        low, high: seconds; the range of the module's rule.
        sample: the search that the estimate is made from.
    """

    cell: Cell
    rows: int
    low: float
    high: float
    sample: Sample

    @property
    def basis(self) -> str:
        """What was measured, and what was scaled."""
        sample = self.sample
        text = f"{len(sample.ledgers)} questions at once"
        if sample.cell.num_candidates != self.cell.num_candidates:
            text += f", N={sample.cell.num_candidates}"
        if sample.cell.prm != self.cell.prm and sample.cell.prm is not None:
            text += f", tokens of {sample.cell.prm.label}"
        return text


@dataclass(frozen=True)
class Measurement:
    """Estimated times of a recipe's cells.

    Attributes:
        cells: one estimate per cell, in order of running.
        loading: seconds that loading the models took.
    """

    cells: tuple[CellTime, ...]
    loading: float


def measure(
    recipe: Recipe,
    cells: Sequence[Cell],
    questions: Sequence[Question],
    models: ModelSource,
    *,
    seconds: float = MEASURED_SECONDS,
    report: Callable[[str], None] = lambda title: None,
) -> Measurement:
    """Search the first questions of a recipe and estimate the time of all its cells.

    `seconds` limits the searches without loading; a strategy's first search is never cut short.
    `report` is called with the title of each cell that is searched.

    Raises:
        BadInputError: the models do not fit, or a model or question can't be used.
    """
    given, recipe = recipe, resolved_recipe(recipe, cells, questions)
    cells = resolved_cells(cells, given, recipe)
    times = WallTimes()
    runner = LocalRunner(recipe, cells, models, default_grader(recipe.questions), times)
    searches = _Searches(recipe, questions, runner, times, report)
    kinds = _kinds(cells)
    runner.check_models()
    ends = time.perf_counter() + seconds
    samples: list[Sample] = []
    for number, kind in enumerate(kinds):
        share = (ends + times.loading - time.perf_counter()) / (len(kinds) - number)
        samples += searches.measure(kind, share)
    return Measurement(tuple(_estimate(recipe, cells, samples, len(questions))), times.loading)


def _kinds(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells to measure: one list per strategy, smallest N first, and one for each further PRM.

    A strategy is measured with its first PRM, and a further PRM with the first strategy that reads
    scores. The order of PRMs is that of the cells, so that each is loaded once.
    """
    kinds: list[list[Cell]] = []
    strategies: set[str] = set()
    prms: set[str] = set()
    for cell in cells:
        prm = None if cell.prm is None else cell.prm.label
        if cell.spec.label in strategies and (prm is None or prm in prms):
            continue
        strategies.add(cell.spec.label)
        if prm is not None:
            prms.add(prm)
        alike = [
            other
            for other in cells
            if (other.spec.label, other.prm, other.seed) == (cell.spec.label, cell.prm, cell.seed)
        ]
        kinds.append(sorted(alike, key=lambda other: other.num_candidates))
    return kinds


@dataclass(frozen=True)
class _Searches:
    """Searches of a recipe's first questions, under a limit of time."""

    recipe: Recipe
    questions: Sequence[Question]
    runner: LocalRunner
    times: WallTimes
    report: Callable[[str], None]

    def measure(self, cells: Sequence[Cell], seconds: float) -> list[Sample]:
        """A sample of the first of the cells, and of the others while the seconds last.

        Loading the models comes first and does not count.
        """
        self.runner.load(cells[0])
        ends = time.perf_counter() + seconds
        most = min(self.recipe.in_flight, len(self.questions))
        least = min(_FIRST_QUESTIONS, most)
        samples: list[Sample] = []
        for cell in cells:
            number = least
            if samples:
                scale = cell.num_candidates / samples[-1].cell.num_candidates
                number = min(most, samples[-1].affordable(ends, scale))
                if number < least:
                    break
            self.report(cell.title)
            sample = self._search(cell, number)
            number = min(most, sample.affordable(ends))
            if number >= 2 * len(sample.ledgers):
                sample = self._search(cell, number)
            if sample.affordable(ends) >= len(sample.ledgers):
                again = self._search(cell, len(sample.ledgers))
                took = sample.seconds + sample.startup
                again_took = again.seconds + again.startup
                sample = Sample(cell, again.ledgers, again_took, max(0.0, took - again_took))
            samples.append(sample)
        return samples

    def _search(self, cell: Cell, number: int) -> Sample:
        results: list[SearchResult] = []
        searched, compiled = self.times.searching, self.times.parts["compiling"]
        self.runner.close_paths()  # each sample pays for its own paths
        self.runner.search(cell, self.questions[:number], results.append)
        seconds = self.times.searching - searched
        compiling = min(self.times.parts["compiling"] - compiled, seconds)
        ledgers = tuple(result.ledger for result in results)
        return Sample(cell, ledgers, seconds - compiling, compiling)


def _estimate(
    recipe: Recipe, cells: Sequence[Cell], samples: Sequence[Sample], rows: int
) -> list[CellTime]:
    """The time of each cell by the rule of this module."""
    prm_rates = {
        sample.cell.prm: sample.rates()[1] for sample in samples if sample.cell.prm is not None
    }
    shares = recipe.budget is None and recipe.max_seconds is None
    sampled: dict[str, int] = {}
    scored: dict[tuple[str, PrmSpec | None], int] = {}
    times = []
    for cell in cells:
        sample = _closest(samples, cell)
        policy_rate, prm_rate, rest = sample.rates()
        if cell.prm is not None and cell.prm != sample.cell.prm:
            prm_rate = prm_rates[cell.prm]
        width = cell.num_candidates
        if shares and cell.pool is not None:
            policy_rate *= 1 - min(1.0, sampled.get(cell.pool, 0) / width)
            prm_rate *= 1 - min(1.0, scored.get((cell.pool, cell.prm), 0) / width)
            sampled[cell.pool] = max(width, sampled.get(cell.pool, 0))
            key = (cell.pool, cell.prm)
            scored[key] = max(width, scored.get(key, 0))
        scale = width / sample.cell.num_candidates
        costs = [
            scale * (policy_rate * ledger.generated + prm_rate * ledger.prm_computed + rest)
            for ledger in sample.ledgers
        ]
        low, high = _range(costs, rows)
        # Larger batches: at best they take as long as the measured one.
        at_once = min(recipe.in_flight, rows)
        low *= len(sample.ledgers) / max(at_once, len(sample.ledgers))
        low /= max(scale, 1.0)
        times.append(CellTime(cell, rows, low + sample.startup, high + sample.startup, sample))
    return times


def _closest(samples: Sequence[Sample], cell: Cell) -> Sample:
    """The sample of the cell's strategy with its PRM, if there is one, and the nearest N."""
    own = [sample for sample in samples if sample.cell.spec.label == cell.spec.label]
    return min(
        own,
        key=lambda sample: (
            sample.cell.prm != cell.prm,
            abs(sample.cell.num_candidates - cell.num_candidates),
        ),
    )


def _range(costs: Sequence[float], rows: int) -> tuple[float, float]:
    """Seconds of `rows` questions like those measured: Student's interval of their sum."""
    mean = statistics.fmean(costs)
    if len(costs) == 1:
        return rows * mean / _UNKNOWN_SPREAD, rows * mean * _UNKNOWN_SPREAD
    quantile = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(costs) - 1))
    half = quantile * statistics.stdev(costs) * (1 / len(costs) + 1 / rows) ** 0.5
    return rows * max(0.0, mean - half), rows * (mean + half)
