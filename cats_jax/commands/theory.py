"""`cats-jax theory`: numeric tests of the paper's theorems and formulas, and of corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from theory.checks import CheckReport


def theory(*, seed: int = 0, only: tuple[str, ...] = ()) -> int:
    """Test the paper's theorems and formulas, and print the verdicts, in about a minute.

    "fails" with a remedy is a finding: the exit code is 1 only if a verdict is not the one that the
    analysis expects.

    Args:
        seed: random seed of the sampled checks.
        only: names of checks to run, or beginnings of names, such as "margin".
    """
    import time

    from rich.markup import escape

    from theory.checks import CHECKS

    from ..errors import BadInputError
    from ..reporting.printing import show_table
    from ..storage.schema import check_seed
    from .terminal import make_console

    check_seed(seed)
    chosen = {
        name: check
        for name, check in CHECKS.items()
        if not only or any(name.startswith(start) for start in only)
    }
    unknown = [start for start in only if not any(name.startswith(start) for name in CHECKS)]
    if unknown:
        raise BadInputError(
            f"--only: no check begins with {unknown[0]!r}; without --only the table names them all"
        )
    console = make_console()
    reports: list[CheckReport] = []
    started = time.monotonic()
    with console.status("") as status:
        for number, (name, check) in enumerate(chosen.items(), 1):
            status.update(f"{number}/{len(chosen)} {name}")
            reports.append(check(seed=seed))
    show_table(console, verdict_table(reports))
    for report in reports:
        if report.verdict == "fails":
            found = f"{report.name}: {report.where}. Instead: {report.remedy or 'nothing known'}."
            console.print(escape(found), soft_wrap=True)
    verdicts: list[str] = [report.verdict for report in reports]
    names = ("holds", "fails", "not established")
    figures = ", ".join(f"{verdicts.count(name)} {name}" for name in names)
    console.print(f"{len(reports)} claims: {figures} ({time.monotonic() - started:.0f} s)")
    unexpected = [report for report in reports if not report.as_expected]
    for report in unexpected:
        console.print(
            escape(
                f"{report.name}: {report.verdict}, but the analysis says {report.expected}; "
                "run it again with another --seed"
            ),
            soft_wrap=True,
        )
    return int(bool(unexpected))


def verdict_table(reports: Sequence[CheckReport]) -> Table:
    """One row per claim; slack is how far the worst case is from the bound, on the claimed side."""
    from rich.markup import escape
    from rich.table import Table

    from theory.checks.report import CONFIDENCE

    table = Table(
        title="claims of the theory; slack: of the worst case, negative beyond the claimed bound, "
        f"with its {CONFIDENCE:.2%} interval if sampled",
        title_justify="left",
    )
    table.add_column("check", no_wrap=True)
    table.add_column("claim (where it stands)", ratio=1)
    table.add_column("verdict", no_wrap=True)
    table.add_column("slack", justify="right", no_wrap=True)
    table.add_column("draws", justify="right", no_wrap=True)
    styles = {"holds": "green", "fails": "red", "not established": "yellow"}
    for report in reports:
        slack = f"{report.slack.value:.3g}"
        if report.num_samples:
            slack += f" ({report.slack.low:.3g} to {report.slack.high:.3g})"
        table.add_row(
            report.name,
            escape(f"{report.claim} ({report.source})"),
            f"[{styles[report.verdict]}]{report.verdict}[/]",
            slack,
            f"{report.num_samples:,}" if report.num_samples else "exact",
        )
    return table
