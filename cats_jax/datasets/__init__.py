"""Questions and, apart from them, their gold answers: published data sets, files, the world."""

from .loading import count_questions, load_questions, read_questions
from .published import PUBLISHED
from .question_set import QuestionSet
from .world import world_questions

__all__ = [
    "PUBLISHED",
    "QuestionSet",
    "count_questions",
    "load_questions",
    "read_questions",
    "world_questions",
]
