"""The published data sets: where they are on the Hugging Face hub and how they are laid out.

Copies on disk are read in the same layouts. A column that was published under two names is found
under both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..errors import quoted
from ..grading.boxes import extract_boxed
from ..grading.extraction import hash_answer
from ..grading.plain_numbers import plain_number
from .digests import math500_ids, text_digest
from .layout import BadRowError, Gold, Layout, Row, answer_text, column, tolerance_of

_UNBRACED_BOX = re.compile(r"\\boxed\s+([^$\s{]+)")


@dataclass(frozen=True)
class Published:
    """A data set on the hub, or one that is published as a file elsewhere.

    Attributes:
        path: name of the data set on the hub; if it is not on the hub, where its file is.
        configs: configurations that are read one after another; None is the default one.
        splits: number of rows of each split, as published; the first split is the default.
        layout: layout of the rows.
        on_hub: whether the data set is on the hub; otherwise only a copy on disk is read.
    """

    path: str
    configs: tuple[str | None, ...]
    splits: Mapping[str, int]
    layout: Layout
    on_hub: bool = True


def _answer(row: Row) -> Gold:
    return Gold(answer_text(column(row, "answer"), "answer"))


def _boxed_solution(row: Row) -> Gold:
    if row.get("answer"):
        return _answer(row)
    solution = column(row, "solution")
    if not isinstance(solution, str):
        raise BadRowError("'solution' must be a text")
    boxed = extract_boxed(solution)
    if not boxed and (match := _UNBRACED_BOX.search(solution)):
        boxed = match[1]
    if not boxed:
        raise BadRowError(r"'solution' holds no closed \boxed{}")
    return Gold(boxed)


def _competition_integer(row: Row) -> Gold:
    text = answer_text(column(row, "answer", "extracted_groundtruth"), "answer")
    if not re.fullmatch(r"-?[0-9]{1,100}", text):
        raise BadRowError(f"the answer must be an integer, got {quoted(text)}")
    return Gold(str(int(text)))


def _behind_hashes(row: Row) -> Gold:
    number = hash_answer(answer_text(column(row, "answer"), "answer"))
    if number is None:
        raise BadRowError("'answer' must end with a line '#### NUMBER'")
    return Gold(number.replace(",", "") if plain_number(number) is not None else number)


def _final_answer(row: Row) -> Gold:
    # \$5 is a price, other dollar signs are delimiters.
    text = re.sub(r"(?<!\\)\$", "", answer_text(column(row, "final_answer"), "final_answer"))
    error = row.get("error")
    if error in (None, ""):
        return Gold(text)
    tolerance = tolerance_of(error)
    if tolerance is None:
        raise BadRowError(f"'error' must be a number, at least 0 and finite, got {quoted(error)}")
    return Gold(text, tolerance)


def _of_year(year: str, contest: str) -> Callable[[Row], bool]:
    def keep(row: Row) -> bool:
        return f"{year}_{contest}" in str(row.get("url", f"{year}_{contest}"))

    return keep


def _not_in_math500(row: Row) -> None:
    known = math500_ids()
    identity = row.get("unique_id")
    if identity not in known.values():
        identity = known.get(text_digest(str(row.get("problem"))))
    if identity is not None:
        raise BadRowError(
            f"this is {identity} of MATH-500, which the training split leaves out: use PRM800K's "
            "math_splits/train.jsonl as published, or drop the row"
        )


PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        "math500": Published(
            "HuggingFaceH4/MATH-500",
            (None,),
            {"test": 500},
            Layout(_answer, ("problem",), "unique_id", "math500/"),
        ),
        "math": Published(
            "EleutherAI/hendrycks_math",
            (
                "algebra",
                "counting_and_probability",
                "geometry",
                "intermediate_algebra",
                "number_theory",
                "prealgebra",
                "precalculus",
            ),
            {"test": 5000, "train": 7500},
            Layout(_boxed_solution, ("problem",), "unique_id", "math/"),
        ),
        # The split of Lightman et al., arXiv:2305.20050: MATH without MATH-500.
        "math12k": Published(
            "prm800k/math_splits/train.jsonl of github.com/openai/prm800k",
            (),
            {"train": 12000},
            Layout(_boxed_solution, ("problem",), "unique_id", "math12k/", check=_not_in_math500),
            on_hub=False,
        ),
        "aime24": Published(
            "AI-MO/aimo-validation-aime",
            (None,),
            {"train": 30},
            Layout(
                _competition_integer, ("problem",), "id", "aime24/", keep=_of_year("2024", "AIME")
            ),
        ),
        "amc23": Published(
            "AI-MO/aimo-validation-amc",
            (None,),
            {"train": 40},
            Layout(
                _competition_integer, ("problem",), "id", "amc23/", keep=_of_year("2023", "AMC")
            ),
        ),
        "gsm8k": Published(
            "openai/gsm8k",
            ("main",),
            {"test": 1319, "train": 7473},
            Layout(_behind_hashes, ("question",), None, "gsm8k/"),
        ),
        "olympiadbench": Published(
            "Hothan/OlympiadBench",
            ("OE_TO_maths_en_COMP",),
            # Copies with 675 are older: one question was removed since.
            {"train": 674},
            Layout(_final_answer, ("question",), "id", "olympiadbench/", context="context"),
        ),
    }
)
"""Published data sets by their names in recipes."""
