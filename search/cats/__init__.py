"""Compute-aware tree search: its configuration, controller interface, features, actions, reward."""

from .actions import ACTION_TABLES as ACTION_TABLES
from .actions import ActionTable as ActionTable
from .actions import action_table as action_table
from .config import CATS as CATS
from .config import CATS_TOKENS as CATS_TOKENS
from .config import PAPER as PAPER
from .config import SELECTIVE as SELECTIVE
from .config import CatsConfig as CatsConfig
from .features import FEATURE_NAMES as FEATURE_NAMES
from .features import FEATURES as FEATURES
from .features import FeatureSet as FeatureSet
from .policies import Policy as Policy
from .policies import RuleParams as RuleParams
from .policies import constant_policy as constant_policy
from .policies import random_policy as random_policy
from .policies import sample_while_below as sample_while_below
from .reward import RewardFn as RewardFn
from .reward import RewardWeights as RewardWeights
from .reward import step_reward as step_reward
from .search import cats as cats
from .transitions import decision_recorder as decision_recorder
from .types import Action as Action
from .types import Decision as Decision
from .types import Observation as Observation
from .types import Transition as Transition
