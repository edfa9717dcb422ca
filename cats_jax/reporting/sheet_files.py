"""Tables as Markdown, CSV and LaTeX. Labels are untrusted text: nothing in them is markup."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Sequence

from ..errors import BadInputError
from ..storage import durable
from .plain_text import one_line
from .sheets import Sheet, Value, unique_names

_MAX_TEXT = 2000
_MARKDOWN_SIGNS = frozenset("\\`*_{}[]<>#|&$~!@^")
# A spreadsheet would take such a text for a formula.
_FORMULA_SIGNS = ("=", "+", "-", "@")


def output_folder(path: pathlib.Path) -> pathlib.Path:
    """The folder of an option `--output`, made if it does not exist.

    Raises:
        BadInputError: the path is a file, or the folder can't be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise BadInputError(f"--output {str(path)!r} is a file: name a folder") from error
    except OSError as error:
        raise durable.unwritable(path, error) from error
    return path


def write_sheets(sheets: Sequence[Sheet], folder: pathlib.Path) -> list[pathlib.Path]:
    """Write tables to an existing folder as NAME.md, NAME.csv, NAME.tex; returns the paths."""
    written = []
    for name, sheet in unique_names(sheets):
        forms = {".md": markdown(sheet), ".csv": csv_text(sheet), ".tex": latex(sheet)}
        for suffix, text in forms.items():
            path = folder / f"{name}{suffix}"
            with durable.whole_text(path) as file:
                file.write(text)
            written.append(path)
    return written


def markdown(sheet: Sheet) -> str:
    """The table in GitHub's Markdown, with its title above and its notes below."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        line([_escape_markdown(column.title) for column in sheet.columns]),
        line([":---" if column.left else "---:" for column in sheet.columns]),
        *(line([_escape_markdown(cell) for cell in row]) for row in sheet.rows()),
    ]
    notes = [_escape_markdown(note) for note in sheet.notes]
    return "\n\n".join([_escape_markdown(sheet.title), "\n".join(lines), *notes]) + "\n"


def csv_text(sheet: Sheet) -> str:
    """All raw values in full precision; a missing value is empty. Title and notes are left out."""
    names = sheet.value_names()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for record in sheet.records:
        writer.writerow([_csv_value(record[name]) for name in names])
    return text.getvalue()


def latex(sheet: Sheet) -> str:
    r"""The table as a LaTeX table with a caption; the document needs `\usepackage{booktabs}`.

    It is for pdfLaTeX: a letter that has no macro there is printed as a bold question mark.
    """

    def line(cells: Sequence[str]) -> str:
        return f"    {' & '.join(map(_escape_latex, cells))} \\\\"

    alignment = "".join("l" if column.left else "r" for column in sheet.columns)
    lines = [
        "% Needs \\usepackage{booktabs}.",
        r"\begin{table}[htbp]",
        r"  \centering",
        f"  \\caption{{{_escape_latex(sheet.title)}}}",
        f"  \\begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        line([column.title for column in sheet.columns]),
        r"    \midrule",
    ]
    for index, row in enumerate(sheet.rows()):
        if sheet.begins_section(index):
            lines.append(r"    \midrule")
        lines.append(line(row))
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += [f"\n  {_escape_latex(note)}" for note in sheet.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _escape_markdown(text: str) -> str:
    return "".join(
        f"\\{char}" if char in _MARKDOWN_SIGNS else char for char in one_line(text, _MAX_TEXT)
    )


def _csv_value(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    text = one_line(value, _MAX_TEXT)
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text


def _escape_latex(text: str) -> str:
    from pylatexenc.latexencode import unicode_to_latex

    escaped = unicode_to_latex(
        one_line(text, _MAX_TEXT), unknown_char_policy="replace", unknown_char_warning=False
    )
    # After a line break, LaTeX takes a bracket for the break's argument. Its default fonts have a
    # dash in the place of the bar.
    return escaped.replace("[", "{[}").replace("|", r"\ensuremath{|}")
