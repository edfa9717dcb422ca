"""Searches whose outside world is a table, so that three programs can replay the same one.

A `Script` says what child number `row` of tick `tick` looks like and which action the policy
takes. `expand_fn` and `policy` read it in the graph, `host_expand` reads it with numpy, `world`
hands it to the oracle. In the graph nobody tells the tick, but every tick has its own key: the
tables come with the keys of all ticks, and the row is looked up by the key.
"""

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import oracle

import search

CAPACITY = 16
DEPTH_CAPACITY = 5
MAX_ROUNDS = 3  # and of those with one more to ask in, two
SCRIPTED_TICKS = (1 + MAX_ROUNDS) * DEPTH_CAPACITY
MAX_TICKS = CAPACITY * DEPTH_CAPACITY  # of methods that write one path after the other
ROOT = {"id": np.int32(5), "latent": np.zeros((2,), np.float32)}
# Of texts 0 to 3: the first two have the cosine .98, others are at right angles.
VECTORS = np.array([(1.0, 0.0, 0.0), (1.0, 0.203, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 2.0)])
PADDED_VECTORS = np.pad(VECTORS, ((0, 0), (0, search.vectors.VECTOR_SIZE - 3))).astype(np.float32)

ACTIONS = (
    (2, 1, 0.5, 1.0, 0),  # the first action is not always legal
    (0, 1, 1.0, 0.5, 3),
    (0, 2, 0.25, 1.0, 0),
    (1, 1, 1.0, 1.0, 0),
    (3, 3, 0.75, 1.0, 0),
    (4, 2, 1.0, 0.75, 0),
    (8, 4, 1.5, 1.0, 5),
)
RETRY = ACTIONS[3]  # of a node without a valid child
COPY = (1, 1, 0.0, 1.0, 0)  # of the greedy child that the PRM is asked for


class Script(NamedTuple):
    """What happens; every leaf is `[ticks, rows]`."""

    valid: Any
    score: Any
    done: Any
    obeys: Any  # ends the answer when it is asked to
    answer: Any
    text: Any
    num_tokens: Any
    log_prob: Any
    action: Any  # what the policy tries first, per slot


@dataclasses.dataclass(frozen=True)
class Case:
    """One search: its sizes, and the seed and rates of its script."""

    num_candidates: int = CAPACITY
    width: int | None = None
    max_depth: int = DEPTH_CAPACITY
    budget: int | None = None
    seed: int = 0
    p_done: float = 0.2
    p_invalid: float = 0.1
    p_obeys: float = 1.0
    levels: int = 8  # scores are 0..levels in eighths; few levels, many ties
    classes: int = 3
    texts: int = 3
    price: float = 0.1
    prm_features: tuple[float, ...] = (0.25, 0.0)

    @property
    def key(self) -> jax.Array:
        """Key of the whole search."""
        return _key(self.seed)

    @property
    def context(self) -> search.Context:
        """`price` and `prm_features`: two sparsities, and a calibration and a rate or none."""
        total, last_layer, *others = self.prm_features
        calibration, rate = search.Calibration(*others[:6]), others[6:]
        return search.Context(self.price, total, last_layer, calibration, *rate)


PRM_FEATURES = (
    (0.0, 0.0),
    (0.25, 1e-7),
    (1.0, 0.5, -0.5, 0.75, 0.5, 0.0, 0.0, 1.0, 0.0),
    (1.0, 0.5, 0.25, 0.75, 0.0, 0.5, -0.25, 1.5, 4.0),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Sizes at and near their limits; scripts with ties, early ends and invalid candidates."""
    num_candidates = draw(st.integers(1, CAPACITY))
    max_depth = draw(st.integers(1, DEPTH_CAPACITY))
    tight = st.integers(0, num_candidates * max_depth)
    return Case(
        num_candidates=num_candidates,
        width=draw(st.none() | st.integers(1, num_candidates)),
        max_depth=max_depth,
        budget=draw(st.none() | st.sampled_from([0, 1]) | tight),
        seed=draw(st.integers(0, 2**16)),
        p_done=draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])),
        p_invalid=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        p_obeys=draw(st.sampled_from([1.0, 0.5])),
        levels=draw(st.sampled_from([0, 1, 2, 8])),
        classes=draw(st.integers(1, 4)),
        texts=draw(st.integers(1, 4)),
        price=draw(st.sampled_from([0.0, 0.02, 1.0])),
        prm_features=draw(st.sampled_from(PRM_FEATURES)),
    )


# What follows is made once for all strategies, which replay the same cases.


@functools.cache
def _key(seed: int) -> jax.Array:
    return jax.random.key(seed)


@functools.cache
def script(case: Case, capacity: int, exact: bool) -> Script:
    """The tables of a case, padded to `capacity` rows.

    Scores are multiples of 1/8, so that float32 and Python agree on every comparison; with
    `exact` False they are any numbers (and never tie).
    """
    draw = random.Random(case.seed)  # its stream is the same in every version of Python

    def table(value: Callable[[], Any], dtype: type) -> np.ndarray:
        rows = [[value() for _ in range(CAPACITY)] for _ in range(SCRIPTED_TICKS)]
        again = np.tile(np.asarray(rows, dtype), (MAX_TICKS // SCRIPTED_TICKS, 1))
        return np.pad(again, ((0, 0), (0, capacity - CAPACITY)))

    def score() -> float:
        if not exact:
            return 0.05 + 0.95 * draw.random()
        return draw.randint(0, case.levels) / 8

    def log_prob() -> float:
        return -draw.randint(1, 72) / 8 if exact else -0.05 - 3.0 * draw.random()

    return Script(
        valid=table(lambda: draw.random() >= case.p_invalid, bool),
        score=table(score, np.float32),
        done=table(lambda: draw.random() < case.p_done, bool),
        obeys=table(lambda: draw.random() < case.p_obeys, bool),
        answer=table(lambda: draw.randint(-1, case.classes - 1), np.int32),
        text=table(lambda: draw.randint(0, case.texts - 1), np.int32),
        num_tokens=table(lambda: draw.randint(1, 9), np.int32),
        action=table(lambda: draw.randint(0, len(ACTIONS) - 1), np.int32),
        log_prob=table(log_prob, np.float32),
    )


# In the graph


@functools.cache
def params(
    case: Case, capacity: int = CAPACITY, *, exact: bool = True, garbage: bool = True
) -> dict[str, Any]:
    """Parameters of `expand_fn` and of `policy`: the tables, and the keys to read them by."""
    plan_keys, expand_keys = _all_tick_keys(case.key)
    tables = {"script": script(case, capacity, exact), "garbage": np.bool_(garbage)}
    return {"plan_keys": plan_keys, "expand_keys": expand_keys, **jax.device_put(tables)}


@jax.jit
def _all_tick_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    ticks = jnp.arange(MAX_TICKS, dtype=jnp.int32)
    plan_keys, expand_keys = jax.vmap(search.tick_keys, (None, 0))(key, ticks)
    return jax.random.key_data(plan_keys), jax.random.key_data(expand_keys)


def _tick_of(key: jax.Array, keys: jax.Array) -> jax.Array:
    found = jnp.all(keys == jax.random.key_data(key)[None, :], axis=1)
    return jnp.argmax(found).astype(jnp.int32)


def expand_fn(params: Any, key: jax.Array, request: search.Request) -> search.Expansion:
    """The scripted children; rows of padding hold garbage (NaN, too) unless told otherwise."""
    tick = _tick_of(key, params["expand_keys"])
    table = jax.tree.map(lambda leaf: jnp.asarray(leaf)[tick], params["script"])
    rows = jnp.arange(table.valid.shape[0], dtype=jnp.int32)
    upto = jnp.cumsum(request.num_samples, dtype=jnp.int32)
    granted = rows < upto[-1]
    owner = jnp.sum(upto[None, :] <= rows[:, None], axis=1, dtype=jnp.int32)
    parent = jnp.where(granted, owner, 0)
    done = table.done | (request.to_end[parent] & table.obeys)
    number = request.embedding["id"][parent]
    latent = request.embedding["latent"][parent] * 0.5

    def fill(value: jax.Array, garbage: Any, neutral: Any) -> jax.Array:
        padding = jnp.where(
            params["garbage"], jnp.asarray(garbage, value.dtype), jnp.asarray(neutral, value.dtype)
        )
        mask = granted.reshape((-1,) + (1,) * (value.ndim - 1))
        return jnp.where(mask, value, padding)

    signs = jnp.asarray([[1.0, -1.0]], jnp.float32)
    return search.Expansion(
        valid=fill(table.valid, True, False),
        parent=fill(parent, 10**6, 0),
        score=fill(table.score, jnp.nan, 0.0),
        done=fill(done, True, False),
        answer=fill(jnp.where(done, table.answer, -1), 7, -1),
        text=fill(table.text, -9, -1),
        log_prob=fill(table.log_prob, jnp.nan, 0.0),
        num_tokens=fill(table.num_tokens, -1, 0),
        certainty=fill(-table.log_prob, jnp.nan, 0.0),
        vector=fill(jnp.asarray(PADDED_VECTORS)[table.text], jnp.nan, 0.0),
        embedding={
            "id": fill((number * 7 + 31 * tick + rows + 1) % 10007, -1, 0),
            "latent": fill(latent + table.score[:, None] * signs, jnp.nan, 0.0),
        },
    )


def policy(
    params: Any, key: jax.Array, observation: search.cats.Observation
) -> tuple[jax.Array, jax.Array]:
    """Each slot's scripted action, or the next legal one behind it."""
    legal = observation.legal
    slots, actions = observation.features.shape[0], legal.shape[0]
    tick = _tick_of(key, params["plan_keys"])
    first = jnp.asarray(params["script"].action)[tick][:slots]
    order = (first[:, None] + jnp.arange(actions, dtype=jnp.int32)[None, :]) % actions
    place = jnp.argmax(legal[order], axis=1)
    index = jnp.take_along_axis(order, place[:, None], axis=1)[:, 0]
    return index.astype(jnp.int32), -(1.0 + index.astype(jnp.float32)) / 8.0


# On the host


def host_expand(
    case: Case, tick: int, request: search.Request, exact: bool = True
) -> search.Expansion:
    """What a bridge would do: read the request as numpy, answer row by row, fill up the rest."""
    table = script(case, CAPACITY, exact)
    to_end, ids = np.asarray(request.to_end), np.asarray(request.embedding["id"])
    latents = np.asarray(request.embedding["latent"])
    out = search.Expansion(
        valid=np.zeros(CAPACITY, bool),
        parent=np.zeros(CAPACITY, np.int32),
        score=np.zeros(CAPACITY, np.float32),
        done=np.zeros(CAPACITY, bool),
        answer=np.full(CAPACITY, -1, np.int32),
        text=np.full(CAPACITY, -1, np.int32),
        log_prob=np.zeros(CAPACITY, np.float32),
        num_tokens=np.zeros(CAPACITY, np.int32),
        certainty=np.zeros(CAPACITY, np.float32),
        vector=np.zeros((CAPACITY, search.vectors.VECTOR_SIZE), np.float32),
        embedding={
            "id": np.zeros(CAPACITY, np.int32),
            "latent": np.zeros((CAPACITY, 2), np.float32),
        },
    )
    row = 0
    for slot, number in enumerate(np.asarray(request.num_samples).tolist()):
        for _ in range(number):
            score = table.score[tick, row]
            out.valid[row] = table.valid[tick, row]
            out.parent[row] = slot
            out.score[row] = score
            out.done[row] = table.done[tick, row] or (to_end[slot] and table.obeys[tick, row])
            out.answer[row] = table.answer[tick, row] if out.done[row] else -1
            out.text[row] = table.text[tick, row]
            out.num_tokens[row] = table.num_tokens[tick, row]
            out.log_prob[row] = table.log_prob[tick, row]
            out.certainty[row] = -table.log_prob[tick, row]
            out.vector[row] = PADDED_VECTORS[table.text[tick, row]]
            out.embedding["id"][row] = (int(ids[slot]) * 7 + 31 * tick + row + 1) % 10007
            out.embedding["latent"][row] = latents[slot] * 0.5 + np.stack([score, -score])
            row += 1
    return out


# For the oracle


@functools.cache
def world(case: Case, exact: bool = True) -> oracle.World:
    """The script as plain Python functions."""
    table = jax.tree.map(lambda leaf: leaf.tolist(), script(case, CAPACITY, exact))

    def child(tick: int, row: int, parent: dict[str, Any], to_end: bool) -> dict[str, Any]:
        done = table.done[tick][row] or (to_end and table.obeys[tick][row])
        score = table.score[tick][row]
        a, b = parent["embedding"]["latent"]
        return {
            "valid": table.valid[tick][row],
            "score": score,
            "done": done,
            "answer": table.answer[tick][row] if done else -1,
            "text": table.text[tick][row],
            "log_prob": table.log_prob[tick][row],
            "num_tokens": table.num_tokens[tick][row],
            "certainty": -table.log_prob[tick][row],
            "vector": VECTORS[table.text[tick][row]].tolist(),
            "embedding": {
                "id": (parent["embedding"]["id"] * 7 + 31 * tick + row + 1) % 10007,
                "latent": (a * 0.5 + score, b * 0.5 - score),
            },
        }

    def action(
        tick: int, slot: int, legal: list[bool], features: dict[str, float]
    ) -> tuple[int, float]:
        del features
        index = table.action[tick][slot]
        while not legal[index]:
            index = (index + 1) % len(legal)
        return index, -(1 + index) / 8

    return oracle.World(
        child=child,
        action=action,
        offset=functools.partial(_offset, case.seed),
        uniforms=functools.partial(_uniforms, case.seed),
        uniform=functools.partial(_uniform, case.seed),
    )


@functools.cache
def plan_key(seed: int, tick: int) -> jax.Array:
    """Key of a tick's plan in the search of that seed."""
    return search.tick_keys(jax.random.key(seed), tick)[0]


@functools.cache
def _offset(seed: int, tick: int) -> float:
    return float(jax.random.uniform(plan_key(seed, tick), (), jnp.float32))


@functools.cache
def _uniforms(seed: int, tick: int, number: int) -> list[float]:
    draw, _ = jax.random.split(plan_key(seed, tick))
    keys = [jax.random.fold_in(draw, index) for index in range(number)]
    return [float(jax.random.uniform(key, (), jnp.float32)) for key in keys]


@functools.cache
def _uniform(seed: int, tick: int) -> float:
    _, drawing = jax.random.split(plan_key(seed, tick))
    return float(jax.random.uniform(drawing, (), jnp.float32))


# The strategies, each beside the oracle's rules for it


def _cats(
    rounds: int, path_score: str = "min", **options: Any
) -> tuple[search.Strategy, oracle.Rules]:
    config = search.cats.CatsConfig(
        rounds=rounds, path_score=path_score, actions=search.cats.ActionTable(ACTIONS), **options
    )
    rules = oracle.Rules(
        "cats",
        path_score,
        config.vote,
        rounds=rounds,
        num_base=config.num_base,
        actions=ACTIONS,
        excluded=config.excluded_features,
        calibrated=config.calibrated,
        score_base=config.score_base,
        prm_threshold=config.prm_threshold,
        min_prm_weight=config.min_prm_weight,
    )
    return search.cats.cats(policy, config), rules


def _mostly_one_answer(params: Any, features: jax.Array) -> jax.Array:
    """A stopper: after two paths, if one answer has more than .55 of the votes."""
    del params
    named = dict(zip(search.stopping.STOPPING_FEATURES, features, strict=True))
    # Half of log(2) / log(257) is that of one path and a half.
    return (named["first_share"] > 0.55) & (named["log_begun"] > 0.06)


EXACT: dict[str, tuple[search.Strategy, oracle.Rules]] = {
    "greedy": (search.greedy(), oracle.Rules("greedy", vote="majority")),
    "majority": (search.majority(), oracle.Rules("majority", vote="majority")),
    "best_of_n": (search.best_of_n(), oracle.Rules("best_of_n")),
    "best_of_n_weighted": (
        search.best_of_n(vote="weighted", path_score="last"),
        oracle.Rules("best_of_n", "last", "weighted"),
    ),
    "beam": (search.beam(), oracle.Rules("beam")),
    "beam_mean": (
        search.beam(expansion=2, path_score="mean"),
        oracle.Rules("beam", "mean", expansion=2),
    ),
    "dvts": (search.methods.dvts(), oracle.Rules("dvts")),
    "step_level_beam": (
        search.methods.step_level_beam(n_generate_sample=3),
        oracle.Rules("step_level_beam", "last", expansion=3, unique=True),
    ),
    "vg_search": (search.methods.vg_search(), oracle.Rules("vg_search", "last", granularity=2)),
    "lookahead": (
        search.methods.lookahead(lookahead=2, expansion=2),
        oracle.Rules("lookahead", "last", lookahead=2, expansion=2),
    ),
    "particle_filtering": (
        search.methods.particle_filtering(),
        oracle.Rules("particle_filtering", "last"),
    ),
    "particle_filtering_confident": (
        search.methods.particle_filtering(weight_source="confidence", tempering="ess"),
        oracle.Rules("particle_filtering", "last", confident=True, tempering="ess"),
    ),
    "particle_gibbs": (
        search.methods.particle_gibbs(num_iterations=3),
        oracle.Rules("particle_gibbs", "last", expansion=3),
    ),
    "proportional_resampling": (
        search.methods.proportional_resampling(),
        oracle.Rules("proportional_resampling", "last", "weighted"),
    ),
    "rebase": (search.methods.rebase(), oracle.Rules("rebase", "last", "weighted")),
    "dora": (search.methods.dora(), oracle.Rules("dora", "last", "weighted")),
    "mcts": (
        search.methods.mcts(branching=3, max_nodes=96),
        oracle.Rules("mcts", vote="weighted", expansion=3, max_nodes=96),
    ),
    "global_mcts": (
        search.methods.global_mcts(branching=3, max_nodes=30),
        oracle.Rules("global_mcts", "last", "weighted", expansion=3, max_nodes=30),
    ),
    "litesearch": (
        search.methods.litesearch(limit=30),
        oracle.Rules("litesearch", "last", limit=30),
    ),
    "adaptive_consistency": (
        search.methods.adaptive_consistency(confidence=0.8),
        oracle.Rules("adaptive_consistency", vote="majority", enough=0.8),
    ),
    "learned_stopping": (
        search.methods.learned_stopping(_mostly_one_answer, uses_scores=True, path_score="mean"),
        oracle.Rules("learned_stopping", "mean", "weighted", enough=0.55),
    ),
    "early_stopping_consistency": (
        search.methods.early_stopping_consistency(window=3),
        oracle.Rules("early_stopping_consistency", vote="majority", window=3),
    ),
    "speculative_rejection": (
        search.methods.speculative_rejection(memory_tokens=60),
        oracle.Rules("speculative_rejection", "last", memory_tokens=60),
    ),
    "sequential_halving": (
        search.methods.sequential_halving(path_score="mean"),
        oracle.Rules("sequential_halving", "mean"),
    ),
    "deepconf_online": (
        search.methods.deepconf_online(warmup_traces=5, confidence_percentile=75.0, window_size=9),
        oracle.Rules("deepconf_online", vote="certainty", warmup=5, share=0.25, window=9),
    ),
    "sequential_best_of_n": (
        search.methods.sequential_best_of_n(
            stop=0.875, abort=0.5, greedy_first=True, path_score="mean", vote="weighted"
        ),
        oracle.Rules("sequential_best_of_n", "mean", "weighted", enough=0.875, abort=0.5),
    ),
    "cats_one_round": _cats(1),
    "cats_three_rounds": _cats(
        3, "last", vote="weighted", num_base=1, excluded_features=("depth", "gap")
    ),
}
"""With scores that are multiples of 1/8, all numbers that are compared are exact."""

PRODUCT: dict[str, tuple[search.Strategy, oracle.Rules]] = {
    "cats_product": _cats(2, "product", excluded_features=()),
    "cats_calibrated": _cats(2, "product", excluded_features=(), calibrated=True),
    "cats_selective": _cats(
        2, "product", num_base=1, excluded_features=(), calibrated=True, score_base=False
    ),
    "cats_in_doubt": _cats(
        2,
        "product",
        num_base=1,
        base=search.Sampling(temperature=0.0),
        excluded_features=("scored_share", "step_best"),
        calibrated=True,
        score_base=False,
        prm_threshold=0.6,
        min_prm_weight=0.7,
    ),
    "beam_calibrated": (
        search.beam(path_score="product", calibrated=True),
        oracle.Rules("beam", "product", calibrated=True),
    ),
}
"""Of a product the sum of logarithms is compared, which breaks exact ties by rounding."""

STRATEGIES = {**EXACT, **PRODUCT}


# Running them


class Record(NamedTuple):
    """What is compared of a tick beside its state."""

    output: search.StepOutput
    decisions: Any  # DecisionRecord of a CATS search, () of others


class Programs(NamedTuple):
    """The jitted functions of a strategy; a second trace of any of them is an error."""

    rollout: Any  # (params, expand_params, key, state) -> (state, records)
    plan: Any  # (params, key, state) -> plan
    first_memory: Any  # state -> memory of the recorder
    commit: Any  # (memory, state, plan, expansion) -> (state, memory, record)
    answer: Any  # state -> row


@functools.cache
def programs(name: str) -> Programs:
    """Of a strategy by name."""
    strategy, _ = STRATEGIES[name]
    recorder = recorder_of(strategy)

    def commit(memory: Any, state: Any, plan: search.Plan, expansion: search.Expansion) -> Any:
        after, output = search.commit(state, plan, expansion, strategy=strategy)
        memory, record = recorder.record(memory, search.Tick(state, plan, expansion, output, after))
        return after, memory, record

    return Programs(
        rollout=jit_once(rollout_of(name), f"rollout_{name}"),
        plan=jit_once(functools.partial(search.plan, strategy=strategy), f"plan_{name}"),
        first_memory=jit_once(recorder.init, f"first_memory_{name}"),
        commit=jit_once(commit, f"commit_{name}"),
        answer=jit_once(functools.partial(search.answer, (), strategy=strategy), f"answer_{name}"),
    )


@functools.cache
def recorder_of(strategy: search.Strategy) -> search.Recorder:
    """Follows a search as `Record`s, those of CATS with decisions and transitions."""
    if strategy.config is None:
        return search.Recorder(
            init=lambda state: (),
            record=lambda memory, tick: (memory, Record(tick.output, ())),
        )
    decisions = search.cats.decision_recorder(strategy.config.reward.discount)

    def record(memory: Any, tick: search.Tick) -> tuple[Any, Record]:
        memory, recorded = decisions.record(memory, tick)
        return memory, Record(tick.output, recorded)

    return search.Recorder(init=decisions.init, record=record)


def rollout_of(name: str) -> Callable[..., Any]:
    """`(params, expand_params, key, state) -> (state, records)` of a scripted search."""
    strategy, _ = STRATEGIES[name]
    return functools.partial(
        search.rollout, strategy=strategy, expand_fn=expand_fn, recorder=recorder_of(strategy)
    )


def jit_once(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`jax.jit`, but a second trace is an error. Chex tells functions apart by their name."""

    def traced(*args: Any) -> Any:
        return function(*args)

    traced.__name__ = name
    return jax.jit(chex.assert_max_traces(traced, n=1))


def first_state(
    strategy: search.Strategy,
    case: Case,
    capacity: int = CAPACITY,
    frontier_capacity: int | None = None,
) -> search.SearchState:
    """`search.init` for a case, compiled: its hundred small operations take longer one by one."""
    width, budget = (-1 if size is None else size for size in (case.width, case.budget))
    init = _init_of(strategy, capacity, frontier_capacity)
    return init(case.num_candidates, case.max_depth, case.context, width, budget)


@functools.cache
def _init_of(
    strategy: search.Strategy, capacity: int, frontier_capacity: int | None
) -> Callable[..., search.SearchState]:
    """One program, also for a width or a budget of -1, which stands for the default."""

    def init(num_candidates: Any, max_depth: Any, context: Any, width: Any, budget: Any) -> Any:
        begin = functools.partial(
            search.init,
            ROOT,
            strategy=strategy,
            num_candidates=num_candidates,
            max_depth=max_depth,
            context=context,
            capacity=capacity,
            frontier_capacity=frontier_capacity,
            depth_capacity=DEPTH_CAPACITY,
        )
        usual = begin()
        return begin(
            width=jnp.where(width < 0, usual.width, width),
            budget=jnp.where(budget < 0, usual.budget, budget),
        )

    return jax.jit(init)


def run_oracle(rules: oracle.Rules, case: Case, exact: bool = True) -> list[oracle.Tick]:
    """The oracle's search for a case."""
    budget = case.num_candidates * case.max_depth if case.budget is None else case.budget
    return oracle.search(
        rules,
        world(case, exact),
        root={"id": 5, "latent": (0.0, 0.0)},
        num_candidates=case.num_candidates,
        width=rules.width(case.num_candidates) if case.width is None else case.width,
        max_depth=case.max_depth,
        budget=budget,
        price=case.price,
        prm_features=case.prm_features,
        num_ticks=rules.num_phases * rules.num_steps(CAPACITY, DEPTH_CAPACITY),
    )


# Comparing


def on_host(tree: Any) -> Any:
    """Every leaf as an array of numpy, in a fifth of the time of `jax.device_get`."""
    return jax.tree.map(np.asarray, tree)


def assert_same(actual: Any, expected: Any) -> None:
    """Two pytrees: whole numbers and truth values equal, floats to 1e-6."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    leaves = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(leaves, jax.tree.leaves(expected), strict=True):
        assert_equal(jax.tree_util.keystr(path), a, b)


def assert_identical(actual: Any, expected: Any) -> None:
    """Two pytrees, bit for bit."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    leaves = jax.tree_util.tree_leaves_with_path(actual)
    for (path, a), b in zip(leaves, jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def assert_state(state: search.SearchState, rules: oracle.Rules, expected: dict[str, Any]) -> None:
    """Every field of a state against the oracle's, padding included."""
    covered = {"frontier", "pool", "finished", "context", "max_steps", "memory"}
    for name in ("frontier", "pool", "finished"):
        _assert_paths(name, getattr(state, name), expected[name])
    for name in state.__dataclass_fields__.keys() - covered:
        assert_equal(name, getattr(state, name), expected[name])
    assert_equal("max_steps", state.max_steps, expected["max_steps"])
    price, *features = jax.tree.leaves(state.context)
    assert_equal("price", price, expected["price"])
    assert_equal("prm_features", features, expected["prm_features"])
    if rules.kind == "cats":
        slots = state.frontier.valid.shape[0]
        is_open = [expected["open"].get(slot, expected["open_default"]) for slot in range(slots)]
        num_retain = [expected["num_retain"].get(slot, 1) for slot in range(slots)]
        assert_equal("is_open", state.memory.is_open, is_open)
        assert_equal("num_retain", state.memory.num_retain, num_retain)
    elif rules.kind in ("mcts", "global_mcts"):
        _assert_tree(state, expected)
    elif rules.kind == "litesearch":
        nodes = expected["nodes"]
        _assert_paths("nodes", state.memory.paths, [node["path"] for node in nodes])
        _assert_slots("is_open", state.memory.is_open, [node["open"] for node in nodes])
        for name in ("greedy_grows", "greedy_value", "num_grown"):
            assert_equal(name, getattr(state.memory, name), expected[name])
    elif rules.in_turn:
        assert_equal("begun", state.memory.begun, expected["begun"])
        _assert_paths("question", state.memory.root, [expected["question"]])
    elif rules.kind == "early_stopping_consistency":
        for name in ("begun", "before"):
            assert_equal(name, getattr(state.memory, name), expected[name])
        _assert_paths("question", state.memory.root, [expected["question"]])
    elif rules.kind == "sequential_halving":
        _assert_slots("is_arm", state.memory.is_arm, expected["arms"])
        assert_equal("steps_left", state.memory.steps_left, expected["round"])
    elif rules.kind == "deepconf_online":
        bar = expected["bar"]
        assert_equal("is_over", state.memory.is_over, bar is not None)
        assert_equal("bar", state.memory.bar, bar or 0.0)
        lengths = [oracle.tokens_of(path) for path in expected["frontier"]]
        _assert_slots("length", state.memory.length, lengths)
        _assert_paths("question", state.memory.root, [expected["question"]])
    elif rules.kind == "speculative_rejection":
        slots, memory = state.frontier.valid.shape[0], state.memory
        lengths = [oracle.tokens_of(path) for path in expected["frontier"]]
        assert_equal("length", memory.length, lengths + [0] * (slots - len(lengths)))
        ranked = [not gone for gone in expected["unranked"]]
        assert_equal("ranked", memory.ranked, ranked + [False] * (slots - len(ranked)))
    elif rules.kind in ("particle_filtering", "particle_gibbs"):
        if rules.kind == "particle_gibbs":
            assert_equal("iteration", state.memory.iteration, expected["iteration"])
            reference = expected["reference"]
            assert_equal("reference", state.memory.reference.valid[0], reference is not None)
            if reference is not None:
                _assert_paths("reference", state.memory.reference, [reference])
        copies = np.trim_zeros(np.asarray(state.memory.copies), "b")
        assert_equal("copies", copies, np.trim_zeros(np.array(expected["copies"], int), "b"))
    elif rules.kind == "lookahead":
        _assert_paths("waiting", state.memory.candidates, expected["waiting"])
        _assert_slots("row_of_slot", state.memory.row_of_slot, expected["row_of_slot"])
        assert_equal("steps_left", state.memory.steps_left, expected["steps_left"])
    else:
        assert state.memory == ()


def assert_tick(
    plan: search.Plan,
    record: Record,
    before: search.SearchState,
    rules: oracle.Rules,
    tick: oracle.Tick,
) -> None:
    """Request, output and decisions of a tick against the oracle's, which began in `before`."""
    slots = len(tick.num_samples)
    request, output = plan.request, record.output
    assert_equal("active", output.active, tick.active)
    assert_equal("request.num_samples", request.num_samples, output.num_samples)
    _assert_slots("num_samples", output.num_samples, tick.num_samples)
    _assert_ended(output.ended, tick)
    if rules.kind == "cats":
        _assert_decisions(record, request, tick)
    else:
        assert record.decisions == output.report == ()
        assert not any(tick.decided)
        assert not tick.transitions
    if not tick.active:
        return
    assert_equal("to_end", np.asarray(request.to_end)[:slots], tick.to_end)
    assert_equal("scored", np.asarray(request.scored)[:slots], tick.scored)
    assert_equal("request.depth", request.depth, before.frontier.depth)
    assert_same(request.embedding, before.frontier.embedding)
    assert_equal(
        "path_score", np.asarray(output.path_score)[: len(tick.path_scores)], tick.path_scores
    )


def _assert_slots(name: str, actual: Any, expected: list[Any]) -> None:
    """Values of the frontier's slots, and zeros behind them."""
    actual = np.asarray(actual)
    assert_equal(name, actual[: len(expected)], expected)
    assert not actual[len(expected) :].any(), name


def _assert_ended(actual: Any, tick: oracle.Tick) -> None:
    """The parents of the paths that the oracle finished, and of those the end of the search cut."""
    actual, expected = np.asarray(actual), []
    if tick.active and tick.state["phase"] == 0:
        finished = tick.state["finished"]
        expected = finished[len(finished) - tick.state["num_new"] :]
        if oracle.ended(tick.state):
            expected = expected + tick.state["frontier"]
    parents = sorted(path["parent"] for path in expected)
    assert sorted(actual[: len(parents)].tolist()) == parents
    assert set(actual[len(parents) :].tolist()) <= {-1}


def _assert_decisions(record: Record, request: search.Request, tick: oracle.Tick) -> None:
    """Decisions with their rewards, transitions, and what stays pending."""
    decisions = record.decisions
    decision = decisions.decision
    assert_same(decision, record.output.report)
    _assert_slots("decided", decision.valid, tick.decided)
    _assert_slots("reward", decision.reward, tick.reward)
    for slot, expected in enumerate(tick.decisions):
        if expected is not None:
            _assert_decision("decision", decision, slot, expected)
            assert_equal("last_reward", decisions.last_reward[slot], expected["reward"])
            _assert_sampling(request, slot, ACTIONS[expected["action"]])
        elif tick.num_samples[slot] and tick.state["phase"] != 1:  # no base child
            _assert_sampling(request, slot, COPY if tick.asks[slot] else RETRY)
    assert_transitions(decisions.transition, tick.transitions)
    _assert_pending(decisions.pending, tick.state["pending"])


def _assert_sampling(
    request: search.Request, slot: int, action: tuple[int, int, float, float, int]
) -> None:
    chosen = (request.temperature[slot], request.top_p[slot], request.top_k[slot])
    np.testing.assert_array_equal(chosen, action[2:])


def assert_transitions(actual: search.cats.Transition, expected: list[dict[str, Any]]) -> None:
    """The rows of weight 1, in order."""
    weight = np.asarray(actual.weight_t)
    assert set(weight.tolist()) <= {0.0, 1.0}
    rows = np.flatnonzero(weight)
    assert len(rows) == len(expected)
    for row, transition in zip(rows, expected, strict=True):
        assert set(transition) | {"weight_t"} == set(actual.__dataclass_fields__)
        for name, value in transition.items():
            value = feature_row(value) if name.startswith("features") else value
            assert_equal(name, np.asarray(getattr(actual, name))[row], value)


def feature_row(features: dict[str, float] | None) -> list[float]:
    """A feature vector in the order of the code; None is zeros."""
    if features is None:
        return [0.0] * len(search.cats.FEATURE_NAMES)
    assert set(features) == set(search.cats.FEATURE_NAMES)
    return [features[name] for name in search.cats.FEATURE_NAMES]


def _assert_paths(
    name: str, actual: search.Paths, expected: Sequence[dict[str, Any] | None]
) -> None:
    capacity, depth_capacity = actual.step_scores.shape
    columns = oracle.padded(expected, capacity, depth_capacity)
    assert (
        columns.keys() | {"embedding", "certainty", "vector"} == actual.__dataclass_fields__.keys()
    )
    for field, column in columns.items():
        assert_equal(f"{name}.{field}", getattr(actual, field), column)
    filled = list(expected) + [None] * (capacity - len(expected))
    ids = [0 if path is None else path["embedding"]["id"] for path in filled]
    if actual.certainty is not None:
        certainty = [0.0 if path is None else path["certainty"] for path in filled]
        assert_equal(f"{name}.certainty", actual.certainty, certainty)
    if actual.vector is not None:
        vectors = [(0.0, 0.0, 0.0) if path is None else path["vector"] for path in filled]
        assert_equal(f"{name}.vector", np.asarray(actual.vector)[:, :3], vectors)
    latents = [(0.0, 0.0) if path is None else path["embedding"]["latent"] for path in filled]
    assert_equal(f"{name}.embedding.id", actual.embedding["id"], ids)
    assert_equal(f"{name}.embedding.latent", actual.embedding["latent"], latents)


def _assert_pending(actual: search.cats.Decision, expected: list[dict[str, Any] | None]) -> None:
    valid = np.asarray(actual.valid)
    filled = list(expected) + [None] * (len(valid) - len(expected))
    assert_equal("pending.valid", valid, [decision is not None for decision in filled])
    for slot, decision in enumerate(filled):
        if decision is not None:
            _assert_decision("pending", actual, slot, decision)


def _assert_decision(
    name: str, actual: search.cats.Decision, slot: int, expected: dict[str, Any]
) -> None:
    num_extra, num_retain = ACTIONS[expected["action"]][:2]
    expected = {**expected, "num_extra": num_extra, "num_retain": num_retain}
    assert set(expected) | {"valid"} == set(actual.__dataclass_fields__)
    for field, value in expected.items():
        value = feature_row(value) if field == "features" else value
        assert_equal(f"{name}.{field}", np.asarray(getattr(actual, field))[slot], value)


def _assert_tree(state: search.SearchState, expected: dict[str, Any]) -> None:
    tree, nodes = state.memory, expected["tree"]
    _assert_paths("tree", tree.paths, [node["path"] for node in nodes])
    for field, name in (("visits", "visits"), ("value_sum", "value"), ("is_leaf", "leaf")):
        actual = np.asarray(getattr(tree, field))
        assert_equal(f"tree.{field}", actual[: len(nodes)], [node[name] for node in nodes])
        assert not actual[len(nodes) :].any()
    for name in {"completes", "simulates"} & tree.__dataclass_fields__.keys():
        assert_equal(name, getattr(tree, name), expected[name])
    slots = len(expected["node_of_slot"])
    actual = np.asarray(tree.node_of_slot)
    assert_equal("node_of_slot", actual[:slots], expected["node_of_slot"])
    assert not actual[slots:].any()


def assert_equal(name: str, actual: Any, expected: Any) -> None:
    """Whole numbers and truth values equal, floats to 1e-6."""
    actual = np.asarray(actual)
    expected = np.asarray(expected, actual.dtype)
    if np.array_equal(actual, expected):
        return  # what NumPy's own assertions take ten times as long to say
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6, err_msg=name)
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=name)
