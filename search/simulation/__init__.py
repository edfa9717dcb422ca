"""A simulator of language model and PRM in the graph, with parameters fitted to samples.

`reset` draws a question; `simulator(capacity)` is the `ExpandFn` for `search.rollout`. The training
of a controller is then one compiled program::

    task = reset(world, key)
    state = search.init(task.root, strategy=strategy, num_candidates=16, max_depth=task.max_depth,
                        context=task.context, capacity=16, depth_capacity=10)
    final, outputs = search.rollout((), task.params, key, state, strategy=strategy,
                                    expand_fn=simulator(16))

`ENVIRONMENT` holds both functions, for batches of searches.
"""

from ..loop import Environment
from .expansion import NUM_KINDS as NUM_KINDS
from .expansion import NUM_POPULAR_ANSWERS as NUM_POPULAR_ANSWERS
from .expansion import NUM_WRONG_TEXTS as NUM_WRONG_TEXTS
from .expansion import POPULAR_EXPONENT as POPULAR_EXPONENT
from .expansion import SCORE_GRID_END as SCORE_GRID_END
from .expansion import expand as expand
from .expansion import simulator as simulator
from .question import from_dict as from_dict
from .question import question as question
from .question import reset as reset
from .question import to_dict as to_dict
from .toy import toy_params as toy_params
from .types import Latent as Latent
from .types import QuestionModel as QuestionModel
from .types import SamplingTables as SamplingTables
from .types import ScoreTables as ScoreTables
from .types import SimulatorParams as SimulatorParams

ENVIRONMENT = Environment(reset=reset, expand=simulator)
"""The environment that draws questions of a world; its tables are `SimulatorParams`."""
