"""The step bank in the graph: an expand function that draws recorded steps of a real policy.

A bank holds trees of questions: every distinct prefix that was sampled is a node, with the draws
its parent gave under each sampling setting, every PRM's score, and how often completions from it
are right. Searching it replays the real policy and PRM at the speed of a simulation::

    expand_params, root, prm_features, max_depth, answer = bank.reset(tables, key)
    state = search.init(root, strategy=strategy, num_candidates=16, max_depth=max_depth,
                        prm_features=prm_features, capacity=16, depth_capacity=10)
    final, outputs = search.rollout((), expand_params, key, state, strategy=strategy,
                                    expand_fn=bank.expander(16))

`expand_params` holds the whole bank: call `reset` or `question` inside the `jax.vmap` over
searches, where the bank stays one array for all of them, and hand the bank to `jax.jit` as an
argument.
"""

from .expansion import expand as expand
from .expansion import expander as expander
from .expansion import node_value as node_value
from .expansion import scored_tokens as scored_tokens
from .questions import check_actions as check_actions
from .questions import check_sampling as check_sampling
from .questions import question as question
from .questions import reset as reset
from .types import RIGHT_ANSWER as RIGHT_ANSWER
from .types import Bank as Bank
from .types import Replay as Replay
