"""A slow, obvious search in plain Python: what `search` must do, written from the design alone.

Nothing here is imported from the code it checks. Paths are dictionaries, sets of paths are lists
without padding, every choice is a `sorted` with its key written out. Numbers are Python floats:
the scripts of the tests use scores that are multiples of 1/8, whose minima, sums and comparisons
are exact in float32 as well; where they are not, the tests say with which tolerance they compare.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

NUM_SORTED_SCORES = 16
NO_CALIBRATION = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]  # the last one is the rate of PRM tokens


_RESAMPLED = ("particle_filtering", "proportional_resampling")
_WHOLE = ("majority", "best_of_n", "speculative_rejection", "sequential_halving")
_STAGED = ("early_stopping_consistency", "deepconf_online")
_BLIND = (
    "greedy",
    "majority",
    "adaptive_consistency",
    "early_stopping_consistency",
    "deepconf_online",
)
"""Kinds for which every score is 0."""

_WIDE = (*_WHOLE, "rebase", "dora", "litesearch", "global_mcts", *_STAGED, *_RESAMPLED)


@dataclasses.dataclass(frozen=True)
class Rules:
    """A strategy, as data.

    Attributes:
        kind: greedy, majority, best_of_n, beam, dvts, particle_filtering, proportional_resampling,
            particle_gibbs, step_level_beam, vg_search, lookahead, rebase, dora,
            speculative_rejection, mcts, global_mcts, litesearch, cats, adaptive_consistency,
            sequential_best_of_n, learned_stopping (after two paths, if one answer has more than
            `enough` of the votes), early_stopping_consistency, deepconf_online or
            sequential_halving.
        path_score: min, last, mean or product.
        vote: best, majority or weighted.
        expansion: width K = max(1, N // expansion) where the kind has one (MCTS of both kinds:
            its branching; particle Gibbs: its iterations).
        rounds: R of CATS; num_base, actions, excluded: of CATS too.
        weights: of cost, margin and best score in the reward.
        calibrated: scores of the pool are seen as P(step right).
        score_base: base children have a score.
        prm_threshold: P(step right) below which a node asks for a score of its base child, in a
            round of its own; min_prm_weight: and only of a PRM whose calibration trusts it so much.
        enough: confidence of adaptive consistency, path score that ends sequential best-of-N.
        abort: path score below which sequential best-of-N gives a path up.
        max_nodes: most nodes of the tree of MCTS.
        confident, tempering: of particle filtering: scores are those of the policy; how the
            temperature of the weights is found.
        window: of early-stopping consistency; tokens of a window of DeepConf.
        warmup, share: of DeepConf: first paths; share of them that is below the bar.
        rejection, memory_tokens: of speculative rejection.
        unique: equal children of a path stand once.
        granularity: steps from one verification of VG-Search to the next.
        lookahead: steps of a rollout.
        expected, max_budget, min_value, end_leaf_num, limit: of LiteSearch.
    """

    kind: str
    path_score: str = "min"
    vote: str = "best"
    expansion: int = 4
    rounds: int = 0
    num_base: int = 2
    actions: tuple[tuple[int, int, float, float, int], ...] = ()
    excluded: tuple[str, ...] = ()
    weights: tuple[float, float, float] = (0.2, 0.5, 0.3)
    discount: float = 0.9
    exploration: float = 1.0
    calibrated: bool = False
    score_base: bool = True
    prm_threshold: float | None = None
    min_prm_weight: float = 0.0
    enough: float = 0.0
    abort: float = 0.0
    max_nodes: int = 1024
    confident: bool = False
    tempering: str = "none"
    window: int = 1
    warmup: int = 1
    share: float = 0.0
    rejection: float = 0.5
    memory_tokens: int = 0
    unique: bool = False
    granularity: int = 1
    lookahead: int = 0
    expected: float = 0.9
    max_budget: int = 10
    min_value: float = 0.8
    end_leaf_num: int = 5
    limit: int = 100

    @property
    def in_turn(self) -> bool:
        return self.kind in ("adaptive_consistency", "sequential_best_of_n", "learned_stopping")

    @property
    def reads_scores(self) -> bool:
        return self.kind not in _BLIND and not self.confident

    def num_steps(self, num_candidates: int, max_depth: int) -> int:
        if self.kind == "mcts":
            return num_candidates * max_depth // min(self.expansion, num_candidates) + max_depth
        if self.kind == "litesearch":
            return min(num_candidates * max_depth, max_depth + self.limit)
        if self.kind == "particle_gibbs":
            return self.expansion * max_depth
        if self.kind == "early_stopping_consistency":
            return math.ceil(num_candidates / self.window) * max_depth
        if self.kind == "deepconf_online":
            return 2 * max_depth
        if self.kind == "lookahead":
            return max_depth * (1 + self.lookahead)
        if self.kind == "learned_stopping":  # and a step in which it stops
            return num_candidates * max_depth + 1
        by_candidate = self.in_turn or self.kind == "global_mcts"
        return num_candidates * max_depth if by_candidate else max_depth

    def beginnings(self, num_candidates: int) -> int:
        """How often a search begins at the question if no child is ever valid."""
        if self.kind == "early_stopping_consistency":
            return math.ceil(num_candidates / self.window)
        if self.kind == "litesearch":  # the greedy path, and the tree
            return 2
        return num_candidates if self.in_turn else 1

    @property
    def num_phases(self) -> int:
        if self.kind == "litesearch":
            return 2
        asking = 0 if self.prm_threshold is None else 1
        return 1 + asking + self.rounds if self.kind == "cats" else 1

    def width(self, num_candidates: int) -> int:
        if self.kind == "greedy":
            return 1
        if self.kind in _WIDE or self.in_turn:
            return num_candidates
        if self.kind == "lookahead":
            return self.rolled_out(num_candidates)
        return self.beam_width(num_candidates)

    def rolled_out(self, num_candidates: int) -> int:
        """Candidates of a step of look-ahead search; a rollout costs as much as they do."""
        return max(1, num_candidates // (1 + self.lookahead))

    def beam_width(self, num_candidates: int) -> int:
        return max(1, num_candidates // self.expansion)


@dataclasses.dataclass(frozen=True)
class World:
    """What the outside answers, tick by tick.

    Attributes:
        child: `(tick, row, parent, to_end) -> child`: a dictionary with valid, score, done,
            answer, text, log_prob, num_tokens, certainty, embedding; `row` counts the children of
            that tick.
        action: `(tick, slot, legal, features) -> (index, log_prob)`: the policy.
        offset: `tick -> [0, 1)`: the uniform number of systematic resampling.
        uniforms: `(tick, count)`: the uniform numbers of particle filtering.
        uniform: `tick -> [0, 1)`: the uniform number that draws the reference of particle Gibbs.
    """

    child: Callable[[int, int, dict[str, Any], bool], dict[str, Any]]
    action: Callable[[int, int, list[bool], dict[str, float]], tuple[int, float]]
    offset: Callable[[int], float]
    uniforms: Callable[[int, int], list[float]]
    uniform: Callable[[int], float]


@dataclasses.dataclass
class Tick:
    """What one tick did, and the state it left behind."""

    state: dict[str, Any]
    num_samples: list[int]
    to_end: list[bool]
    scored: list[bool]  # per slot; whether the PRM is asked for all its children
    decisions: list[dict[str, Any] | None]  # per slot; None where none was taken
    decided: list[bool]
    asks: list[bool]  # per slot; whether it asks for a score of its base child
    reward: list[float]
    path_scores: list[float]  # per pool row, before the end of a step empties the pool
    transitions: list[dict[str, Any]]
    active: bool


def search(
    rules: Rules,
    world: World,
    *,
    root: Any,
    num_candidates: int,
    width: int,
    max_depth: int,
    budget: int,
    price: float,
    prm_features: Sequence[float],
    num_ticks: int,
) -> list[Tick]:
    """Run `num_ticks` ticks; those after the end repeat the last state."""
    state = first_state(root, num_candidates, width, max_depth, budget, price, prm_features)
    state["max_steps"] = rules.num_steps(num_candidates, max_depth)
    if rules.kind == "mcts":
        _settle(rules, state, 1, 1, width, state["max_steps"])
    if rules.kind == "early_stopping_consistency":
        state["begun"] = min(rules.window, num_candidates)
    if rules.kind == "sequential_halving":
        state["round"] = _round(state, num_candidates)
    ticks = []
    for index in range(num_ticks):
        ticks.append(tick(rules, world, index, state))
        state = ticks[-1].state
    return ticks


def first_state(
    root: Any,
    num_candidates: int,
    width: int,
    max_depth: int,
    budget: int,
    price: float = 0.0,
    prm_features: Sequence[float] = (0.0, 0.0),
) -> dict[str, Any]:
    """One path without steps."""
    first = {
        "done": False,
        "parent": 0,
        "group": 0,
        "depth": 0,
        "scores": [],
        "log_prob": 0.0,
        "num_tokens": 0,
        "unread": 0,
        "answer": -1,
        "text": -1,
        "weight": 1.0,
        "certainty": 0.0,
        "vector": (0.0,) * 3,
        "embedding": root,
        "line": [],  # the path after each of its steps
    }
    return {
        "frontier": [first],
        "pool": [],  # None for an invalid candidate
        "finished": [],
        "pending": [None],
        "num_candidates": num_candidates,
        "width": width,
        "max_depth": max_depth,
        "max_steps": max_depth,
        "budget": budget,
        "spent": 0,
        "used": 0,
        "step": 0,
        "phase": 0,
        "price": price,
        "prm_features": list(prm_features) + NO_CALIBRATION * (len(prm_features) == 2),
        "open": {},  # CATS: slot -> may decide again
        "open_default": True,  # slots without a path: open until the first decision of a step
        "num_retain": {},  # CATS: slot -> of its latest decision; 1 before
        "tree": [_node(first, parent=0)],
        "node_of_slot": [0],
        "question": first,
        "begun": 1,  # paths, of methods that write one after the other
        "num_new": 0,  # paths that finished in the newest step
        "copies": [],  # particle filtering: of each finished path
        "completes": False,  # MCTS: paths are taken to their ends
        "simulates": False,  # MCTS with a global choice: the frontier holds simulations
        "before": 0,  # early-stopping consistency: finished paths of earlier windows
        "bar": None,  # DeepConf: once the warm-up has ended
        "arms": [],  # sequential halving: whether each finished path is one
        "round": 0,  # sequential halving: steps left of it
        "unranked": [],  # speculative rejection: finished paths that are ranked no more
        "iteration": 0,  # particle Gibbs: iterations that have ended
        "reference": None,  # particle Gibbs: the particle of before
        "uniform": 0.0,  # particle Gibbs: draws the next one
        "waiting": [],  # look-ahead: candidates that are rolled out
        "row_of_slot": [],  # look-ahead: candidate of each slot
        "steps_left": 0,  # look-ahead: of the rollouts
        "nodes": [{"path": first, "open": True}],  # LiteSearch: the tree
        "greedy_grows": True,  # LiteSearch: the frontier holds the greedy path
        "greedy_value": 0.0,  # LiteSearch: of the greedy path once it has ended
        "num_grown": 0,  # LiteSearch: nodes that were given children
    }


def ended(state: dict[str, Any]) -> bool:
    """Whether the search is over: only ever between two steps."""
    if state["phase"] != 0:
        return False
    return (
        len(state["finished"]) >= state["width"]
        or len(state["frontier"]) == 0
        or state["spent"] >= state["budget"]
        or state["step"] >= state["max_steps"]
    )


def tick(rules: Rules, world: World, index: int, before: dict[str, Any]) -> Tick:
    """One plan, one expand, one commit."""
    slots = len(before["frontier"])
    if ended(before):
        nothing = [False] * slots
        return Tick(
            before, [0] * slots, [], [], [], nothing, nothing, [0.0] * slots, [], [], active=False
        )
    state = _copy(before)
    deciding_phase = rules.kind == "cats" and state["phase"] > 0

    # Plan: what every slot wants, and who gets it.
    decisions: list[dict[str, Any] | None] = [None] * slots
    asks = [False] * slots
    if deciding_phase:
        wanted = _decide(rules, world, index, state, _judged(rules, state), decisions, asks)
    else:
        wanted = _wanted(rules, world, index, state)
        if rules.kind == "cats":
            state["open"] = dict.fromkeys(range(slots), True)
            state["open_default"] = True
            state["num_retain"] = dict.fromkeys(range(slots), 1)
    num_samples = _allocate(rules, state, wanted)
    to_end = [path["depth"] >= state["max_depth"] - 1 for path in state["frontier"]]
    scored = [rules.score_base or deciding_phase] * slots
    if rules.kind == "vg_search":
        scored = [_verifies(rules, state)] * slots
    if state["steps_left"] > 1:
        scored = to_end
    if rules.kind == "global_mcts":
        scored = [False] * slots
    score_ends = rules.kind in ("vg_search", "lookahead", "global_mcts")

    # Expand: slot by slot.
    row = 0
    for slot in range(slots):
        for _ in range(num_samples[slot]):
            parent = state["frontier"][slot]
            sample = world.child(index, row, parent, to_end[slot])
            pool_row = state["used"] + row
            asked = scored[slot] or (score_ends and sample["done"])
            group = parent["group"]
            if state["step"] == 0:
                group = pool_row * state["width"] // state["num_candidates"]
            child = {
                "done": sample["done"],
                "parent": slot,
                "group": group,
                "depth": parent["depth"] + 1,
                "scores": parent["scores"]
                + [sample["score"] if asked and rules.reads_scores else 0.0],
                "log_prob": sample["log_prob"],
                "num_tokens": sample["num_tokens"],
                "unread": 0 if asked else parent["unread"] + sample["num_tokens"],
                "answer": sample["answer"],
                "text": sample["text"],
                "weight": parent["weight"],
                "certainty": sample["certainty"],
                "vector": sample["vector"],
                "embedding": sample["embedding"],
            }
            child["line"] = [*parent["line"], child]
            state["pool"].append(child if sample["valid"] else None)
            row += 1
    state["spent"] += row
    state["used"] += row

    # Decisions: rewards, and the transitions that end in them.
    transitions = []
    judged = _judged(rules, state)
    reward = [0.0] * slots
    for slot in range(slots):
        decision, waiting = decisions[slot], state["pending"][slot]
        if decision is not None:
            reward[slot] = _reward(rules, judged, slot, num_samples[slot])
            if waiting is not None:
                transitions.append(_transition(waiting, rules.discount, decision["features"]))
            decision["reward"] = reward[slot]
            state["pending"][slot] = decision
        elif (
            waiting is not None
            and state["phase"] == rules.num_phases - 1
            and not _children(state, slot)
        ):
            transitions.append(_transition(waiting, 0.0, None))

    scores = [
        path_score(rules.path_score, path["scores"] if path else []) for path in judged["pool"]
    ]
    if state["phase"] == rules.num_phases - 1:
        state["pool"] = judged["pool"]
        transitions += _end_step(rules, state)
    else:
        state["phase"] += 1
    decided = [decision is not None for decision in decisions]
    return Tick(
        state,
        num_samples,
        to_end,
        scored,
        decisions,
        decided,
        asks,
        reward,
        scores,
        transitions,
        active=True,
    )


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    copied = dict(state)
    for name in ("frontier", "pool", "finished", "pending", "node_of_slot", "unranked"):
        copied[name] = list(state[name])
    for name in ("tree", "nodes"):
        copied[name] = [dict(node) for node in state[name]]
    for name in ("open", "num_retain"):
        copied[name] = dict(state[name])
    return copied


# Calibration


def _judged(rules: Rules, state: dict[str, Any]) -> dict[str, Any]:
    """The state with the newest score of every child as P(step right)."""
    if not rules.calibrated:
        return state
    pool = []
    for path in state["pool"]:
        if path is not None:
            siblings = [
                other for other in state["pool"] if other and other["parent"] == path["parent"]
            ]
            same = [other for other in siblings if other["text"] == path["text"]]
            values = state["prm_features"][2:8]
            known = [path] if path["unread"] == 0 else [o for o in same if o["unread"] == 0]
            if known:  # without a score of its own, a step has the best one of its text
                raw = max(other["scores"][-1] for other in known)
                score = calibrated(raw, len(same), len(siblings), path["log_prob"], values)
            else:
                score = unscored(path["log_prob"], values)
            unread = 0 if known else path["unread"]
            if not known and any(other["unread"] == 0 for other in siblings):
                unread = path["num_tokens"]  # their common path was read for a sibling
            path = {**path, "scores": [*path["scores"][:-1], score], "unread": unread}
        pool.append(path)
    return {**state, "pool": pool}


def calibrated(
    score: float,
    same_text: int,
    num_siblings: int,
    log_prob: float,
    calibration: Sequence[float],
) -> float:
    """A logistic model: logit of the score, log-odds of the text among its siblings, likelihood."""
    intercept, slope, agreement, likelihood = calibration[:4]
    score = min(max(score, 1e-2), 1 - 1e-2)
    votes = math.log((same_text + 0.5) / (num_siblings - same_text + 0.5))
    log_odds = intercept + slope * math.log(score / (1 - score)) + agreement * votes
    return _sigmoid(log_odds + likelihood * likelihood_odds(log_prob))


def unscored(log_prob: float, calibration: Sequence[float]) -> float:
    """A logistic model of the likelihood alone."""
    intercept, likelihood = calibration[4:]
    return _sigmoid(intercept + likelihood * likelihood_odds(log_prob))


def likelihood_odds(log_prob: float) -> float:
    """Log-odds of a probability between 1e-6 and 1 - 1e-6; even odds where it is not known."""
    if math.isnan(log_prob):
        return 0.0
    clipped = min(max(log_prob, math.log(1e-6)), math.log1p(-1e-6))
    return clipped - math.log(-math.expm1(clipped))


def _sigmoid(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


# Path scores


def path_score(name: str, scores: Sequence[float]) -> float:
    """On [0, 1]; 1 for a path without steps."""
    if not scores:
        return 1.0
    if name == "min":
        return min(scores)
    if name == "last":
        return scores[-1]
    if name == "mean":
        return sum(scores) / len(scores)
    return math.prod(scores)


def path_key(name: str, scores: Sequence[float]) -> float:
    """What paths are compared by: a product as a sum of logarithms."""
    if name == "product":
        return math.fsum(math.log(max(score, 2.0**-126)) for score in scores)
    return path_score(name, scores)


def _best_first(rules: Rules, rows: Sequence[int], paths: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(rows, key=lambda row: (-path_key(rules.path_score, paths[row]["scores"]), row))


def _children(state: dict[str, Any], slot: int) -> list[int]:
    return [
        row for row, path in enumerate(state["pool"]) if path is not None and path["parent"] == slot
    ]


# Plan


def _wanted(rules: Rules, world: World, tick: int, state: dict[str, Any]) -> list[int]:
    slots, candidates = len(state["frontier"]), state["num_candidates"]
    if rules.kind == "learned_stopping" and _learned_stop(rules, state):
        return [0] * slots
    if rules.kind == "greedy" or rules.in_turn:
        return [1] * slots
    if rules.kind == "litesearch":
        if state["phase"] == 0:
            return [1] * slots
        if state["greedy_grows"]:
            return [0] * slots
        return [min(_node_budget(rules, state, path), candidates) - 1 for path in state["frontier"]]
    if rules.kind == "early_stopping_consistency":
        of_window = (state["begun"] - 1) % rules.window + 1
        return [of_window if path["depth"] == 0 else 1 for path in state["frontier"]]
    if rules.kind == "deepconf_online":
        first = min(rules.warmup, candidates)
        begins = first if state["bar"] is None else candidates - first
        return [begins if path["depth"] == 0 else 1 for path in state["frontier"]]
    if rules.kind in _WHOLE:
        return [candidates if state["step"] == 0 else 1] * slots
    if rules.kind == "step_level_beam":
        each = min(rules.expansion, candidates // state["width"])
        return [each * state["width"] if state["step"] == 0 else each] * slots
    if (rules.kind == "vg_search" and not _verifies(rules, state)) or state["steps_left"] > 0:
        return [1] * slots
    if rules.kind == "lookahead":
        total = rules.rolled_out(candidates)
        each = total // rules.beam_width(total)
        return [total if state["step"] == 0 else each] * slots
    if rules.kind in ("beam", "dvts", "vg_search"):
        return [candidates if state["step"] == 0 else candidates // state["width"]] * slots
    if rules.kind == "mcts":
        whole = min(max(state["budget"] // state["max_depth"], 1), state["width"])
        completed = whole if state["step"] == 0 else 1
        return [completed if state["completes"] else min(rules.expansion, candidates)] * slots
    places = state["width"] - len(state["finished"])
    if rules.kind == "global_mcts":
        fitting = min(rules.expansion, rules.max_nodes - 1)
        return [1 if state["simulates"] else min(fitting, candidates, places)] * slots
    scores = [path_score(rules.path_score, path["scores"]) for path in state["frontier"]]
    if rules.kind == "proportional_resampling":
        return systematic_resample(world.offset(tick), scores, places)
    if rules.kind == "rebase":
        return rebase(scores, places)
    if rules.kind == "dora":
        return dora(scores, [path["vector"] for path in state["frontier"]], places)
    if rules.kind in ("particle_filtering", "particle_gibbs"):
        return _resample(rules, world, tick, state)
    return [min(rules.num_base, candidates)] * slots


def _resample(rules: Rules, world: World, tick: int, state: dict[str, Any]) -> list[int]:
    """Copies of each unfinished particle; those of the finished ones are noted."""
    slots, total = len(state["frontier"]), state["width"]
    finished = state["finished"]
    if rules.kind == "particle_gibbs":
        state["uniform"] = world.uniform(tick)
        if state["iteration"] and state["frontier"][0]["depth"] == 0:
            state["reference"] = {**finished[0], "parent": 0}
            finished = []  # the reference has no steps yet
        total -= state["reference"] is not None
    scores = [_weighed(rules, path) for path in state["frontier"] + finished]
    weights = odds(scores)
    if rules.tempering != "none":
        power = 1 / temperature(rules.tempering, weights, state["step"] / state["max_depth"])
        weights = [weight**power for weight in weights]
    copies = [0] * len(weights)
    for uniform in world.uniforms(tick, total):
        copies[drawn(uniform, weights)] += 1
    state["copies"] = copies[slots:] or [0] * len(state["finished"])
    return copies[:slots]


def _weighed(rules: Rules, path: dict[str, Any]) -> float:
    """The score that makes a particle's weight."""
    if not rules.confident:
        return path_score(rules.path_score, path["scores"])
    return math.exp(path["log_prob"] / path["num_tokens"]) if path["scores"] else 1.0


def odds(scores: Sequence[float]) -> list[float]:
    """Of scores between 1e-7 and 1 - 1e-7."""
    clipped = [min(max(score, 1e-7), 1 - 1e-7) for score in scores]
    return [score / (1 - score) for score in clipped]


def drawn(uniform: float, weights: Sequence[float]) -> int:
    """Row of a number in [0, 1)."""
    place = uniform * sum(weights)
    return next(i for i in range(len(weights)) if place < sum(weights[: i + 1]))


def temperature(method: str, weights: Sequence[float], progress: float) -> float:
    """Entropic annealing, as published: above 1 while few particles have the mass, early on."""
    number = len(weights)
    shares = [min(max(weight / sum(weights), 1e-7), 1 - 1e-7) for weight in weights]
    ratio = 1 / sum(share**2 for share in shares) / number
    if number == 1 or ratio >= 0.5 or progress >= 0.5:
        return 1.0
    if method == "ess":
        return max(1.0, (1 - progress) / ratio)
    if method == "base":
        return max(1.0, 2 - progress)
    entropy = -sum(share * math.log(share) for share in shares) / math.log(number)
    return max(1.0, 1 / (entropy + (1 - entropy) * progress))


def rebase(scores: Sequence[float], places: int) -> list[int]:
    """Children of each path: the published loop, but that its rounding may not take a place."""
    weights = [math.exp(score / 0.2) for score in scores]
    order = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    children = [0] * len(scores)
    for number, row in enumerate(order):
        share = weights[row] / sum(weights[below] for below in order[number:])
        children[row] = min(math.ceil(places * share * (1 - 1e-5)), places)
        places -= children[row]
    return children


def dora(scores: Sequence[float], vectors: Sequence[Sequence[float]], places: int) -> list[int]:
    """Children of each path: equations 10 to 13, and the published repair of their sum."""

    def cosine(a: Sequence[float], b: Sequence[float]) -> float:
        norms = [max(math.sqrt(sum(x * x for x in each)), 1e-12) for each in (a, b)]
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.prod(norms)

    weights = [math.exp(score / 0.1) for score in scores]
    unique = []
    for row, vector in enumerate(vectors):
        affinities = [math.exp(cosine(vector, other) / 0.01) for other in vectors]
        unique.append(affinities[row] / sum(affinities))
    shares = [weight * own for weight, own in zip(weights, unique, strict=True)]
    # Halves are exact in the publication's float64 up to rounding.
    numbers = [round(round(places * share / sum(shares), 9)) for share in shares]
    copies = [row for row, number in enumerate(numbers) for _ in range(number)]
    if len(copies) != places:
        copies = (copies * (places // len(copies) + 1))[:places]
    return [copies.count(row) for row in range(len(scores))]


def systematic_resample(offset: float, weights: Sequence[float], total: int) -> list[int]:
    """Copies of each row: one comb of `total` equally spaced teeth over the weights."""
    if sum(weights) == 0.0:
        weights = [1.0] * len(weights)
    mass = sum(weights)
    copies, done = [], 0
    for row in range(len(weights)):
        upto = sum(weights[: row + 1])
        bound = total if upto == mass else math.floor(upto / mass * total + offset)
        copies.append(min(bound, total) - done)
        done = min(bound, total)
    return copies


def _decide(
    rules: Rules,
    world: World,
    tick: int,
    state: dict[str, Any],
    judged: dict[str, Any],
    decisions: list[dict[str, Any] | None],
    asks: list[bool],
) -> list[int]:
    left = min(state["num_candidates"] - state["used"], state["budget"] - state["spent"])
    legal = [action[0] <= max(left, 0) for action in rules.actions]
    state["open_default"] = False
    wanted = []
    for slot in range(len(state["frontier"])):
        if not state["open"][slot]:
            wanted.append(0)
            continue
        if not _children(state, slot):  # nothing to decide on: as few more as can be
            wanted.append(min((a[0] for a in rules.actions if a[0] > 0 and a[2] > 0.0), default=0))
            state["open"][slot] = wanted[-1] > 0
            continue
        features = node_features(rules, judged, slot)
        if rules.prm_threshold is not None and features["scored_share"] == 0.0:
            doubt = features["step_best"] < rules.prm_threshold
            trusted = features["prm_weight"] >= rules.min_prm_weight
            asks[slot] = doubt and trusted and left > 0
            wanted.append(int(asks[slot]))
            state["open"][slot] = asks[slot]
            continue
        for name in rules.excluded:
            features[name] = 0.0
        index, log_prob = world.action(tick, slot, legal, features)
        num_extra, num_retain = rules.actions[index][:2]
        decisions[slot] = {
            "features": features,
            "available": left,
            "action": index,
            "log_prob": log_prob,
        }
        state["open"][slot] = num_extra > 0
        state["num_retain"][slot] = num_retain
        wanted.append(num_extra)
    return wanted


def _allocate(rules: Rules, state: dict[str, Any], wanted: list[int]) -> list[int]:
    left = min(state["num_candidates"] - state["used"], state["budget"] - state["spent"])
    granted = [0] * len(wanted)
    for slot in _best_first(rules, range(len(wanted)), state["frontier"]):
        granted[slot] = min(wanted[slot], left)
        left -= granted[slot]
    return granted


def node_features(rules: Rules, state: dict[str, Any], slot: int) -> dict[str, float]:
    """Features of one slot by name; zeros without a valid child."""
    frontier, finished = state["frontier"], state["finished"]
    rows = _best_first(rules, _children(state, slot), state["pool"])
    texts = [state["pool"][row]["text"] for row in rows]
    scores = [path_score(rules.path_score, state["pool"][row]["scores"]) for row in rows]
    mean = sum(scores) / max(len(scores), 1)
    variance = sum((score - mean) ** 2 for score in scores) / max(len(scores), 1)
    padded = scores[:NUM_SORTED_SCORES] + [0.0] * (NUM_SORTED_SCORES - len(scores))
    sparsity = [math.log10(max(share, 1e-6)) for share in state["prm_features"][:2]]
    best_of_text: dict[Any, float] = {}
    likelihoods: dict[Any, float] = {}
    for row in sorted(rows):  # equal texts may differ in score: the first sampled speaks
        text = state["pool"][row]["text"]
        best_of_text.setdefault(text, path_score(rules.path_score, state["pool"][row]["scores"]))
        likelihoods.setdefault(text, _likelihood(state["pool"][row]))
    everywhere = [path_score(rules.path_score, path["scores"]) for path in state["pool"] if path]
    votes: dict[int, float] = {}
    finished_scores = []
    for path in finished:
        finished_scores.append(path_score(rules.path_score, path["scores"]))
        if path["answer"] >= 0:
            votes[path["answer"]] = votes.get(path["answer"], 0.0) + finished_scores[-1]
    features = {
        "num_children": _log_count(len(rows)),
        **{f"score_{rank}": padded[rank] for rank in range(NUM_SORTED_SCORES)},
        "mean": mean,
        "std": math.sqrt(variance),
        "max": padded[0],
        "min": min(scores, default=0.0),
        "gap": scores[0] - scores[1] if len(scores) > 1 else 0.0,
        "depth": frontier[slot]["depth"] / state["max_depth"],
        "budget_left": _log_count(state["budget"] - state["spent"]),
        "step_left": _log_count(state["num_candidates"] - state["used"]),
        "num_candidates": _log_count(state["num_candidates"]),
        "sparsity_total": sparsity[0],
        "sparsity_last_layer": sparsity[1],
        "round": state["phase"] / 4,
        "agreement": texts.count(texts[0]) / len(texts) if texts else 0.0,
        "node_rank": _best_first(rules, range(len(frontier)), frontier).index(slot)
        / state["width"],
        "finished_share": len(finished) / state["width"],
        "path_score": path_score(rules.path_score, frontier[slot]["scores"]),
        "price": 1 + math.log10(max(state["price"], 0.001)) / 3,
        "calibration_slope": state["prm_features"][3] / 4,
        "calibration_agreement": state["prm_features"][4] / 4,
        "any_right": 1 - math.prod(1 - score for score in best_of_text.values()),
        "distinct_texts": _log_count(len(best_of_text)),
        "pool_best": max(everywhere, default=0.0),
        "frontier_share": len(frontier) / state["width"],
        "finished_best": max(finished_scores, default=0.0),
        "vote_share": max(votes.values(), default=0.0) / max(sum(votes.values()), 1e-6),
        "likelihood_best": _likelihood(state["pool"][rows[0]]) if rows else 0.0,
        "likelihood_seen": min(sum(likelihoods.values()), 1.0),
        "scored_share": sum(state["pool"][row]["unread"] == 0 for row in rows) / max(len(rows), 1),
        "unread": _log_count(frontier[slot]["unread"]),
        "prm_token_cost": math.log2(1 + state["prm_features"][8]) / 4,
        "step_best": state["pool"][rows[0]]["scores"][-1] if rows else 0.0,
        "prm_weight": state["prm_features"][3]
        / max(abs(state["prm_features"][3]) + abs(state["prm_features"][5]), 1e-6),
    }
    return features if rows else dict.fromkeys(features, 0.0)


def _likelihood(path: dict[str, Any]) -> float:
    """Of the newest step; 0 where it is not known."""
    return 0.0 if math.isnan(path["log_prob"]) else math.exp(path["log_prob"])


def _log_count(value: int) -> float:
    return math.log2(1 + max(value, 0)) / 8


# Commit


def _reward(rules: Rules, state: dict[str, Any], slot: int, num_extra: int) -> float:
    rows = _best_first(rules, _children(state, slot), state["pool"])
    scores = [path_score(rules.path_score, state["pool"][row]["scores"]) for row in rows]
    return reward(
        rules.weights, scores, state["num_retain"][slot], num_extra / state["num_candidates"]
    )


def reward(
    weights: tuple[float, float, float], best_first: list[float], num_retain: int, cost: float
) -> float:
    """-lambda_c C + lambda_m (min kept - max discarded) + lambda_r max R."""
    num_kept = max(1, num_retain)
    kept, discarded = best_first[:num_kept], best_first[num_kept:]
    margin = min(kept) - max(discarded) if discarded else 0.0
    best = max(best_first, default=0.0)
    return -weights[0] * cost + weights[1] * margin + weights[2] * best


def _transition(
    decision: dict[str, Any], discount: float, features: dict[str, float] | None
) -> dict[str, Any]:
    return {
        "features_tm1": decision["features"],
        "available_tm1": decision["available"],
        "action_tm1": decision["action"],
        "log_prob_tm1": decision["log_prob"],
        "reward_t": decision["reward"],
        "discount_t": discount,
        "features_t": features,  # None: zeros
    }


def _end_step(rules: Rules, state: dict[str, Any]) -> list[dict[str, Any]]:
    if rules.kind == "mcts":
        paths, retained = _grow_tree(rules, state)
    elif rules.kind == "global_mcts":
        paths, retained = _simulate(rules, state)
    elif rules.kind == "litesearch":
        paths, retained = _best_node(rules, state)
    elif rules.in_turn:
        paths, retained = _one_path(rules, state)
    elif rules.kind == "early_stopping_consistency":
        paths, retained = _window(rules, state)
    elif rules.kind == "speculative_rejection":
        paths, retained = state["pool"], _reject(rules, state)
    elif rules.kind == "sequential_halving":
        paths, retained = state["pool"], _halve(rules, state)
    elif rules.kind == "deepconf_online":
        paths, retained = _warm_up(rules, state)
    elif rules.kind == "particle_gibbs":
        paths, retained = _iterate(rules, state)
    elif rules.kind == "lookahead":
        paths, retained = _look_ahead(rules, state)
    else:
        paths, retained = state["pool"], _retain(rules, state)
    if rules.kind == "particle_filtering":
        state["finished"] = _repeated(state)
    free = state["width"] - len(state["finished"])
    kept = sorted(_best_first(rules, retained, paths)[:free])
    grows = [row for row in kept if not paths[row]["done"]]
    finishes = [row for row in kept if paths[row]["done"]]
    if rules.kind == "mcts":
        state["node_of_slot"] = [row for row in grows if row < len(state["tree"])]

    if rules.kind == "speculative_rejection":
        state["unranked"] += [paths[row]["rejected"] for row in finishes]
    if rules.kind == "sequential_halving":
        state["arms"] += [True for row in finishes]

    pending = state["pending"]
    state["frontier"] = [paths[row] for row in grows]
    state["finished"] = state["finished"] + [paths[row] for row in finishes]
    state["num_new"] = len(finishes)
    state["pool"], state["used"], state["phase"] = [], 0, 0
    state["step"] += 1
    if rules.kind != "cats":  # nobody ever decides
        state["pending"] = [None] * len(grows)
        return []
    over = ended(state)
    state["pending"] = [None if over else pending[paths[row]["parent"]] for row in grows]
    last_words = [pending[paths[row]["parent"]] for row in kept if over or paths[row]["done"]]
    return [_transition(words, 0.0, None) for words in last_words if words is not None]


def _retain(rules: Rules, state: dict[str, Any]) -> list[int]:
    pool = state["pool"]
    if rules.kind == "vg_search" and not _verifies(rules, state):
        for row, path in enumerate(pool):
            if path is not None and not path["done"]:
                seen = path["scores"][:-1]
                pool[row] = {**path, "scores": [*seen, seen[-1]]}
    retained = []
    if rules.kind == "dvts":
        for group in range(state["width"]):
            rows = [row for row, path in enumerate(pool) if path and path["group"] == group]
            retained += _best_first(rules, rows, pool)[:1]
        return retained
    for slot in range(len(state["frontier"])):
        rows = _best_first(rules, _children(state, slot), pool)
        num_retain = state["num_retain"][slot] if rules.kind == "cats" else len(rows)
        retained += rows[: max(1, num_retain)]
    if rules.unique:
        found = {}
        for row in sorted(retained):
            found.setdefault((pool[row]["parent"], pool[row]["text"], pool[row]["done"]), row)
        retained = list(found.values())
    return retained


def _repeated(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The finished particles that were drawn, each as often as it was."""
    finished = zip(state["finished"], state["copies"], strict=True)
    return [path for path, copies in finished for _ in range(copies)]


def _rows(state: dict[str, Any], *, done: bool) -> list[int]:
    """Children that end a path, or that may go on."""
    return [
        row
        for row, path in enumerate(state["pool"])
        if path and path["done"] == done and (done or path["depth"] < state["max_depth"])
    ]


# Windows of paths


def _window(rules: Rules, state: dict[str, Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The window in progress, or the question for the next one, or nothing."""
    grows, ends = _rows(state, done=False), _rows(state, done=True)
    if grows:
        return state["pool"], grows + ends
    window = state["finished"][state["before"] :] + [state["pool"][row] for row in ends]
    answers = {path["answer"] for path in window}
    if len(window) == rules.window and len(answers) == 1 and answers != {-1}:
        for row in range(state["before"]):  # the window alone gives the answer
            state["finished"][row] = {**state["finished"][row], "weight": 0.0}
        return state["pool"], ends
    number = len(state["finished"]) + len(ends)
    full = number >= state["width"] or state["spent"] >= state["budget"]
    if state["begun"] == state["num_candidates"] or full:
        return state["pool"], ends
    state["begun"] = min(state["begun"] + rules.window, state["num_candidates"])
    state["before"] = number
    return [state["question"], *state["pool"]], [0, *(1 + row for row in ends)]


# DeepConf


def _warm_up(rules: Rules, state: dict[str, Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The paths that go on; the question for the others when those of the warm-up have ended."""
    grows, ends, begins = _rows(state, done=False), _rows(state, done=True), False
    if state["bar"] is not None:
        stopped = {
            row
            for row in grows + ends
            if tokens_of(state["pool"][row]) >= rules.window
            and state["pool"][row]["certainty"] < state["bar"]
        }
        grows, ends = sorted({*grows} - stopped), sorted({*ends} - stopped)
    elif not grows:
        traces = [*state["finished"], *(state["pool"][row] for row in ends)]
        found = [path["certainty"] for path in traces]
        state["bar"] = quantile(found, rules.share) if traces else 0.0
        full = len(traces) >= state["width"] or state["spent"] >= state["budget"]
        begins = bool(traces) and not full and state["num_candidates"] > rules.warmup
    bar = state["bar"] or 0.0

    def votes(path: dict[str, Any]) -> dict[str, Any]:
        return {**path, "weight": path["certainty"] if path["certainty"] >= bar else 0.0}

    state["finished"] = [votes(path) for path in state["finished"]]
    pool = [path and votes(path) for path in state["pool"]]
    if begins:
        return [state["question"], *pool], [0, *(1 + row for row in ends)]
    return pool, grows + ends


def quantile(values: Sequence[float], share: float) -> float:
    """The number that lies at this share of the way through the sorted ones."""
    ordered = sorted(values)
    whole, rest = divmod(share * (len(ordered) - 1), 1)
    low = int(whole)
    return ordered[low] + rest * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


# Sequential halving


def _round(state: dict[str, Any], arms: int) -> int:
    """Steps of a round."""
    rounds = max(1, math.ceil(math.log2(state["num_candidates"])))
    return max(1, state["budget"] // (max(1, arms) * rounds))


def _halve(rules: Rules, state: dict[str, Any]) -> list[int]:
    """The children that are arms after this step."""
    children = [row for row, path in enumerate(state["pool"]) if path]
    old = [row for row, is_arm in enumerate(state["arms"]) if is_arm]
    arms = [("finished", row) for row in old] + [("pool", row) for row in children]
    state["round"] -= 1
    if state["round"] == 0:
        arms.sort(  # stable: of equal ones the first stays
            key=lambda place: path_score(rules.path_score, state[place[0]][place[1]]["scores"]),
            reverse=True,
        )
        arms = arms[: math.ceil(len(arms) / 2)]
        state["round"] = _round(state, len(arms))
    state["arms"] = [("finished", row) in arms for row in range(len(state["finished"]))]
    state["finished"] = [
        {**path, "weight": float(is_arm)}
        for path, is_arm in zip(state["finished"], state["arms"], strict=True)
    ]
    return [row for group, row in arms if group == "pool"]


# Speculative rejection


def tokens_of(path: dict[str, Any]) -> int:
    """Of all its steps."""
    return sum(step["num_tokens"] for step in path["line"])


def _reject(rules: Rules, state: dict[str, Any]) -> list[int]:
    """The children that stay; the finished paths that are dropped are ranked no more."""
    pool = state["pool"]
    children = [row for row, path in enumerate(pool) if path]
    for row in children:
        pool[row] = {**pool[row], "rejected": False}
    live = [row for row in children if not pool[row]["done"]]
    if sum(tokens_of(pool[row]) for row in live) <= rules.memory_tokens:
        return children
    old = [row for row, gone in enumerate(state["unranked"]) if not gone]
    ranked = [("finished", row) for row in old] + [("pool", row) for row in children]
    ranked.sort(  # stable: of equal ones the first stays
        key=lambda place: path_score(rules.path_score, state[place[0]][place[1]]["scores"]),
        reverse=True,
    )
    for group, row in ranked[max(1, round((1 - rules.rejection) * len(ranked))) :]:
        if group == "finished":
            state["unranked"][row] = True
        else:
            pool[row]["rejected"] = True
    return [row for row in children if pool[row]["done"] or not pool[row]["rejected"]]


# Particle Gibbs


def _iterate(rules: Rules, state: dict[str, Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The free particles, with the reference beside them; or the question for the next iteration.

    `state["finished"]` becomes the finished particles: those drawn, and the reference once it has
    no more steps than the others, or once the others have ended.
    """
    grows, ends = _rows(state, done=False), _rows(state, done=True)
    depth = state["frontier"][0]["depth"] + 1
    reference, spent = state["reference"], state["spent"] >= state["budget"]
    finished, beside = _repeated(state), None
    if reference is not None and reference["depth"] > depth and grows and not spent:
        beside = {**reference["line"][depth - 1], "parent": 0}
    elif reference is not None:
        finished.insert(0, reference)
    particles = finished + [state["pool"][row] for row in ends]
    more = state["iteration"] + 1 < rules.expansion and state["width"] > 1
    if not grows and more and particles and not spent:
        weights = odds([_weighed(rules, path) for path in particles])
        state["finished"] = [particles[drawn(state["uniform"], weights)]]
        state["iteration"] += 1
        return [state["question"]], [0]
    state["finished"] = finished
    if beside is None:
        return state["pool"], grows + ends
    return [beside, *state["pool"]], [0, *(1 + row for row in grows + ends)]


def _verifies(rules: Rules, state: dict[str, Any]) -> bool:
    return state["step"] % rules.granularity == 0


# Look-ahead search


def _look_ahead(rules: Rules, state: dict[str, Any]) -> tuple[list[Any], list[int]]:
    """The rollouts that go on, or the candidates that are kept."""
    pool, free = state["pool"], state["width"] - len(state["finished"])
    ends = [path is None or path["done"] or path["depth"] >= state["max_depth"] for path in pool]
    total = rules.rolled_out(state["num_candidates"])
    if state["steps_left"] == 0:
        left = rules.lookahead if total > 1 else 0
        candidates, owner = list(pool), list(range(len(pool)))
    else:
        left, candidates = state["steps_left"] - 1, list(state["waiting"])
        owner = [-1 if path is None else state["row_of_slot"][path["parent"]] for path in pool]
        for row, path in enumerate(pool):
            if path is not None and (ends[row] or left == 0):
                first = candidates[owner[row]]
                scores = [*first["scores"][:-1], path["scores"][-1]]
                candidates[owner[row]] = {**first, "scores": scores}
    rolls = [row for row in range(len(pool)) if not ends[row] and left > 0]
    rolls = sorted(_best_first(rules, rolls, pool)[:free])
    if rolls and state["spent"] < state["budget"]:
        state["waiting"], state["steps_left"] = candidates, left
        state["row_of_slot"] = [owner[row] for row in rolls]
        return pool, rolls
    state["waiting"], state["row_of_slot"], state["steps_left"] = [], [], 0
    places = min(rules.beam_width(total), state["width"])
    valid = [
        row
        for row, path in enumerate(candidates)
        if path is not None and (path["done"] or path["depth"] < state["max_depth"])
    ]
    return candidates, _best_first(rules, valid, candidates)[: places - len(state["finished"])]


# One path after the other


def _one_path(rules: Rules, state: dict[str, Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The child of the one path in progress, or the question for the next path, or nothing."""
    if not state["pool"]:  # the search has stopped before this path
        state["begun"] -= 1
        return [], []
    (child,) = state["pool"]
    spent = state["spent"] >= state["budget"]
    is_last = state["begun"] == state["num_candidates"] or spent
    finished = list(state["finished"])
    if child is not None:
        answered = any(path["answer"] >= 0 for path in finished)
        bad = path_score(rules.path_score, child["scores"]) < rules.abort
        if bad and (answered or not is_last):
            child = None
    if child is not None and not child["done"]:
        if child["depth"] < state["max_depth"]:
            return [child], [0]
        child = None
    ends = [] if child is None else [child]
    finished += ends
    full = len(finished) == state["width"] or state["spent"] >= state["budget"]
    if is_last or full or _enough(rules, finished):
        return ends, list(range(len(ends)))
    state["begun"] += 1
    return [state["question"], *ends], list(range(1 + len(ends)))


def _learned_stop(rules: Rules, state: dict[str, Any]) -> bool:
    votes = [path["answer"] for path in state["finished"] if path["answer"] >= 0]
    most = max((votes.count(answer) for answer in votes), default=0)
    begins = state["frontier"][0]["depth"] == 0 and state["begun"] > 2
    return begins and most > rules.enough * max(1, len(votes))


def _enough(rules: Rules, finished: Sequence[dict[str, Any]]) -> bool:
    if rules.kind == "learned_stopping":  # decides before the next path
        return False
    answered = [path for path in finished if path["answer"] >= 0]
    if rules.kind == "sequential_best_of_n":
        scores = [path_score(rules.path_score, path["scores"]) for path in answered]
        return any(score >= rules.enough for score in scores)
    answers = [path["answer"] for path in answered]
    votes = sorted((answers.count(answer) for answer in set(answers)), reverse=True)
    first, second = (*votes, 0, 0)[:2]
    return leader_stays(first, second) > rules.enough


def leader_stays(first: int, second: int) -> float:
    """P(Beta(second + 1, first + 1) < 1/2), as the chance of more than `second` heads."""
    tosses = first + second + 1
    return sum(math.comb(tosses, heads) for heads in range(second + 1, tosses + 1)) / 2**tosses


# Monte-Carlo tree search


def _node(path: dict[str, Any], *, parent: int) -> dict[str, Any]:
    return {"path": {**path, "parent": parent}, "visits": 0, "value": 0.0, "leaf": False}


def _grow_tree(rules: Rules, state: dict[str, Any]) -> tuple[list[dict[str, Any]], list[int]]:
    tree = state["tree"]
    children = [path for path in state["pool"] if path is not None]
    paths = [node["path"] for node in tree] + children
    new = range(len(tree), len(paths))
    if not state["completes"]:
        for path in children:
            tree.append(_node(path, parent=state["node_of_slot"][path["parent"]]))
            tree[-1]["leaf"] = not path["done"] and path["depth"] < state["max_depth"]
        paths = [node["path"] for node in tree]
        for node in new:
            _visit(tree, node, path_score(rules.path_score, paths[node]["scores"]))

    before = [(node["visits"], node["value"]) for node in tree]
    places = state["width"] - len(state["finished"])
    done = _best_first(rules, [row for row in new if paths[row]["done"]], paths)[:places]
    places -= len(done)
    going_on = [
        row for row in new if not paths[row]["done"] and paths[row]["depth"] < state["max_depth"]
    ]
    if state["completes"] and going_on:
        return paths, going_on + done
    leaves, steps_left = sum(node["leaf"] for node in tree), state["max_steps"] - state["step"] - 1
    _settle(rules, state, len(tree), leaves, places, steps_left)
    each = min(rules.expansion, state["num_candidates"])
    most = places if state["completes"] else min(places, state["num_candidates"] // each)
    reached = []
    for _ in range(most):
        leaf = _descend(tree, 0.0 if state["completes"] else rules.exploration)
        if leaf is not None:
            tree[leaf]["leaf"] = False
            _visit(tree, leaf, 0.0)  # a virtual loss, taken back below
            reached.append(leaf)
    for node, (visits, value) in zip(tree, before, strict=True):
        node["visits"], node["value"] = visits, value
    return paths, reached + done


def _settle(
    rules: Rules, state: dict[str, Any], size: int, leaves: int, places: int, steps_left: int
) -> None:
    """Whether another simulation would leave too little to take `places` paths to their ends."""
    each = min(rules.expansion, state["num_candidates"])
    grown = min(leaves, places, state["num_candidates"] // each) * each
    rest = places * (state["max_depth"] - 1)
    if (
        state["budget"] - state["spent"] - grown < rest
        or steps_left < state["max_depth"]
        or size + grown > rules.max_nodes
    ):
        state["completes"] = True


def _visit(tree: list[dict[str, Any]], node: int, value: float) -> None:
    while True:
        tree[node]["visits"] += 1
        tree[node]["value"] += value
        if node == 0:
            return
        node = tree[node]["path"]["parent"]


def _descend(tree: list[dict[str, Any]], exploration: float) -> int | None:
    def children(node: int) -> list[int]:
        return [row for row in range(1, len(tree)) if tree[row]["path"]["parent"] == node]

    def has_leaf(node: int) -> bool:
        return tree[node]["leaf"] or any(has_leaf(child) for child in children(node))

    node = 0
    if not has_leaf(node):
        return None
    while not tree[node]["leaf"]:
        log_visits = math.log(max(tree[node]["visits"], 1))

        def uct(child: int, log_visits: float = log_visits) -> float:
            visits = max(tree[child]["visits"], 1)
            return tree[child]["value"] / visits + exploration * math.sqrt(log_visits / visits)

        node = min(
            (child for child in children(node) if has_leaf(child)),
            key=lambda child: (-uct(child), child),
        )
    return node


def _simulate(rules: Rules, state: dict[str, Any]) -> tuple[list[Any], list[int]]:
    """Every new node's path until it ends; then the leaf of the whole tree that is expanded."""
    tree, pool = state["tree"], state["pool"]
    ends, grows = _rows(state, done=True), _rows(state, done=False)
    node_of = {}
    for row, path in enumerate(pool):
        if path is not None:
            node_of[row] = state["node_of_slot"][path["parent"]]
            if not state["simulates"]:
                tree.append(_node(path, parent=node_of[row]))
                tree[-1]["leaf"] = row in grows
                node_of[row] = len(tree) - 1
    waiting = state["node_of_slot"] if state["simulates"] else list(node_of.values())
    rewards = {
        node_of[row]: path_score(rules.path_score, pool[row]["scores"])
        for row in ends
        if pool[row]["answer"] >= 0
    }
    for node in waiting:
        if node not in [node_of[row] for row in grows]:
            _visit(tree, node, rewards.get(node, 0.0))
    state["simulates"] = bool(grows)
    state["node_of_slot"] = [node_of[row] for row in grows]
    places = state["width"] - len(state["finished"]) - len(ends)
    leaves = [node for node in tree if node["leaf"]]
    if (
        grows
        or not leaves
        or places == 0
        or len(tree) + min(rules.expansion, places) > rules.max_nodes
        or state["spent"] >= state["budget"]
        or state["step"] + 1 >= state["max_steps"]
    ):
        return pool, grows + ends

    def ucb(node: dict[str, Any]) -> float:
        log_visits = math.log(max(tree[node["path"]["parent"]]["visits"], 1))
        bonus = rules.exploration * math.sqrt(log_visits / node["visits"])
        return node["value"] / node["visits"] + bonus

    best = max(leaves, key=ucb)  # the first of equal ones
    best["leaf"] = False
    state["node_of_slot"] = [next(row for row, node in enumerate(tree) if node is best)]
    return [best["path"], *pool], [0, *(1 + row for row in ends)]


# LiteSearch


def _node_budget(rules: Rules, state: dict[str, Any], path: dict[str, Any]) -> int:
    """The published number of children; the question is worth as much as the greedy solution."""
    depth, greedy = path["depth"] + 1, state["greedy_value"]
    value = path_score(rules.path_score, path["scores"]) if path["depth"] else greedy
    value = (value + greedy / depth) / (1 + 1 / depth)
    number = 1
    while number < rules.max_budget and 1 - (1 - value) ** number <= rules.expected:
        number += 1
    return min(max(round(number / depth), 2), rules.max_budget)


def _best_node(rules: Rules, state: dict[str, Any]) -> tuple[list[Any], list[int]]:
    """The greedy path until it ends; then the solutions, and the node that gets children next."""
    children = [row for row, path in enumerate(state["pool"]) if path is not None]
    ends, grows = _rows(state, done=True), _rows(state, done=False)
    if state["greedy_grows"]:
        for row in ends:
            state["greedy_value"] = path_score(rules.path_score, state["pool"][row]["scores"])
        if grows:
            return state["pool"], children
        state["greedy_grows"] = False
    else:
        for row in sorted(ends + grows):
            path = state["pool"][row]
            state["nodes"].append({"path": path, "open": not path["done"]})

    def value(node: dict[str, Any]) -> float:
        return path_score(rules.path_score, node["path"]["scores"])

    leaves = [node for node in state["nodes"] if node["path"]["done"]]
    bar = max(rules.min_value, state["greedy_value"] - 0.01)
    available = [node for node in state["nodes"] if node["open"] or node["path"]["done"]]
    full = len(state["finished"]) + len(ends) >= state["width"]
    stops = (
        not available
        or len(leaves) >= rules.end_leaf_num
        or any(value(leaf) > bar for leaf in leaves)
        or state["num_grown"] == rules.limit
        or full
        or state["spent"] >= state["budget"]
    )
    if stops:
        return state["pool"], ends
    best = max(available, key=value)  # the first of equal ones
    is_root = best is state["nodes"][0]
    if best["path"]["done"] or (value(best) < 0.01 and not is_root):
        return state["pool"], ends
    best["open"] = False
    state["num_grown"] += 1
    return [best["path"], *state["pool"]], [0, *(1 + row for row in ends)]


# The answer


def answer(rules: Rules, finished: Sequence[dict[str, Any]]) -> int:
    """Row of the path that speaks for the search, or -1."""
    voters = [row for row, path in enumerate(finished) if path["answer"] >= 0]
    if rules.kind == "sequential_halving":
        voters = [row for row in voters if finished[row]["weight"] > 0] or voters
    if not voters:
        return -1
    if rules.vote == "best":
        if rules.confident:
            return min(voters, key=lambda row: (-_weighed(rules, finished[row]), row))
        return _best_first(rules, voters, finished)[0]
    votes: dict[int, float] = {}
    for row in voters:
        path = finished[row]
        score = path["weight"] * path_score(rules.path_score, path["scores"])
        votes[path["answer"]] = votes.get(path["answer"], 0.0) + (
            path["weight"] if rules.vote in ("majority", "certainty") else score
        )
    return min(voters, key=lambda row: (-votes[finished[row]["answer"]], row))


# Padding, as the code under test has it


EMPTY = {
    "done": False,
    "parent": 0,
    "group": 0,
    "depth": 0,
    "scores": [],
    "log_prob": 0.0,
    "num_tokens": 0,
    "unread": 0,
    "answer": -1,
    "text": -1,
    "weight": 0.0,
}


def padded(
    paths: Sequence[dict[str, Any] | None], capacity: int, depth_capacity: int
) -> dict[str, list[Any]]:
    """Columns of a list of paths, filled up to fixed sizes; None is a row of padding."""
    rows = list(paths) + [None] * (capacity - len(paths))
    columns: dict[str, list[Any]] = {"valid": [row is not None for row in rows]}
    for name in EMPTY:
        columns[name] = [EMPTY[name] if row is None else row[name] for row in rows]
    columns["step_scores"] = [
        list(scores) + [0.0] * (depth_capacity - len(scores)) for scores in columns.pop("scores")
    ]
    return columns
