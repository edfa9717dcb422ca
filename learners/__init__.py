"""Actor, critic and their training: networks, losses, updates, whole runs in the graph."""

from .a2c import A2C
from .awr import AWR
from .episodes import Outcome, make_episodes
from .learner import ALGORITHMS, Learner, LearnerConfig, make_learner
from .losses import actor_loss, clipped_loss, critic_loss, entropy, regression_loss, td_error
from .networks import Network, make_actor, make_critic
from .offline import make_offline
from .policy import legal_log_probs, make_policy
from .ppo import PPO
from .returns import add_terminal_reward, path_returns, question_returns
from .train_config import CATS, OFFLINE, PAPER, TrainConfig
from .training import COLLAPSE_SHARE, has_collapsed, make_train
from .types import Curves, Episode, LearnerState, Metrics, TrainResult

__all__ = [
    "A2C",
    "ALGORITHMS",
    "AWR",
    "CATS",
    "COLLAPSE_SHARE",
    "OFFLINE",
    "PAPER",
    "PPO",
    "Curves",
    "Episode",
    "Learner",
    "LearnerConfig",
    "LearnerState",
    "Metrics",
    "Network",
    "Outcome",
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
