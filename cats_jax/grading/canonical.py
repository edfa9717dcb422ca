r"""Canonical spelling of answers, by text replacement without parsing.

Two spellings become the same text only if they are the same answer in any context. Units, currency
and the percent sign are dropped, because the question fixes them: 90^\circ is 90, and 5\% is 5, not
0.05.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from .plain_numbers import plain_number
from .units import TEXT_COMMAND, without_unit

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "⋅": r"\cdot ",
    "·": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/", "√": r"\sqrt ", "∞": r"\infty ",
    "°": r"^\circ ", "º": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ",
    "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "λ": r"\lambda ", "μ": r"\mu ",
    "φ": r"\phi ", "ω": r"\omega ", "σ": r"\sigma ", "∠": r"\angle ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "“": "", "”": "", "’": "'", "′": "'",
    "…": r"\ldots ", "≈": r"\approx ", "ε": r"\epsilon ", "ρ": r"\rho ", "Δ": r"\Delta ",
    "△": r"\triangle ", "η": r"\eta ", "κ": r"\kappa ", "ν": r"\nu ", "ξ": r"\xi ", "τ": r"\tau ",
    "χ": r"\chi ", "ψ": r"\psi ", "ζ": r"\zeta ", "Γ": r"\Gamma ", "Σ": r"\Sigma ", "Φ": r"\Phi ",
    "Ω": r"\Omega ", "≡": r"\equiv ",
}  # fmt: skip
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED_RUN, _LOWERED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
# Two spellings of one sign.
_SAME_SIGN = {
    r"\varnothing": r"\emptyset", r"\varphi": r"\phi", r"\varepsilon": r"\epsilon",
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\dots": r"\ldots", r"\cdots": r"\ldots",
    r"\leqslant": r"\le", r"\geqslant": r"\ge", r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne",
    r"\lt": "<", r"\gt": ">", r"\bigcup": r"\cup", r"\bigcap": r"\cap",
}  # fmt: skip
_SIGN = re.compile(rf"\\(?:{'|'.join(sign[1:] for sign in _SAME_SIGN)})(?![a-zA-Z])")

_SPACING = re.compile(
    r"\\!\s*|(?<!\\)\\[,;: ]|\\(?:q?quad|thinspace|displaystyle|textstyle|limits)(?![a-zA-Z])|~"
)
# `\left.` and `\right.` are invisible; the full stop belongs to them.
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])(?:\s*\.)?")
_FRACTIONS = re.compile(r"\\[dtc](frac|binom)(?![a-zA-Z])")
_PART = r"(\{[^{}]*\}|\d|[a-zA-Z]|\\(?!frac|sqrt|left|text)[a-zA-Z]+)"
_SHORT_FRACTION = re.compile(rf"\\(frac|binom)\s*{_PART}\s*{_PART}")
# TeX would take one digit of \sqrt 50 only, but people mean the number.
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\[\w+\])?\s*(\d+|[a-zA-Z](?![a-zA-Z]))")
_MODULO = re.compile(r"(?:\\pmod ?|\( ?\\?mod ?)(?:\{ ?(\w+) ?\}|(\d+|[a-zA-Z]))(?![\w}]) ?\)?")
_ROOT_PARENTHESES = re.compile(r"\\sqrt\s*\(([^()]*)\)")
_ROOT_NUMBER = re.compile(r"√\s*(\d+(?:\.\d+)?)")
_DEGREE = (
    r"(?:(?:\{\})?\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z])|(?<=\d\d\^)o(?![a-zA-Z])"
    r"|\{\s*\\(?:text|mathrm)\s*\{\s*o\s*\}\s*\})|\\degrees?\b)"
)
_DEGREES = re.compile(rf"{_DEGREE}(?:\s*[CF]$)?")
_ORDINAL = re.compile(
    rf"(?<!\d)(\d+)(?: ?\^ ?\{{? ?(?:{TEXT_COMMAND} ?\{{)? ?)?(st|nd|rd|th) ?\}}*$"
)
# An angle in degrees inside of a formula is a number: \sin 30^\circ is not \sin 30. A plain `sec`
# may be seconds.
_WAVES = re.compile(r"(?:(?<![a-zA-Z])(?:sin|cos|tan|cot|csc)|\\sec)(?![a-zA-Z])")
_ANGLE = re.compile(rf"(?<![\d.])(\d+(?:\.\d+)?)\s*{_DEGREE}")
_CURRENCY = re.compile(r"(?:\bUS ?)?\\?\$|[€£¥₹¢]|\bUSD\b|\\(?:pounds|euro)\b")
_PERCENT = re.compile(r"\\?%")
# Names and powers of plain text, such as `2pi` and `x**2`.
_FUNCTIONS = "(?:arc)?(?:sin|cos|tan)|(?:sin|cos|tan)h|cot|csc|ln|exp|gcd|lcm"
_NAME = re.compile(rf"(?<![\\a-zA-Z])(pi|infinity|log(?!\d)|sqrt|{_FUNCTIONS})(?![a-zA-Z])")
_NAMED = re.compile(rf"{TEXT_COMMAND}\s*\{{\s*({_FUNCTIONS}|sec|log|min|max)\s*\}}")
_POWER = re.compile(
    r"(?<=[\w)\]}])(?:\*\*| \*\* )(?:\(([^()]*)\)|(-?\d+(?:\.\d+)?|[a-zA-Z](?![a-zA-Z])))"
)
_NEGATIVE_POWER = re.compile(r"\^\s*(-\d+(?:\.\d+)?|-[a-zA-Z](?![a-zA-Z]))")
_MARK_BRACES = re.compile(r"(?<![a-zA-Z])\{\s*([,:])\s*\}")
_ROMAN = re.compile(r"\{\s*\\rm(?![a-zA-Z])([^{}]*)\}")
_ROW_GAP = re.compile(r"\\\\\s*\[[^\[\]]*[a-z]{2}\]")
_BLACKBOARD = re.compile(r"\\mathbb\s*([A-Z])(?![a-zA-Z])")
_HALF_OF_DAY = re.compile(rf"(?<=\d)\s*(?:{TEXT_COMMAND}\s*\{{)?\s*([aApP])\.?\s?[mM]\.?\s*\}}?$")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])")
# 2^{3}5 is not 2^35.
_SINGLE_BRACES = re.compile(r"([\^_])\s*\{\s*([0-9a-zA-Z])\s*\}(?!\s*\d)")
# "5 or more" is a range, not a list.
_AND_OR = re.compile(
    rf"(,?\s*(?:{TEXT_COMMAND}\s*\{{\s*(?:and|or)\s*\}}|\b(?:and|or)\b(?! (?:more|less|fewer)\b)"
    r"|\\(?:land|wedge|lor|vee)(?![a-zA-Z]))\s*)"
)
_NAMES = re.compile(r"(?<![a-zA-Z\\])(\\?[a-zA-Z]+) ?=")
OR = re.compile(r"\bor\b|\\(?:lor|vee)")
"""What separates two alternatives."""

_LONGEST_NUMBER = 200
_NAMED_VALUE = re.compile(r"[\s$]*(\\?[a-zA-Z]+(?:_\{?\w+\}?)?)\s*=(?!=)")
_SIGN_OF_ORDER = r"(?:[<>]|\\[lg]e(?![a-zA-Z]))"
_NO_VALUE = re.compile(rf"{_SIGN_OF_ORDER}|\\ne(?![a-zA-Z])")
_RELATION = re.compile(rf"=|{_NO_VALUE.pattern}")
# 4m for any integer m; 2n+1, where n is an integer; k\pi, k \in \mathbb{Z}; k\pi (k \in \mathbb{Z})
_QUALIFICATION = re.compile(
    rf"(?<=\S)(?:,? ?{TEXT_COMMAND} ?\{{ ?,?|,| ) ?(?:"
    r"(?:for|where|with) (?:any|all|every|each|some)\b"
    rf"|(?:for|where|with) ?\}}? ?\$?[a-zA-Z]\$? ?(?:{TEXT_COMMAND} ?\{{ ?)?(?:is )?(?:an?|any) "
    r"|(?:(?<=,)|(?<=, )|(?:for|where|with) ?\}? ?)\$?[a-zA-Z] ?\\in ?\\mathbb ?\{?[A-Z]).*$"
    r"|(?<=\S) ?\([a-zA-Z] ?\\in ?\\mathbb ?\{?[A-Z]\}?\)$"
)
_TEXT = re.compile(rf"{TEXT_COMMAND}\s*\{{([^{{}}]*)\}}")
_WRAPPER = re.compile(rf"(?:\\(?:boxed|fbox|underline)|{TEXT_COMMAND})\s*\{{")
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_BASE_IN_WORDS = re.compile(
    rf"_\s*\{{?\s*(?:{TEXT_COMMAND}\s*\{{)?\s*(?:base\s*\}}?\s*)?(\d+|{'|'.join(_BASES)})\s*\}}*$"
    rf"|(?<=[\dA-F)])\s*\(?(?:{TEXT_COMMAND}\s*\{{)?\s*(?:in\s+)?\bbase\s*\}}?\s*"
    rf"(\d+|{'|'.join(_BASES)})\s*\}}?\)?$"
)
_ARGUMENT = r"(?:\((?:-?[\w, ]*|-?\\frac\{\d+\}\{\d+\})\)|(?<=P)\([^()]*\)|(?<=\\Pr)\([^()]*\))"
_LEFT_SIDE = rf"(?:\\?[a-zA-Z]+'*(?:_(?:\{{[^{{}}]*\}}|\w))?{_ARGUMENT}?)?\s*"
_ASSIGNMENT = re.compile(
    rf"(?:{_LEFT_SIDE}=(?!=)|(?!(?:\\pi|e)(?![a-zA-Z])){_LEFT_SIDE}\\approx(?![a-zA-Z]))\s*(?=[^=]+$)"
)
# (x,y)=(1,2)
_GREEK = (
    r"\\(?:alpha|beta|gamma|[dD]elta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|rho|[sS]igma|tau"
    r"|[pP]hi|chi|psi|[oO]mega|Gamma)(?![a-zA-Z])"
)
_POINT = re.compile(
    rf"\(((?:[a-zA-Z]|{_GREEK})(?:,(?:[a-zA-Z]|{_GREEK}))+)\)"
    r"(?:=(?=\(.*\)$)|\\in(?=\\\{.*\}$))"
)
_NO_NUMBER = re.compile(rf"[,;&]|{_RELATION.pattern}")
_SET_BUILDER = re.compile(
    r"\\\{([a-zA-Z](?:_\w)?)(?:\\in\\mathbb\{R\})?(?:\\mid ?|[|:])"
    r"((?:[^:;\\]|\\(?=[a-zA-Z]))*)\\\}"
)
_MEANINGS = {
    r"\mathbb{R}": r"(-\infty,\infty)", "all real numbers": r"(-\infty,\infty)",
    "all reals": r"(-\infty,\infty)", "empty set": r"\emptyset",
}  # fmt: skip
# The largest and the smallest of a set are those of its numbers.
_OF_A_SET = re.compile(r"(\\(?:max|min|gcd|lcm))\\\{([^{}\\]*)\\\}")
_END = r"(?:[^()\[\],]|\([^()]*\))*"
_PAIR = rf"[(\[]{_END},{_END}[)\]]"
_UNION_LETTER = re.compile(rf"({_PAIR}) ?U ?(?={_PAIR})")
_TIMES_TEN = re.compile(r"(?<=\d) x (?=10\s*\^)")
_MEMBERSHIP = re.compile(r"[a-zA-Z]\s*\\in(?![a-zA-Z])\s*(?=\S)")
_CHOICE = re.compile(r"(?:(?:[oO]ption|[cC]hoice) ?)?[(\[]?([A-Z])[)\]]?")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# SAS, HT, IV, and orders such as BCA; two other capitals are a product, such as AB.
_CAPITALS = re.compile(r"[SAHLRT]{2}|[IVX]{2}|(?:\\angle )?[A-Z]{3,}")
# The angle ABC is the angle CBA.
_ANGLE_NAME = re.compile(r"\\angle ([A-Z])([A-Z])([A-Z])(?![a-zA-Z])")
_TIME = re.compile(r"\d{1,2}(?::[0-5]\d)(?:[ap]m)?|\d{1,2}[ap]m")
_EARLY = re.compile(r"^0(?=\d:[0-5]\d)")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d)")
# An argument of a command and a side of an inequality hold no list.
_ONE_NUMBER = re.compile(
    rf"(?:[a-zA-Z}}\]^]\{{|{_SIGN_OF_ORDER}) ?-?\d{{1,3}}(?:,\d{{3}})+(?!,?\d|{_SIGN_OF_ORDER})"
    rf"|(?:^|;|\\land|\\lor)-?\d{{1,3}}(?:,\d{{3}})+(?={_SIGN_OF_ORDER})"
)
_ANY_SPACE = re.compile(r",\s+")
_LIST_SPACE = re.compile(r"(?<=\d),\s+(?=\d{3}(?!\d))")
_INNER_SPACE = re.compile(r"(?<![a-zA-Z0-9])\s+|\s+(?![a-zA-Z0-9])")
_COMMAND_SPACE = re.compile(r"(\\[a-zA-Z]+) (?=\d)|(?<=\d) (?=[a-zA-Z])")
_NO_VARIABLE = re.compile(rf"(?!{_GREEK})\\[a-zA-Z]+|(?<![a-zA-Z])[ei](?![a-zA-Z])")
_LETTER = re.compile("[a-zA-Z]")
# 9+9=18, whether the calculation is right or not; neither 0=0 nor 3=5
_CALCULATION = re.compile(
    r"(?=\\|.+[-+*/\\!^])(?:[-+*/^!(){}\d.,]|\\(?:times|cdot|div|frac|sqrt|binom)(?![a-zA-Z]) ?)+"
)
# ad-bc and a b c are formulas, one-to-one is none.
_WORD = re.compile(
    r"(?=[a-zA-Z' ]*$|.*[a-zA-Z]{4}|.*-(?:to|by|of|in|and|or)-)(?=.*[a-zA-Z]{3})"
    r"[a-zA-Z][a-zA-Z' \-]{3,}",
    re.DOTALL,
)
# Shorter words are products of variables, except for these.
_SHORT_WORDS = frozenset(("yes", "no", "odd", "all"))
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_ENDS = ".,;:"


def canonical(answer: str) -> str:
    r"""The canonical spelling of an answer, "" if nothing remains.

    The caller bounds the length of the text.
    """
    if _DIGITS.fullmatch(answer):
        return answer
    text = _plain_characters(answer)
    # A round may uncover something that the next round can remove: `$5\text{ cm}.$`
    for _ in range(4):
        before = text
        text = _one_round(text)
        if text == before:
            break
    text = text.lower() if _WORD.fullmatch(text) or text.lower() in _SHORT_WORDS else text
    return _MEANINGS.get(text, text)


def are_forms_of_one_number(first: str, second: str) -> bool:
    r"""Whether two texts are different forms of one number, such as \frac12 and 0.5."""
    if max(len(first), len(second)) > _LONGEST_NUMBER:
        return False
    names = [match and match[1] for match in map(_NAMED_VALUE.match, (first, second))]
    if None not in names and names[0] != names[1]:
        return False
    first, second = (_NAMED_VALUE.sub("", text) for text in (first, second))
    if "=" in first + second:
        return False
    one, two = canonical(first), canonical(second)
    number = plain_number(one)
    return one != two and number is not None and number == plain_number(two)


def is_word(text: str) -> bool:
    """Whether a canonical text consists of words, not mathematics, such as `even` or `SAS`."""
    return bool(_WORD.fullmatch(text) or _CAPITALS.fullmatch(text) or text.lower() in _SHORT_WORDS)


def has_variable(text: str) -> bool:
    """Whether a canonical text has a letter that stands for a number, other than e and i."""
    return _LETTER.search(_NO_VARIABLE.sub(" ", text)) is not None


def ungrouped(text: str) -> str:
    r"""A canonical text without thousands separators: 1,200x as 1200x; a set \{1,200\} stays."""
    if text.startswith(r"\{"):
        return text
    return _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)


def is_time(text: str) -> bool:
    """Whether a canonical text may be a time, such as 3:45, 3:45pm or 3pm."""
    return _TIME.fullmatch(text) is not None


def _one_round(text: str) -> str:
    # Each run of blanks becomes one, so that no pattern can try many ways to divide a run.
    text = " ".join(_unwrapped(text).split())
    text = _SPACING.sub(lambda match: "" if match[0].startswith(r"\!") else " ", text)
    text = " ".join(text.split())
    text = _SIZES.sub("", text)
    text = _FRACTIONS.sub(r"\\\1", text)
    text = _MARK_BRACES.sub(r"\1", text)
    text = _TIMES_TEN.sub(r"\\times ", _UNION_LETTER.sub(r"\1\\cup ", text))
    text = _BLACKBOARD.sub(r"\\mathbb{\1}", _ROW_GAP.sub(r"\\\\", text))
    text = _ROMAN.sub(r"\\mathrm{\1}", text).replace(r"\{\}", r"\emptyset ")
    text = _EARLY.sub("", _HALF_OF_DAY.sub(lambda match: f" {match[1].lower()}m", text))
    text = _BASE_IN_WORDS.sub(_base, text)
    text = _without_qualification(text)
    text = _connected(text)
    if _WAVES.search(text):
        text = _ANGLE.sub(r"(\\frac{\1\\pi}{180})", text)
    text = _ORDINAL.sub(_without_ending, _DEGREES.sub(" ", text))
    text = _CURRENCY.sub("", text)
    text = _PERCENT.sub("", text)
    text = without_unit(text)
    text = _TEXT.sub(lambda match: match[1], _NAMED.sub(r"\\\1 ", text))
    # Words have no case, and so have names in them.
    if match := _CHOICE.fullmatch(text):
        return match[1]
    text = _NAME.sub(_command, text.lower() if _WORD.fullmatch(text) else text)
    if not text.startswith("**"):  # emphasis
        text = _POWER.sub(lambda match: f"^{{{match[1] or match[2] or ''}}}", text)
    text = _NEGATIVE_POWER.sub(r"^{\1}", text)
    text = _SHORT_FRACTION.sub(_braced_fraction, text)
    text = _MODULO.sub(lambda match: rf"\pmod{{{match[1] or match[2]}}}", text)
    text = _ROOT_PARENTHESES.sub(r"\\sqrt{\1}", text)
    text = _SHORT_ROOT.sub(lambda match: rf"\sqrt{match[1] or ''}{{{match[2]}}}", text)
    text = " ".join(_SINGLE_BRACES.sub(r"\1\2", text).split())
    text = _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)
    text = (_ANY_SPACE if _THOUSANDS.search(text) else _LIST_SPACE).sub(";", text)
    text = _COMMAND_SPACE.sub(lambda match: match[1] or "", _INNER_SPACE.sub("", text))
    text = _ONE_NUMBER.sub(lambda match: match[0].replace(",", ""), text)
    text = _OF_A_SET.sub(r"\1(\2)", _ANGLE_NAME.sub(_with_sorted_ends, text))
    builder = _SET_BUILDER.fullmatch(text)
    if builder and all(map(_RELATION.search, builder[2].split(","))):
        text = builder[2]
    text = _MEMBERSHIP.sub("", text, count=1) if _MEMBERSHIP.match(text) else text
    text = _without_assignment(text.strip().rstrip(_ENDS).strip())
    # An accent that was after a blank is now after a letter, or strikes an equals sign through.
    return text if text.isascii() else _plain_characters(text)


def _with_sorted_ends(angle: re.Match[str]) -> str:
    first, last = sorted((angle[1], angle[3]))
    return rf"\angle {first}{angle[2]}{last}"


def _plain_characters(text: str) -> str:
    text = _ROOT_NUMBER.sub(r"\\sqrt{\1}", text)
    # An ellipsis is no full stop: 0.333... is not 0.333.
    for plain, sign in (("...", r"\ldots "), ("<=", r"\le "), (">=", r"\ge "), (r"\not=", r"\ne ")):
        text = text.replace(plain, sign)
    text = _SIGN.sub(lambda match: _SAME_SIGN[match[0]], text)
    text = _RAISED_RUN.sub(lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = _LOWERED_RUN.sub(lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    # Normalising may create one of `_SYMBOLS`, for example from a micro sign, or from an equals
    # sign and a stroke through it.
    text = unicodedata.normalize("NFKC", "".join(map(_plain_character, text)))
    return "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if unicodedata.category(character) == "No" and "VULGAR" in unicodedata.name(character, ""):
        value = Fraction(unicodedata.numeric(character)).limit_denominator(100)
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    return " " if unicodedata.category(character) in ("Cc", "Cf", "Zs") else character


def _unwrapped(text: str) -> str:
    text = text.strip().rstrip(_ENDS).strip()
    for opening, closing in _DELIMITERS:
        if text.startswith(opening) and text.endswith(closing):
            inside = text[len(opening) : -len(closing)]
            if len(text) >= len(opening) + len(closing) and opening not in inside:
                return inside.strip()
    match = _WRAPPER.match(text)
    if match and text.endswith("}") and _closes_at_end(text, match.end()):
        return text[match.end() : -1].strip()
    return text


def _closes_at_end(text: str, start: int) -> bool:
    """Whether the group whose content begins at `start` ends with the text."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position == len(text) - 1
    return False


def _base(match: re.Match[str]) -> str:
    base = match[1] or match[2]
    return f"_{{{_BASES.get(base, base)}}}"


def _without_qualification(text: str) -> str:
    """Drop a remark that a variable is arbitrary; a condition on it belongs to the answer."""
    match = _QUALIFICATION.search(text)
    if match is None or _RELATION.search(match[0]):
        return text
    head = text[: match.start()]
    return head if _is_balanced(head) else text


def _is_balanced(text: str) -> bool:
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))


def _connected(text: str) -> str:
    r"""With `;` for "and" and "or", but `\land` and `\lor` between statements like x<1 and x\ne2.

    Also `\lor` in `x=1 or y=2`, which is no point.
    """
    pieces, has_order = _AND_OR.split(text), _NO_VALUE.search(text)
    if len(pieces) == 3 and OR.search(pieces[1]) and are_forms_of_one_number(*pieces[::2]):
        return pieces[0]
    if len(set(_NAMES.findall(text))) > 1 and "," not in text:
        has_order = has_order or all(map(OR.search, pieces[1::2]))
    for place in range(1, len(pieces), 2):
        beside = pieces[place - 1], pieces[place + 1]
        if has_order and all(map(_RELATION.search, beside)):
            pieces[place] = r" \lor " if OR.search(pieces[place]) else r" \land "
        elif not pieces[place].lstrip(", ").startswith((r"\l", r"\w", r"\v")):
            pieces[place] = ";"
    return "".join(pieces)


def _without_ending(match: re.Match[str]) -> str:
    """21^{st} is 21; 2^{st} is a power."""
    number, ending = match[1], match[2]
    teen = number[-2:-1] == "1"
    right = "th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    return number if ending == right else match[0]


def _command(match: re.Match[str]) -> str:
    return r"\infty" if match[1] == "infinity" else rf"\{match[1]}"


def _braced_fraction(match: re.Match[str]) -> str:
    name, *parts = match.groups()
    above, below = (part if part.startswith("{") else f"{{{part}}}" for part in parts)
    return rf"\{name}{above}{below}"


def _without_assignment(text: str) -> str:
    r"""`x = 5` is 5, and so are `f(1) = 5`, `a_1 = 5` and `2 + 3 = 5`; `y = 2x` stays as it is.

    The exact value of `\frac{1}{3}\approx0.33` is the answer, not the rounded one behind it.
    """
    if match := _POINT.match(text):
        names = [name.removeprefix("\\") for name in match[1].split(",")]
        # A point lists its coordinates in the order of their names.
        return text.replace(match[0], "") if names == sorted(set(names)) else text
    exact, _, rounded = text.partition(r"\approx")
    value = _RELATION.split(exact)[-1]
    if value and rounded and _is_balanced(exact) and not _NO_NUMBER.search(ungrouped(rounded)):
        text = text if has_variable(f"{value} {rounded}") else exact.rstrip()
    *steps, value = text.split("=")
    if len(steps) == 1 and steps[0] != value:
        # 0.25 = 1/4 is one number in two forms; 1 = 1 is a statement.
        one, two = plain_number(steps[0]), plain_number(value)
        if one is not None and one == two:
            return value
    if steps and not has_variable(value):
        while steps and _CALCULATION.fullmatch(steps[-1]) and _is_balanced(steps[-1]):
            steps.pop()
        text = "=".join([*steps, value])
    match = _ASSIGNMENT.match(text)
    if match is None or has_variable(text[match.end() :]):
        return text
    return text[match.end() :]
