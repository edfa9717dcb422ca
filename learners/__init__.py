"""Actor, critic and their training: networks, losses, updates, whole runs in the graph."""

from .episodes import Expander as Expander
from .episodes import Outcome as Outcome
from .episodes import Reset as Reset
from .episodes import make_episodes as make_episodes
from .losses import actor_loss as actor_loss
from .losses import clipped_loss as clipped_loss
from .losses import critic_loss as critic_loss
from .losses import entropy as entropy
from .losses import regression_loss as regression_loss
from .losses import td_error as td_error
from .networks import Network as Network
from .networks import make_actor as make_actor
from .networks import make_critic as make_critic
from .offline import make_offline as make_offline
from .policy import legal_log_probs as legal_log_probs
from .policy import make_policy as make_policy
from .returns import add_terminal_reward as add_terminal_reward
from .returns import path_returns as path_returns
from .returns import question_returns as question_returns
from .training import CATS as CATS
from .training import COLLAPSE_SHARE as COLLAPSE_SHARE
from .training import OFFLINE as OFFLINE
from .training import PAPER as PAPER
from .training import TrainConfig as TrainConfig
from .training import has_collapsed as has_collapsed
from .training import make_train as make_train
from .types import Curves as Curves
from .types import Episode as Episode
from .types import LearnerState as LearnerState
from .types import Metrics as Metrics
from .types import TrainResult as TrainResult
from .updates import Learner as Learner
from .updates import LearnerConfig as LearnerConfig
from .updates import make_learner as make_learner

__all__ = [
    "CATS",
    "COLLAPSE_SHARE",
    "OFFLINE",
    "PAPER",
    "Curves",
    "Episode",
    "Expander",
    "Learner",
    "LearnerConfig",
    "LearnerState",
    "Metrics",
    "Network",
    "Outcome",
    "Reset",
    "TrainConfig",
    "TrainResult",
    "actor_loss",
    "add_terminal_reward",
    "clipped_loss",
    "critic_loss",
    "entropy",
    "has_collapsed",
    "legal_log_probs",
    "make_actor",
    "make_critic",
    "make_episodes",
    "make_learner",
    "make_offline",
    "make_policy",
    "make_train",
    "path_returns",
    "question_returns",
    "regression_loss",
    "td_error",
]
