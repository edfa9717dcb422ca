"""The step bank in the graph: an expand function that draws recorded steps of a real policy.

A bank holds a tree for each question. A node is a distinct prefix of steps. It has the children
drawn from it under each sampling setting, every PRM's score of its newest step, and the share of
right completions. A search of a bank replays the policy and the PRM at the speed of a simulation::

    task = bank.reset(tables, key)
    state = search.init(task.root, strategy=strategy, num_candidates=16, max_depth=task.max_depth,
                        context=task.context, capacity=16, depth_capacity=10)
    final, outputs = search.rollout((), task.params, key, state, strategy=strategy,
                                    expand_fn=bank.expander(16))

`task.params` holds the whole bank. The tasks of a batch share it: pass `ENVIRONMENT.axes` as
`expand_axes` to `search.play`. Pass the bank to `jax.jit` as an argument, not in a closure.
"""

from ..loop import Environment
from .expansion import expand as expand
from .expansion import expander as expander
from .expansion import scored_tokens as scored_tokens
from .questions import check_sampling as check_sampling
from .questions import question as question
from .questions import reset as reset
from .types import RIGHT_ANSWER as RIGHT_ANSWER
from .types import UNREADABLE as UNREADABLE
from .types import Bank as Bank
from .types import Replay as Replay

ENVIRONMENT = Environment(reset=reset, expand=expander, axes=Replay(None, 0, 0))
"""The environment that draws questions from a bank; its tables are a `Bank`."""
