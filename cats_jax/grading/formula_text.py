r"""Formulas as text before latex2sympy parses them: what its grammar would read as another formula.

Its grammar drops signs that it does not know, multiplies numbers side by side, adds 2 and 3 in
(2)(3), and takes all factors behind a function for its argument. Some letters are operators or
constants for it, such as the T of 2^T.
"""

from __future__ import annotations

import re

_UNREAD = re.compile(
    r"\\ldots"  # 0.333...
    r"|(?<![_\d])\b\d+ \d"  # 1 2 3
    r"|(?<![_\d.a-zA-Z])[\d.]+_"  # 10.1_2, 101_b
    r"|!!|\^(?:\w|\{[^{}]*\})\^"
    r"|[a-zA-Z)]'|'\d"  # f'(x), 5'6
    r"|\\(?:land|lor|wedge|vee|approx|equiv)(?![a-zA-Z])"
    r"|[^\x00-\x7f]"  # 3⊗5
)
_MIXED = re.compile(r"(?<![\w.})\\!^])(\d+)(?: (\d+)/(\d+)(?![\w.])|\\frac\{(\d+)\}\{(\d+)\})")
# Also 4(5) in 3\cdot4(5), but not in x_4(5).
_FACTOR = re.compile(
    r"(?:(?<=\\cdot)|(?<=\\times)|(?<![\w.})\\!^]))\d+(?:\.\d+)?(?=\()"
    r"|(?:\(\d+\)|\\frac\{\d+\}\{\d+\})(?=\(?(?:\d|\.\d|\\frac))"
)
# 1/2x is half of x, and 4/3\pi is not 4/(3\pi).
_COEFFICIENT = re.compile(
    r"(?:(?<=\\cdot)|(?<=\\times)|(?<![\w.})\\!^/]))(\d+)/(\d+)(?=[a-zA-Z]|\\(?:pi|sqrt)(?![a-zA-Z]))"
)
# Its operators and constants, and Greek letters that are none. A transposed matrix keeps its T, and
# an integral or a derivative its d.
_STAND_INS = {
    "d": r"\Upsilon ", "I": r"\varpi ", "T": r"\varrho ", "t": r"t\cdot ",
    r"\gamma": r"\omicron ", r"\Gamma": r"\vartheta ",
}  # fmt: skip
_OPERATORS = re.compile(
    r"\\(?:begin|end|operatorname|mathrm)\{[^{}]*\}(?:[)\]]?\^T)?|\\Gamma\(|\\[a-zA-Z]+|[dIT]|t(?=r)"
)
_DIFFERENTIAL = re.compile(r"\\i*int(?![a-zA-Z])|\\frac\{d\w*(?:\^\w+)?\}\{d[a-zA-Z]")
_FUNCTION = r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|exp)h?(?![a-zA-Z])"
_SCRIPT = r"(?:\w|\{[^{}]*\})"
_ARGUMENT = re.compile(
    rf"({_FUNCTION}(?:[_^]{_SCRIPT})*) ?"
    rf"((?:[a-zA-Z\d.]|\^{_SCRIPT}|\\frac\{{[^{{}}]*\}}\{{[^{{}}]*\}}|\\sqrt\{{[^{{}}]*\}}"
    rf"|(?!{_FUNCTION}|\\(?:cdot|times|div|frac|sqrt))\\[a-zA-Z]+(?![a-zA-Z]) ?)+)"
    r"(?=\\(?:cdot|times))"
)


def readable(text: str) -> str | None:
    r"""A canonical formula as the grammar reads it rightly; None if it would drop or add a sign.

    `3\frac{1}{2}x` is 7x/2, 2(1/3) is 2/3, (2)(3) is 6, and `\ln2\cdot\ln3` is the product of two
    logarithms.
    """
    text = _COEFFICIENT.sub(r"\\frac{\1}{\2}", _MIXED.sub(_sum, text))
    if _UNREAD.search(text):
        return None
    text = _ARGUMENT.sub(r"\1(\2)", _FACTOR.sub(r"\g<0>\\cdot", text))
    kept = "d" if _DIFFERENTIAL.search(text) else ""
    return _OPERATORS.sub(
        lambda match: match[0] if match[0] == kept else _STAND_INS.get(match[0], match[0]), text
    )


def _sum(match: re.Match[str]) -> str:
    whole, *parts = match.groups("")
    above, below = parts[0] or parts[2], parts[1] or parts[3]
    return rf"({whole}+\frac{{{above}}}{{{below}}})"
