"""Question sets from published data sets, files or the embedded world; gold answers stay apart."""

from .loading import count_questions as count_questions
from .loading import load_questions as load_questions
from .loading import read_questions as read_questions
from .loading import survey as survey
from .published import PUBLISHED as PUBLISHED
from .question_set import QuestionSet as QuestionSet
from .world import world_questions as world_questions
