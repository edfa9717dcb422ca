"""Actor, critic and their training: networks, losses, updates, and training runs in the graph."""

__distribution__ = "cats-jax"

from .a2c import A2C as A2C
from .awr import AWR as AWR
from .episodes import Outcome as Outcome
from .episodes import make_episodes as make_episodes
from .learner import ALGORITHMS as ALGORITHMS
from .learner import Learner as Learner
from .learner import LearnerConfig as LearnerConfig
from .learner import make_learner as make_learner
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
from .ppo import PPO as PPO
from .returns import add_terminal_reward as add_terminal_reward
from .returns import path_returns as path_returns
from .returns import question_returns as question_returns
from .train_config import CATS as CATS
from .train_config import CATS_TOKENS as CATS_TOKENS
from .train_config import CLONE as CLONE
from .train_config import OFFLINE as OFFLINE
from .train_config import PAPER as PAPER
from .train_config import SELECTIVE as SELECTIVE
from .train_config import TrainConfig as TrainConfig
from .train_loop import COLLAPSE_SHARE as COLLAPSE_SHARE
from .train_loop import TrainLoop as TrainLoop
from .train_loop import has_collapsed as has_collapsed
from .train_loop import make_train as make_train
from .train_loop import make_train_loop as make_train_loop
from .types import Curves as Curves
from .types import Episode as Episode
from .types import LearnerState as LearnerState
from .types import Metrics as Metrics
from .types import TrainResult as TrainResult
from .update_fns import UpdateFns as UpdateFns
from .update_fns import make_update_fns as make_update_fns
