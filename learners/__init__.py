"""Actor, critic and their training: networks, losses, updates, whole runs in the graph."""

from .losses import actor_loss as actor_loss
from .losses import critic_loss as critic_loss
from .losses import entropy as entropy
from .losses import td_error as td_error
from .networks import Network as Network
from .networks import make_actor as make_actor
from .networks import make_critic as make_critic
from .policy import legal_log_probs as legal_log_probs
from .policy import make_policy as make_policy
from .training import CATS as CATS
from .training import PAPER as PAPER
from .training import Reset as Reset
from .training import TrainConfig as TrainConfig
from .training import add_terminal_reward as add_terminal_reward
from .training import has_collapsed as has_collapsed
from .training import make_train as make_train
from .training import monte_carlo as monte_carlo
from .types import Curves as Curves
from .types import LearnerState as LearnerState
from .types import Metrics as Metrics
from .types import TrainResult as TrainResult
from .updates import Learner as Learner
from .updates import LearnerConfig as LearnerConfig
from .updates import make_learner as make_learner

__all__ = [
    "CATS",
    "PAPER",
    "Curves",
    "Learner",
    "LearnerConfig",
    "LearnerState",
    "Metrics",
    "Network",
    "Reset",
    "TrainConfig",
    "TrainResult",
    "actor_loss",
    "add_terminal_reward",
    "critic_loss",
    "entropy",
    "has_collapsed",
    "legal_log_probs",
    "make_actor",
    "make_critic",
    "make_learner",
    "make_policy",
    "make_train",
    "monte_carlo",
    "td_error",
]
