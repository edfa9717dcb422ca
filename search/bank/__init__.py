"""The step bank in the graph: an expand function that draws recorded steps of a real policy.

A bank holds trees of questions: every distinct prefix that was sampled is a node, with the draws
its parent gave under each sampling setting, every PRM's score, and how often completions from it
are right. Searching it replays the real policy and PRM at the speed of a simulation::

    task = bank.reset(tables, key)
    state = search.init(task.root, strategy=strategy, num_candidates=16, max_depth=task.max_depth,
                        context=task.context, capacity=16, depth_capacity=10)
    final, outputs = search.rollout((), task.params, key, state, strategy=strategy,
                                    expand_fn=bank.expander(16))

`task.params` holds the whole bank. A batch of tasks shares it: `ENVIRONMENT.axes` says so to
`search.play`. Hand the bank to `jax.jit` as an argument.
"""

from ..loop import Environment
from .expansion import expand as expand
from .expansion import expander as expander
from .expansion import scored_tokens as scored_tokens
from .questions import check_sampling as check_sampling
from .questions import question as question
from .questions import reset as reset
from .types import RIGHT_ANSWER as RIGHT_ANSWER
from .types import Bank as Bank
from .types import Replay as Replay

ENVIRONMENT = Environment(reset=reset, expand=expander, axes=Replay(None, 0))
"""Questions of a bank; its tables are a `Bank`."""
