"""Grading of mathematical answers: extraction, normalisation, and comparison within limits.

math-verify compares the answers that text and exact numbers can't decide. It belongs to the extra
`eval` (`pip install 'cats-jax[eval]'`), and only the worker processes import it.
"""

from .extraction import final_answer as final_answer
from .extraction import given_answer as given_answer
from .extraction import hash_answer as hash_answer
from .math_grader import Grade as Grade
from .math_grader import MathGrader as MathGrader
