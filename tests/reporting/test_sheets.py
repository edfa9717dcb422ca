"""Tables in all their forms: no label is cut where it names a row, and none is markup."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker
from rich.console import Console

from cats_jax.errors import BadInputError
from cats_jax.reporting import sheet_files
from cats_jax.reporting.plain_text import one_line
from cats_jax.reporting.printing import fitting, show_sheet, table_width
from cats_jax.reporting.sheets import (
    Column,
    Sheet,
    down,
    giga,
    giga_up,
    plain,
    share,
    span,
    unique_names,
    up,
)

HOSTILE = (
    "a|b",
    "[bold]x[/bold]",
    "<img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m",
    "[2cm] first in a row",
    r"\input{/etc/passwd} & 50 % $x_1$ {~^#}",
    "=cmd|' /C calc'!A0",
    "two\nlines\u2028three",
    "\u202eright to left",
    "漢字 é λ",
    "*_`~ ![x](javascript:alert(1)) &lt;",
    "",
    "-",
)

TYPOGRAPHY = str.maketrans("\u2018\u2019\u02c6\u02dc\u201d", "`'^~\"")
"""Signs that the renderer of LaTeX prints for those of ASCII."""


def sheet(labels, **changes):
    records = tuple(
        {"label": label, "n": 4 * index, "low": 0.1, "high": 1 / 3, "cost": None}
        for index, label in enumerate(labels)
    )
    columns = (
        Column("strategy", ("label",), plain, 0, left=True),
        Column("N", ("n",), plain, 0),
        Column("95 % interval", ("low", "high"), span, 1),
        Column("low", ("low",), share, 2),
        Column("cost", ("cost",), giga, 3),
    )
    return Sheet(
        **{"name": "t", "title": "Title", "columns": columns, "records": records, **changes}
    )


sizes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=9)


@given(sizes, st.integers(0, 160), st.sampled_from([(3, 4), (2, 0)]))
def test_columns_leave_by_rank_and_no_more_than_must(columns, room, edges):
    widths, ranks = [width for width, _ in columns], [rank for _, rank in columns]
    kept = fitting(widths, ranks, room, *edges)
    assert kept == sorted(set(kept))
    gone = sorted(set(range(len(columns))) - set(kept), key=lambda index: (ranks[index], index))
    assert all(ranks[index] > 0 for index in gone)
    used = table_width([widths[index] for index in kept], *edges)
    assert used <= room or all(ranks[index] == 0 for index in kept)
    if gone:
        # Whatever stays is of a smaller rank, or stands to the left, and the last to leave had to.
        assert all((ranks[k], k) < (ranks[gone[0]], gone[0]) for k in kept)
        assert used + widths[gone[0]] + (edges[0] if kept else 0) > room


def printed(found, width, terminal):
    output = io.StringIO()
    console = Console(
        file=output,
        width=width,
        force_terminal=terminal,
        color_system=None,
        legacy_windows=False,
    )
    show_sheet(console, found)
    return output.getvalue()


@given(
    st.lists(st.text("abc-é漢 [/]", min_size=1, max_size=40), min_size=1, max_size=4),
    st.integers(20, 160),
    st.booleans(),
)
def test_what_names_a_row_is_whole_at_every_width(labels, width, terminal):
    found = sheet(labels)
    output = printed(found, width, terminal)
    lines = output.splitlines()
    for label in labels:
        assert any(one_line(label, 200) in line for line in lines)
    identity = table_width(
        [
            max(map(cells, [one_line(x, 200) for x in labels] + ["strategy"])),
            1 + (len(labels) > 2 and 4 * len(labels) > 12),
        ],
        3,
        4,
    )
    assert max(map(cells, lines)) <= max(width, identity)


def cells(text):
    return sum(2 if char == "漢" else 1 for char in text)


def test_columns_that_are_not_shown_are_named_with_the_way_out():
    wide, narrow = (printed(sheet(["beam"]), width, True) for width in (100, 30))
    assert "not shown" not in wide
    assert "not shown here: low, cost (a wider terminal has them, and so" in " ".join(
        narrow.split()
    )


def test_a_label_is_no_markup_of_the_terminal():
    output = printed(sheet(HOSTILE), 400, True)
    assert "[bold]x[/bold]" in output
    assert "\x1b[31m" not in output
    assert "\u202e" not in output


def test_markdown_has_the_cells_as_text():
    # A parser of its own renders what a reader sees.
    found = sheet(HOSTILE, title="run *x*: <b>", notes=("a | note_",))
    tokens = MarkdownIt("commonmark").enable("table").parse(sheet_files.markdown(found))
    seen = [token for token in tokens if token.type == "inline"]
    for token in seen:
        assert {child.type for child in token.children or ()} <= {"text", "text_special"}
    texts = ["".join(child.content for child in token.children or ()) for token in seen]
    cells = [cell for row in found.rows() for cell in row]
    header = [column.title for column in found.columns]
    assert texts == ["run *x*: <b>", *header, *cells, "a | note_"]


def test_latex_is_whole_and_has_the_cells_as_text():
    found = sheet(HOSTILE, title="50 % of {x}", notes=("a & note",), sections=("n",))
    text = sheet_files.latex(found)
    assert text.isascii()
    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    (table,) = [node for node in nodes if isinstance(node, LatexEnvironmentNode)]
    assert table.environmentname == "table"
    assert re.search(r"\\input(?![a-z])", text) is None
    body = text.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    lines = [line.strip() for line in body.splitlines() if "&" in line]
    assert len(lines) == len(HOSTILE)
    for line, row in zip(lines, found.rows(), strict=True):
        assert line.endswith(r"\\")
        assert not line.startswith("[")
        assert len(re.findall(r"(?<!\\)&", line)) == len(row) - 1
        label = LatexNodes2Text().latex_to_text(re.split(r"(?<!\\)&", line)[0]).strip()
        expected = re.sub("[漢字\ufffd]", "?", row[0].replace('"', "''"))
        assert label.translate(TYPOGRAPHY) == expected.translate(TYPOGRAPHY).strip()
    assert body.count(r"\midrule") == len(HOSTILE) - 1


def test_csv_has_raw_values_and_no_formula():
    found = sheet(HOSTILE)
    header, *rows = csv.reader(io.StringIO(sheet_files.csv_text(found)))
    assert header == ["label", "n", "low", "high", "cost"]
    for row, record in zip(rows, found.records, strict=True):
        assert not row[0].startswith(("=", "+", "-", "@"))
        assert [int(row[1]), float(row[2]), float(row[3]), row[4]] == [
            record["n"],
            record["low"],
            record["high"],
            "",
        ]
    assert sheet_files.csv_text(sheet([])).splitlines() == ["label,n,low,high,cost"]


def test_files_have_names_of_their_own(tmp_path):
    names = ["accuracy", "Accuracy", "../../etc/passwd", "a/b", "a:b", ".hidden", ""]
    sheets = [sheet(["x"], name=name) for name in names]
    paths = sheet_files.write_sheets(sheets, tmp_path)
    assert len({path.name.lower() for path in paths}) == 3 * len(names)
    assert {path.parent for path in paths} == {tmp_path}
    assert all(path.is_file() for path in paths)
    stems = [name for name, _ in unique_names(sheets)]
    assert stems[:2] == ["accuracy", "Accuracy-2"]
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", stem) for stem in stems)


def test_an_output_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_text("")
    with pytest.raises(BadInputError, match="is a file: name a folder"):
        sheet_files.output_folder(path)
    with pytest.raises(BadInputError, match="can't be written"):
        sheet_files.output_folder(path / "below")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (23_353_344, "0.0234"),
        (1e9, "1.00"),
        (99.96e9, "100"),
        (14.2e12, "14200"),
        (12.0, "<0.0001"),
    ],
)
def test_giga_has_three_digits_and_no_exponent(value, text):
    assert giga(value) == text


@given(st.floats(-1.0, 1e6), st.integers(0, 4))
def test_bounds_are_rounded_away_from_what_was_not_proved(value, digits):
    low, high = (float(each(value, digits)) for each in (down, up))
    slack = 1e-11 * abs(value)
    assert low - slack <= value <= high + slack
    assert high - low <= 1.0001 * 10.0**-digits + slack
    assert float(giga_up((1 + abs(value)) * 1e9)) >= (1 + abs(value)) * (1 - 1e-11)


def test_an_exact_bound_stays_as_it_is():
    assert (down(0.1 + 0.2), up(0.1 + 0.2), up(0.3999907)) == ("0.300", "0.300", "0.400")
    assert (down(0.3999907), up(308.43, 0), giga_up(14_234e9)) == ("0.399", "309", "14300")
    assert (giga_up(0.0), giga_up(23_412_345.0)) == ("0", "0.0235")
