"""Stoppers of searches that write path after path: their features, actions and networks."""

from .strategy.learned_stopping import MORE as MORE
from .strategy.learned_stopping import STOP as STOP
from .strategy.learned_stopping import answers_of as answers_of
from .strategy.learned_stopping import network_stopper as network_stopper
from .strategy.stopping_features import STOPPING_FEATURES as STOPPING_FEATURES
from .strategy.stopping_features import Answers as Answers
from .strategy.stopping_features import answer_prefixes as answer_prefixes
from .strategy.stopping_features import stopping_features as stopping_features
