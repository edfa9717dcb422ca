"""Answers in texts, their one spelling, plain numbers and structure: no process is started."""

import json
import string
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cats_jax.grading import MathGrader, final_answer, given_answer, hash_answer
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.grading.boxes import boxed_answer, extract_boxed
from cats_jax.grading.canonical import canonical
from cats_jax.grading.formula_text import readable
from cats_jax.grading.plain_numbers import BasedNumber, plain_number
from cats_jax.grading.structure import Structure, depth, structure

# Pieces that the rules look for: random texts of them reach what random letters never do.
_PIECES = [
    *"{}()[],.-+=^_!:$%~/",
    *(r"\frac", r"\dfrac", r"\text", r"\mbox", r"\left", r"\right", r"\sqrt", r"\pm", r"\in"),
    *(r"^\circ", r"\,", r"\!", r"\ ", r"\$", r"\%", r"\{", r"\}", r"\(", r"\)", "**", "`"),
    *("1", "23", "000", "x", "y", "i", "a", "A", "(C)", "e", " ", "cm", "meters", "per", "dollars"),
    *("<", r"\lor", r"\land ", "th", "and", "or", "base", "eight"),
    *("°", "π", "√", "½", "²", "₈", "−", "∞"),
]  # fmt: skip
_texts = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join)


# Extraction


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{7}.", "7"),
        (r"\boxed{1} or \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        (r"\boxed{4} but no: \boxed{5", "4"),
        (r"\fbox{3}", "3"),
        (r"\boxed {3}", "3"),
        (r"\boxed{\boxed{9}}", "9"),
        (r"\boxed{\text{a \} b}}", r"\text{a \} b}"),
        (r"\boxed{5", None),
        ("no box", None),
    ],
)
def test_the_last_closed_box(text, answer):
    assert extract_boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: The final answer is $5$. I hope it is correct.", "5"),
        ("The final answer is 3.5 meters. Good.", "3.5 meters"),
        (r"the final answer is: \(x^2\)", "x^2"),
        (r"Final answer: \[ \frac{1}{2} \]", r"\frac{1}{2}"),
        (r"the final answer is $\$32,\!348$. I", r"\$32,\!348"),
        ("The final answer is $18", "$18"),
        ("**Final Answer:** **42**", "42"),
        ("first the final answer is 1\nno, the final answer is 2.", "2"),
        ("Janet sells 9 eggs.\n#### 1,080", "1,080"),
        ("#### $18", "$18"),
        ("#### -3\n", "-3"),
        ("#### Step 2: add", None),
        ("#### (1)", None),
        ("#### b)", None),
        ("#### A", None),
        ("#### Part 2", None),
        ("text #### 5", "5"),
        ("#### $n = 2$\nHere are 4 solutions.", None),
        ("#### $x > 0$\nThen", None),
        ("#### \\(n = 2\\)\nHere are 4 solutions.", None),
        ("The final answer will be the sum of the first 10 terms.\n#### 55", "55"),
        ("The final answer must be a multiple of 3.\n#### 12", "12"),
        ("The final answer should be an integer between 0 and 999.", None),
        ("The final answer is in the box below.\n#### 7", "7"),
        ("#### 7.\nLet me know.", "7"),
        ("#### x = 5\nLet me know.", "x = 5"),
        ("The final answer must be A because B is false.", "A"),
        ("Final answer: Expected number of rolls is 6.", "6"),
        ("Final answer: between 7 and 8.", "between 7 and 8"),
        ("Final answer: In the second quadrant.", "In the second quadrant"),
        ("The final answer will be the interval $[0,1]$.", "the interval $[0,1]$"),
        ("The final answer would be the number 42.", "the number 42"),
        ("#### $n = 2$", "$n = 2$"),
        ("#### 42\nSo it is 42.", "42"),
        ("The final answer will be the sum of the two areas.", None),
        ("The final answer should be an integer, so we look for one.", None),
        ("Since the final answer must be a simplified fraction, reduce it.", None),
        ("Remember that the final answer is expected in degrees.", None),
        ("The final answer must be between 0 and 999.", None),
        ("Note that the final answer is not affected by this.", None),
        ("The final answer should be in the form $\\frac{m}{n}$.", None),
        ("The final answer will be 12.", "12"),
        ("The final answer must be A or B", "A or B"),
        ("The final answer is the empty set.", "the empty set"),
        ("so x=3 <th\u0131nk>a</th\u0131nk> and \\boxed{3}", "3"),
        ("the answer is 5", None),
        ("", None),
        (r"\boxed{}", None),
    ],
)
def test_final_answers(text, answer):
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{4}, $\boxed{6}$ \text{ and } \boxed{10}", "4; 6; 10"),
        (r"x = \boxed{2} or x = \boxed{-3}", "2; -3"),
        (r"x = \boxed{2}, y = \boxed{-3}", "-3"),
        (r"\boxed{7} and \boxed{7}", "7"),
        (r"\boxed{8}, no, \boxed{9}", "9"),
        (r"$\boxed7$", "7"),
        (r"$\boxed 17$.", "17"),
        (r"\boxed\frac{1}{2}$", r"\frac{1}{2}"),
        (r"put it in \boxed and stop", None),
        (r"\boxed{5", None),
    ],
)
def test_boxes_in_a_list_and_without_braces(text, answer):
    assert boxed_answer(text) == answer


@pytest.mark.parametrize("grader", [MathGrader(), BoxedIntegerGrader()])
def test_thinking_holds_no_answer(grader, shared):
    case = json.loads(shared("cases/step_split.jsonl").read_text().splitlines()[-1])
    assert grader.extract(case["steps"]) == case["expected_answer"]
    assert [grader.extract(case["steps"][:end]) for end in (0, 1, 2)] == [None] * 3
    steps = [
        "<thinking>a",
        r"\boxed{1}",
        r"</thinking> \boxed{2}",
        "<|begin_of_thought|> \\boxed{3}",
    ]
    assert [grader.extract(steps[:end]) for end in range(1, 5)] == [None, None, "2", None]
    # The prompt has opened the thought.
    assert grader.extract([r"\boxed{1} </think> \boxed{2}"]) == "2"
    # Another closing tag is a part of the thought.
    inside = r"<think> </reasoning> \boxed{9}"
    assert grader.extract([inside]) is None
    assert grader.extract([inside, r"<thought> </think> \boxed{2}"]) == "2"


def test_a_text_that_is_an_answer():
    assert given_answer("the answer is 5.") == "5"
    assert given_answer(r"  \frac12 ") == r"\frac12"
    assert given_answer("first line\nsecond line") is None
    assert given_answer("x" * 2001) is None
    assert given_answer(" \n ") is None
    assert hash_answer("#### 7\n#### 8") == "8"


@pytest.mark.parametrize(
    "piece",
    [
        r"\boxed{1}, ",
        r"\boxed1",
        "<think>",
        "answer is 4, since ",
        r"\boxed{",
        "final answer is ",
        "#### 1\n",
        "####",
        "answer is $",
        " ",
        "*:_",
        r"\boxed{\\",
        "</s>",
        "$$",
    ],
)
def test_extraction_takes_linear_time(piece):
    started = time.perf_counter()
    given_answer(piece * (2_000_000 // len(piece)))
    assert time.perf_counter() - started < 10


# One spelling


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("5.", "5"),
        ("$5$", "5"),
        (r"\(5\)", "5"),
        ("90°", "90"),
        (r"90^{\circ}", "90"),
        ("√2", r"\sqrt{2}"),
        ("√(x+1)", r"\sqrt{x+1}"),
        ("∞", r"\infty"),
        ("2pi", r"2\pi"),
        ("-infinity", r"-\infty"),
        ("log 2", r"\log2"),
        ("sin x", r"\sin x"),
        ("Infinity", r"\infty"),
        ("Raspberry Pi", r"raspberry\pi"),
        ("log2(x)", "log2(x)"),
        (r"\pi spins", r"\pi spins"),
        ("x**2", "x^2"),
        ("2**10", "2^{10}"),
        ("2**(-1/2)", "2^{-1/2}"),
        ("**12** 5", "**12**5"),
        ("½", r"\frac{1}{2}"),
        ("3½", r"3\frac{1}{2}"),
        ("x²³", "x^{23}"),
        ("52₈", "52_8"),
        ("−3", "-3"),
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac 59", r"\frac{5}{9}"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"\text{Evelyn}", "evelyn"),
        (r"\text{(C)}", "C"),
        ("x = 5", "5"),
        ("a_{1} = -2", "-2"),
        ("y = 2x", "y=2x"),
        (r"y = -\frac{3}{2}", r"-\frac{3}{2}"),
        (r"x = 2\sqrt{3}", r"2\sqrt{3}"),
        (r"x = -\theta", r"x=-\theta"),
        (r"x = 2 \cdot 9 = 18", "18"),
        ("P(X=2) = 18", "18"),
        ("x=3 or x=5", "x=3;x=5"),
        ("x<3 or x>5", r"x<3\lor x>5"),
        (r"x>3 \wedge x<5", r"x>3\land x<5"),
        (r"p \lor q", r"p\lor q"),
        ("1, 234", "1;234"),
        (r"864 \mbox{ inches}^2", "864"),
        ("25 square meters per second", "25"),
        (r"\frac{600}{7} km/h", r"\frac{600}{7}"),
        ("16 eggs per day", "16"),
        ("3 million", "3million"),
        ("6m", "6m"),
        ("2ab", "2ab"),
        ("12 xy", "12xy"),
        ("3!", "3!"),
        (r"50\%", "50"),
        (r"\$18.90", "18.90"),
        (r"11,\! 111,\! 100", "11,111,100"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        ("5\0", "5"),
        ("  ", ""),
    ],
)
def test_one_spelling(answer, expected):
    assert canonical(answer) == expected


@given(_texts)
def test_a_canonical_text_is_its_own(text):
    once = canonical(text)
    assert canonical(once) == once


@given(st.text(max_size=60))
def test_any_text_has_a_spelling(text):
    once = canonical(text)
    assert canonical(once) == once
    structure(once)
    plain_number(once)
    depth(once)


@pytest.mark.parametrize(
    "piece", [*_PIECES, "cm ", "cm/", "½ ", r"½\,", "a ", "1 ", ", ", "{}", r"\text{a}", "base 8 "]
)
def test_a_spelling_takes_bounded_time(piece):
    text = (piece * 2000)[:1998]
    for whole in (text, f"1{text}!"):
        started = time.perf_counter()
        structure(canonical(whole))
        assert time.perf_counter() - started < 5


# Plain numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("007", Fraction(7)),
        ("+5", Fraction(5)),
        ("1,234.50", Fraction(2469, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("-3/4", Fraction(-3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"\frac{1.5}{3}", Fraction(1, 2)),
        (r"1\frac{4}{5}", Fraction(9, 5)),
        (r"-1\frac{4}{5}", Fraction(-9, 5)),
        ("1 1/2", Fraction(3, 2)),
        ("52_8", BasedNumber("52", 8)),
        ("-1F_{16}", BasedNumber("-1F", 16)),
        ("0101_2", BasedNumber("101", 2)),
        ("(1,010)_2", BasedNumber("1010", 2)),
        ("10.1_2", BasedNumber("10.1", 2)),
        ("A_1", None),
        (r"-2.1\overline{6}", Fraction(-13, 6)),
        ("1.5million", Fraction(1500000)),
        ("1/0", None),
        (r"1\frac{1}{0}", None),
        ("12,34", None),
        ("1e5", Fraction(100000)),
        ("2.5E-3", Fraction(1, 400)),
        ("1e9999", None),
        ("x", None),
        ("", None),
        ("9" * 1001, None),
    ],
)
def test_plain_numbers(text, value):
    assert plain_number(text) == value


@given(st.fractions())
def test_numbers_come_back(value):
    assert plain_number(rf"\frac{{{value.numerator}}}{{{value.denominator}}}") == value
    assert plain_number(f"{value.numerator}/{value.denominator}") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_exact(value):
    assert plain_number(f"{value:f}") == Fraction(value)
    assert plain_number(f"{value:,f}") == Fraction(value)


# Structure


@pytest.mark.parametrize(
    ("text", "kind", "items"),
    [
        ("1,2", "list", ("1", "2")),
        (r"\{1,2\}", "list", ("1", "2")),
        ("{1,2}", "list", ("1", "2")),
        ("{(1,2);3}", "list", ("(1,2)", "3")),
        ("{1,234}", "one", ("{1,234}",)),
        ("{5}", "one", ("{5}",)),
        ("{1}{2}", "one", ("{1}{2}",)),
        ("{x,y}+{2}", "one", ("{x,y}+{2}",)),
        ("(1,2)", "()", ("1", "2")),
        ("[1,2)", "[)", ("1", "2")),
        ("(1,2),(3,4)", "list", ("(1,2)", "(3,4)")),
        ("(x+1)(x+2)", "one", ("(x+1)(x+2)",)),
        ("(5)", "one", ("5",)),
        ("1,234", "one", ("1,234",)),
        ("(1,234)", "()", ("1", "234")),
        ("(1,234;5)", "()", ("1,234", "5")),
        ("1:2:3", "ratio", ("1", "2", "3")),
        ("1:2", "one", ("1:2",)),
        ("y=2,x=1", "()", ("1", "2")),
        ("x=1,x=2", "list", ("x=1", "x=2")),
        (r"1\mp x", "list", ("1- x", "1+ x")),
        (r"1\pm x", "list", ("1+ x", "1- x")),
        (r"\pm2", "list", ("2", "-2")),
        (r"f(x,y)", "one", ("f(x,y)",)),
        (r"(0,9)\cup(9,36)", "one", (r"(0,9)\cup(9,36)",)),
        ("()", "one", ("()",)),
        ("", "one", ("",)),
    ],
)
def test_structures(text, kind, items):
    assert structure(text) == Structure(kind, items)


def test_a_list_wants_no_thousands():
    assert structure("100,200", separators=False).items == ("100", "200")


@given(st.text(string.ascii_letters + "{}()[]", max_size=30))
def test_depth(text):
    """Against a count over all prefixes."""
    counts = [
        sum(text[:end].count(c) for c in "({[") - sum(text[:end].count(c) for c in ")}]")
        for end in range(len(text) + 1)
    ]
    assert depth(text) == max(counts)


@pytest.mark.parametrize(
    ("text", "symbol"), [("µ", "\\mu"), ("1≠2", "1\\ne2"), ("2x= \u03381", "2x\\ne1"), ("３", "3")]
)
def test_symbols_that_only_normalising_makes_are_known(text, symbol):
    assert canonical(text) == canonical(symbol)


@pytest.mark.parametrize(
    ("text", "readable_text"),
    [
        (r"3\frac{1}{2}x", r"(3+\frac{1}{2})x"),
        ("2(1/3)", r"2\cdot(1/3)"),
        ("(4)(3)(2)", r"(4)\cdot(3)\cdot(2)"),
        (r"\frac{6}{2}(4)", r"\frac{6}{2}\cdot(4)"),
        (r"5\cdot2(3)", r"5\cdot2\cdot(3)"),
        ("x_2(3)", "x_2(3)"),
        ("5'6", None),
        (r"\sin x\cdot\cos x", r"\sin(x)\cdot\cos x"),
        (r"\log_2(8)", r"\log_2(8)"),
        (r"0.333\ldots", None),
        ("1 2 3", None),
        ("10.1_2", None),
        (r"\log_2 3", r"\log_2 3"),
        ("6!!", None),
        ("f'(x)", None),
    ],
)
def test_what_the_grammar_would_misread(text, readable_text):
    assert readable(text) == readable_text


@pytest.mark.parametrize(
    "piece", [r"\alpha", " x", r"2\cdot", "^2", r"\frac{1}{2}", "9 ", "2(", "a"]
)
def test_reading_a_formula_takes_bounded_time(piece):
    started = time.perf_counter()
    readable((r"\sin" + piece * 2000)[:2000])
    assert time.perf_counter() - started < 2
