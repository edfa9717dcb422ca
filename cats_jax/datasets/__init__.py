"""Questions and, apart from them, their gold answers: published data sets, files, the world."""

from .loading import count_questions as count_questions
from .loading import load_questions as load_questions
from .loading import read_questions as read_questions
from .published import PUBLISHED as PUBLISHED
from .question_set import QuestionSet as QuestionSet
from .world import world_questions as world_questions
