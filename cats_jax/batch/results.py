"""The results of a run for use from Python: rows, report, trees."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BadInputError, quoted
from ..live.ledger import Ledger
from ..live.results import SearchResult
from ..reporting.run_report import report_text
from ..reporting.run_tables import Cost
from ..reporting.selection import Selection, find_question, select
from ..runs import folder as run_folder
from ..runs.folder import Row

if TYPE_CHECKING:
    import pandas

_OF_ROW = [field.name for field in dataclasses.fields(Row) if field.name not in ("ledger", "tree")]
_COLUMNS = [*_OF_ROW, *Ledger().as_dict(), "seconds"]


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder as it was read: finished, interrupted or in use.

    Attributes:
        stored: the manifest and the rows, as `cats_jax.runs.folder.read_run` returns them.
    """

    stored: run_folder.RunFolder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {len(self.stored.rows)} rows)"

    @property
    def folder(self) -> pathlib.Path:
        """Path of the run folder."""
        return self.stored.folder

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What was run: settings, models, questions, versions; the content of manifest.json."""
        return self.stored.manifest

    def rows(self) -> pandas.DataFrame:
        """One row per question, strategy, N, PRM and seed, ordered by cell and by question.

        The columns are the fields of `cats_jax.runs.folder.Row` and of its ledger (candidates,
        tokens, FLOPs, seconds), except the place of the tree.

        Raises:
            BadInputError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise BadInputError(
                "rows() returns a pandas table, and pandas is not installed: install the extra "
                "'eval' (pip install 'cats-jax[eval]'), or read the objects in `stored.rows`"
            ) from error
        records = [row.as_dict() for row in self.stored.rows]
        return pandas.DataFrame(records, columns=_COLUMNS)

    def report(self, cost: Cost = "tokens") -> str:
        """The tables and their notes, as `cats-jax report` prints them to a file.

        Args:
            cost: measure of cost for baselines of similar compute: "tokens" or "flops".

        Raises:
            BadInputError: the run has no rows, its manifest lacks an entry, or an unknown cost.
        """
        if cost not in ("tokens", "flops"):
            raise BadInputError(f"cost={cost!r}: must be 'tokens' or 'flops'")
        return report_text(self.stored, cost)

    def tree(
        self,
        question: str,
        strategy: str | None = None,
        num_candidates: int | None = None,
        prm: str | None = None,
        seed: int | None = None,
    ) -> SearchResult:
        """The search tree of one row, with its paths, decisions and ledger, but without token ids.

        Args:
            question: id of the question, or the beginning of an id.
            strategy: label of the strategy; like the arguments below, it is not needed if only one
                row fits without it.
            num_candidates: N.
            prm: label of the PRM.
            seed: run seed.

        Raises:
            BadInputError: no row or several rows fit, or the row has no tree.
        """
        if not isinstance(question, str):
            raise BadInputError(f"question={quoted(question)}: must be a text, an id")
        question = find_question(self.stored.rows, question)
        selection = Selection(
            strategies=() if strategy is None else (strategy,),
            num_candidates=() if num_candidates is None else (num_candidates,),
            prms=() if prm is None else (prm,),
        )
        rows = [
            row
            for row in select(self.stored.rows, selection)
            if row.question == question and seed in (None, row.seed)
        ]
        return self.stored.tree(_only(question, rows))


def _only(question: str, rows: list[Row]) -> Row:
    if not rows:
        raise BadInputError(
            f"question {question!r} has no row of such a strategy, N, PRM and seed: ask for less"
        )
    if len(rows) > 1:
        raise BadInputError(
            f"question {question!r} has {len(rows)} such rows, as {_name(rows[0])} and "
            f"{_name(rows[1])}: give strategy, num_candidates, prm or seed"
        )
    return rows[0]


def _name(row: Row) -> str:
    prm = "" if row.prm is None else f", {row.prm}"
    return f"({row.strategy}, N={row.num_candidates}{prm}, seed {row.seed})"
