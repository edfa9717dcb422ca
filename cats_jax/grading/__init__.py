"""Grading of mathematical answers: found in texts, brought to one spelling, compared within limits.

math-verify does the comparing that text and exact numbers can't decide; it is an extra
(`pip install 'cats-jax[eval]'`), and only the worker processes import it.
"""

from .extraction import final_answer, given_answer, hash_answer
from .judge import Grade, MathJudge

__all__ = ["Grade", "MathJudge", "final_answer", "given_answer", "hash_answer"]
