"""From samples of the world to parameters of the simulator, one simple estimator each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import optimize, stats

from cats_jax.world import task
from search import simulation
from search.simulation.draws import power_law_log_prob

from .simulator_samples import MAX_DEPTH, SETTINGS, TEMPERATURES, TOP_K, TOP_PS, Children

NUM_LEVELS = len(task.LEVELS)
NUM_POINTS = 29

_GREEDY = 1  # index into SETTINGS
_GREEDY_SLOPE = 10.0  # temperature 0 as the limit of a steep curve, for the likelihood only
_MIN_ROWS = 60  # a table wants at least as many samples
_MAX_SCORE_LOGIT = 16.0  # float32 scores can't tell more apart
_MAX_FACTOR = 0.95  # some of every score is its own
_GRID_SHARES = stats.norm.cdf(
    np.linspace(-simulation.SCORE_GRID_END, simulation.SCORE_GRID_END, NUM_POINTS)
)
_SIMILAR_KINDS = ((1,), (0,), (3, 6), (2, 7), (5, 6, 2), (4, 7, 3), (7, 4, 2), (6, 5, 3))


def fit(
    children: Children,
    sparsities: Sequence[tuple[float, float]],
    log: Callable[[str], None] = print,
) -> simulation.SimulatorParams:
    """All parameters of the simulator.

    `children` has one column of scores per PRM; `sparsities` are each PRM's, total and last layer.
    """
    policy = fit_margins(children)
    log(f"margins: {policy.steps} iterations")
    log(f"  question scale {np.round(policy.question_scale, 2).tolist()}")
    log(f"  node scale     {np.round(policy.node_scale, 2).tolist()}")
    texts = fit_texts(children, policy.node_margin)
    log(f"texts: exponent slope {texts.slope:.2f}, scale {texts.scale:.2f}")
    scores = [fit_scores(children, prm, policy.ease) for prm in range(len(sparsities))]
    slope, shift = _on_grid(policy.slope), _on_grid(policy.shift)
    lucky, popular, no_answer = fit_answers(children)
    # Off is 1 / k = 0: the two top-k figures are effects at TOP_K, times TOP_K.
    return simulation.from_dict(
        {
            "margin": policy.margin,
            "question_scale": policy.question_scale,
            "node_scale": policy.node_scale,
            "wrong_shift": policy.wrong_shift,
            "alternative": fit_alternatives(children),
            "end": fit_ends(children),
            "sampling": {
                "temperature": np.array(TEMPERATURES),
                "top_p": np.array(TOP_PS),
                "slope": slope,
                "shift": shift,
                "exponent": _on_grid(texts.exponent),
                "exponent_slope": texts.slope,
                "exponent_scale": texts.scale,
                "invalid": np.stack([_on_grid(share) for share in fit_invalid(children)]),
                "top_k_slope": TOP_K * np.log(policy.slope[-1]),
                "top_k_shift": TOP_K * policy.shift[-1],
            },
            "lucky": lucky,
            "popular": popular,
            "no_answer": no_answer,
            "num_tokens": fit_tokens(children),
            "scores": {name: np.stack([table[name] for table in scores]) for name in scores[0]},
            "sparsity_total": np.array(sparsities, float).reshape(-1, 2)[:, 0],
            "sparsity_last_layer": np.array(sparsities, float).reshape(-1, 2)[:, 1],
            "max_depth": MAX_DEPTH,
        }
    )


# --- The policy: margins and what sampling parameters do to them --------------------------------


@dataclasses.dataclass(frozen=True)
class Margins:
    """The result of `fit_margins`; `S` settings in the order of `SETTINGS`.

    Attributes:
        margin: f[L, T].
        question_scale, node_scale, wrong_shift: f[L].
        slope, shift: f[S].
        ease: f[R]; per row of `Children`, posterior mean of its node's ease.
        node_margin: f[R]; the same of its margin.
        steps: iterations of the optimiser.
    """

    margin: np.ndarray
    question_scale: np.ndarray
    node_scale: np.ndarray
    wrong_shift: np.ndarray
    slope: np.ndarray
    shift: np.ndarray
    ease: np.ndarray
    node_margin: np.ndarray
    steps: int


def fit_margins(children: Children, points: tuple[int, int] = (11, 11)) -> Margins:
    """Maximum marginal likelihood of a logit model with two random effects.

    A node's margin is margin[level, depth] + question_scale u + node_scale v, with u of the
    question and v of the node standard normal; k of n children at setting s are consistent with
    probability sigmoid(slope_s * margin + shift_s) each. u and v are integrated out by
    Gauss-Hermite quadrature with `points` points. Visiting only nodes on paths worth growing does
    not bias the fit, because the choice depends on observed children. Weak normal priors (sd 3
    around the level's mean margin, sd 1 on logarithms and shifts) keep cells without samples
    finite.
    """
    counts, node_of_row = _node_counts(children)
    num_questions = int(children.question.max()) + 1
    model = _MarginModel(counts, num_questions, _hermite(points[0]), _hermite(points[1]))
    start, unravel = ravel_pytree(_MarginParams.start())
    value_and_gradient = jax.jit(jax.value_and_grad(lambda vector: model.loss(unravel(vector))))

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(jnp.asarray(vector, jnp.float32))
        return float(value), np.asarray(gradient, float)

    result = optimize.minimize(
        objective,
        np.asarray(start, float),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 150, "ftol": 1e-7},
    )
    p = unravel(jnp.asarray(result.x, jnp.float32))
    slope, shift = p.by_setting()
    ease, node_margin = jax.jit(model.posterior)(p)
    shift = np.array(shift, float)
    shift[_GREEDY] /= _GREEDY_SLOPE
    return Margins(
        margin=np.asarray(p.margin, float),
        question_scale=np.exp(np.asarray(p.log_question, float)),
        node_scale=np.exp(np.asarray(p.log_node, float)),
        wrong_shift=np.asarray(p.wrong_shift, float),
        slope=np.asarray(slope, float),
        shift=shift,
        ease=np.asarray(ease, float)[node_of_row],
        node_margin=np.asarray(node_margin, float)[node_of_row],
        steps=int(result.nit),
    )


class _MarginParams(NamedTuple):
    """What `fit_margins` estimates; the settings are all but the first, which is the reference."""

    margin: Any  # f[L, T]
    mean: Any  # f[L]; the level's mean margin
    log_question: Any  # f[L]
    log_node: Any  # f[L]
    wrong_shift: Any  # f[L]
    log_slope: Any  # f[S - 1]
    shift: Any  # f[S - 1]

    @classmethod
    def start(cls) -> _MarginParams:
        by_level, by_setting = np.zeros(NUM_LEVELS), np.zeros(len(SETTINGS) - 1)
        return cls(
            margin=np.full((NUM_LEVELS, MAX_DEPTH), 1.5),
            mean=np.full(NUM_LEVELS, 1.5),
            log_question=by_level,
            log_node=np.full(NUM_LEVELS, 0.5),
            wrong_shift=by_level,
            log_slope=by_setting,
            shift=by_setting,
        )

    def by_setting(self) -> tuple[jax.Array, jax.Array]:
        """Slope and shift of every setting, f[S] each."""
        slope = jnp.concatenate([jnp.ones(1), jnp.exp(self.log_slope)])
        shift = jnp.concatenate([jnp.zeros(1), self.shift])
        slope = slope.at[_GREEDY].set(_GREEDY_SLOPE)
        return slope, shift.at[_GREEDY].multiply(_GREEDY_SLOPE)

    def penalty(self) -> jax.Array:
        """Minus twice the logarithm of the prior."""
        total = jnp.sum(((self.margin - self.mean[:, None]) / 3.0) ** 2)
        total = total + jnp.sum((self.mean / 3.0) ** 2)
        for values in (
            self.log_question,
            self.log_node,
            self.wrong_shift,
            self.log_slope,
            self.shift,
        ):
            total = total + jnp.sum(values**2)
        return total


class _MarginModel(NamedTuple):
    """The likelihood of `fit_margins`: counts of nodes, and quadrature points with weights."""

    counts: dict[str, jax.Array]  # of `_node_counts`
    num_questions: int
    of_question: tuple[jax.Array, jax.Array]
    of_node: tuple[jax.Array, jax.Array]

    def loss(self, p: _MarginParams) -> jax.Array:
        """Minus the logarithm of likelihood and prior."""
        terms, _ = self._node_terms(p)
        _, by_question = self._integrals(terms)
        return 0.5 * p.penalty() - jnp.sum(jax.nn.logsumexp(by_question, axis=1))

    def posterior(self, p: _MarginParams) -> tuple[jax.Array, jax.Array]:
        """Posterior mean of each node's ease and margin."""
        terms, effect = self._node_terms(p)
        with_v, by_question = self._integrals(terms)
        posterior_u = jax.nn.softmax(by_question, axis=1)
        posterior_v = jax.nn.softmax(with_v, axis=2)
        mean = jnp.sum(posterior_v * effect, axis=2)
        mean = jnp.sum(posterior_u[self.counts["question"]] * mean, axis=1)
        spread = jnp.sqrt(jnp.exp(2 * p.log_question) + jnp.exp(2 * p.log_node))
        return mean / spread[self.counts["level"]], self._centre(p) + mean

    def _centre(self, p: _MarginParams) -> jax.Array:
        level = self.counts["level"]
        wrong = jnp.where(self.counts["right"], 0.0, p.wrong_shift[level])
        return p.margin[level, self.counts["depth"]] + wrong

    def _node_terms(self, p: _MarginParams) -> tuple[jax.Array, jax.Array]:
        """Log-likelihoods [node, u, v], and the effects question_scale u + node_scale v."""
        level, (grid_u, _), (grid_v, _) = self.counts["level"], self.of_question, self.of_node
        effect = (
            jnp.exp(p.log_question)[level][:, None, None] * grid_u[None, :, None]
            + jnp.exp(p.log_node)[level][:, None, None] * grid_v[None, None, :]
        )
        centre, (slope, shift) = self._centre(p), p.by_setting()
        total = jnp.zeros(effect.shape)
        for s in range(len(SETTINGS)):
            x = slope[s] * (centre[:, None, None] + effect) + shift[s]
            k, n = (self.counts[name][:, s][:, None, None] for name in ("k", "n"))
            total = total + k * x - n * jax.nn.softplus(x)
        return total, effect

    def _integrals(self, terms: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The terms with the weights of v, and their sums over v and nodes, [question, u]."""
        with_v = terms + jnp.log(self.of_node[1])[None, None, :]
        by_question = jax.ops.segment_sum(
            jax.nn.logsumexp(with_v, axis=2), self.counts["question"], self.num_questions
        )
        return with_v, by_question + jnp.log(self.of_question[1])[None, :]


def _node_counts(children: Children) -> tuple[dict[str, jax.Array], np.ndarray]:
    """Per node: where it is, and k of n consistent children per setting; and each row's node."""
    _, first, node = np.unique(children.node, return_index=True, return_inverse=True)
    n = np.zeros((first.size, len(SETTINGS)))
    k = np.zeros_like(n)
    valid = children.valid
    np.add.at(n, (node[valid], children.setting[valid]), 1.0)
    hit = valid & children.consistent
    np.add.at(k, (node[hit], children.setting[hit]), 1.0)
    data = {
        "question": jnp.asarray(children.question[first]),
        "level": jnp.asarray(children.level[first]),
        "depth": jnp.asarray(children.depth[first]),
        "right": jnp.asarray(children.after_right[first]),
        "k": jnp.asarray(k, jnp.float32),
        "n": jnp.asarray(n, jnp.float32),
    }
    return data, node


def _hermite(points: int) -> tuple[jax.Array, jax.Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return jnp.asarray(nodes, jnp.float32), jnp.asarray(weights / weights.sum(), jnp.float32)


def _on_grid(by_setting: np.ndarray) -> np.ndarray:
    """f[S] -> f[H, J]; top-p does nothing at temperature 0."""
    grid = np.zeros((len(TEMPERATURES), len(TOP_PS)))
    for i, temperature in enumerate(TEMPERATURES):
        for j, top_p in enumerate(TOP_PS):
            setting = (temperature, 1.0 if temperature == 0 else top_p, 0)
            grid[i, j] = by_setting[SETTINGS.index(setting)]
    return grid


# --- Texts, ends, answers -----------------------------------------------------------------------


def fit_alternatives(children: Children) -> np.ndarray:
    """f[L, T]: a with 2 a (1 - a) = chance that two right siblings have different texts."""
    result = np.zeros((NUM_LEVELS, MAX_DEPTH))
    rows = _reference(children) & children.valid & children.consistent
    for level in range(NUM_LEVELS):
        for depth in range(MAX_DEPTH):
            here = rows & (children.level == level) & (children.depth == depth)
            same, pairs = _same_text_pairs(children.node[here], children.text[here])
            if pairs > _MIN_ROWS:
                different = min(1 - same / pairs, 0.5)
                result[level, depth] = (1 - np.sqrt(1 - 2 * different)) / 2
    return result


@dataclasses.dataclass(frozen=True)
class Texts:
    """The result of `fit_texts`.

    A node's exponent is exponent * exp(slope * margin + scale * normal).

    Attributes:
        exponent: f[S], per sampling setting.
        slope, scale: coefficients of the exponent.
    """

    exponent: np.ndarray
    slope: float
    scale: float


def fit_texts(children: Children, node_margin: np.ndarray) -> Texts:
    """The power law of mistakes, by how often siblings' mistakes agree.

    Only first mistakes count. At the reference setting, nodes with two or more mistakes are grouped
    by margin. Log exponent, slope and scale are the least-squares fit over the groups to how often
    two mistakes of a node agree, and all of them (in nodes with three or more). Other settings keep
    slope and scale; their exponent is the one at which two mistakes agree as often as observed.

    Args:
        children: all settings.
        node_margin: per row, from `fit_margins`.
    """
    tables = _agreement_tables()
    normals, weights = (np.asarray(x, float) for x in _hermite(9))
    by_setting = [_mistakes(children, node_margin, s) for s in range(len(SETTINGS))]

    def predicted(table: np.ndarray, nodes: _Mistakes, p: np.ndarray) -> np.ndarray:
        """Chance per node that so many mistakes agree; rows of `table` are numbers of mistakes."""
        log_exponent = p[0] + p[1] * nodes.margin[:, None] + p[2] * normals[None, :]
        position = np.interp(log_exponent, _LOG_EXPONENTS, np.arange(_LOG_EXPONENTS.size))
        lower = np.minimum(position.astype(int), _LOG_EXPONENTS.size - 2)
        weight = position - lower
        number = np.minimum(nodes.number, table.shape[0] - 1)[:, None]
        chance = (1 - weight) * table[number, lower] + weight * table[number, lower + 1]
        return chance @ weights

    pair_table = np.repeat(tables[2:3], tables.shape[0], axis=0)
    reference = by_setting[0]
    if reference.number.size < _MIN_ROWS:
        return Texts(np.full(len(SETTINGS), 2.0), 0.0, 0.0)
    edges = np.quantile(reference.margin, np.linspace(0, 1, _TEXT_GROUPS + 1)[1:-1])
    group = np.searchsorted(edges, reference.margin)
    membership = np.eye(_TEXT_GROUPS)[group]
    pair_weight = membership * (reference.number * (reference.number - 1.0))[:, None]
    many_weight = membership * (reference.number >= 3)[:, None]

    def misfit(p: np.ndarray) -> float:
        total = 0.0
        for seen, table, weight in (
            (reference.pair_share, pair_table, pair_weight),
            (reference.all_same, tables, many_weight),
        ):
            difference = seen - predicted(table, reference, p)
            per_group = (weight * difference[:, None]).sum(0) / np.maximum(weight.sum(0), 1.0)
            total += float((per_group**2).sum())
        return total

    found = optimize.minimize(
        misfit, np.array([0.7, 0.1, 0.3]), method="Nelder-Mead", options={"maxiter": 300}
    ).x
    found[2] = abs(found[2])
    exponents = np.full(len(SETTINGS), np.exp(found[0]))
    for setting in range(1, len(SETTINGS)):
        nodes = by_setting[setting]
        pairs = nodes.number * (nodes.number - 1.0)
        if setting == _GREEDY or pairs.sum() < _MIN_ROWS:
            continue

        def excess(log_exponent: float, nodes: _Mistakes = nodes, pairs=pairs) -> float:
            p = np.array([log_exponent, found[1], found[2]])
            return float(np.sum(pairs * (predicted(pair_table, nodes, p) - nodes.pair_share)))

        low, high = _LOG_EXPONENTS[0], _LOG_EXPONENTS[-1]
        if excess(low) < 0 < excess(high):
            root = optimize.root_scalar(excess, bracket=(low, high)).root
            exponents[setting] = np.exp(root)
    exponents[_GREEDY] = exponents.max()  # never read: greedy takes the most popular mistake
    return Texts(exponents, float(found[1]), float(found[2]))


_LOG_EXPONENTS = np.linspace(-3.0, np.log(16.0), 60)
_TEXT_GROUPS = 6
_MAX_MISTAKES = 8  # of one node at one setting


@dataclasses.dataclass(frozen=True)
class _Mistakes:
    """Nodes with two or more mistakes at one setting, `M` of them.

    Attributes:
        margin, number: f[M], and i[M] the number of mistakes.
        pair_share: f[M]; share of ordered pairs with the same text.
        all_same: f[M]; 1 where all have the same text.
    """

    margin: np.ndarray
    number: np.ndarray
    pair_share: np.ndarray
    all_same: np.ndarray


def _mistakes(children: Children, node_margin: np.ndarray, setting: int) -> _Mistakes:
    # After a mistake, nobody may be able to follow the path: then every step is a mistake.
    first_wrong = children.valid & children.after_right & ~children.consistent
    rows = np.flatnonzero(first_wrong & (children.setting == setting))
    _, first, node, number = np.unique(
        children.node[rows], return_index=True, return_inverse=True, return_counts=True
    )
    _, text_first, per_text = np.unique(children.text[rows], return_index=True, return_counts=True)
    same = np.bincount(node[text_first], per_text * (per_text - 1.0), minlength=number.size)
    chosen = number >= 2
    share = same[chosen] / (number[chosen] * (number[chosen] - 1.0))
    return _Mistakes(
        margin=node_margin[rows[first]][chosen],
        number=number[chosen],
        pair_share=share,
        all_same=(share > 1 - 1e-9).astype(float),
    )


def _agreement_tables() -> np.ndarray:
    """f[mistakes, exponents]: chance that n mistakes agree, rows 0.._MAX_MISTAKES."""
    shares = np.stack(
        [_power_law_shares(e, simulation.NUM_WRONG_TEXTS) for e in np.exp(_LOG_EXPONENTS)], axis=1
    )
    return np.stack([(shares ** max(n, 1)).sum(0) for n in range(_MAX_MISTAKES + 1)])


def _power_law_shares(exponent: float, num_classes: int) -> np.ndarray:
    log_shares = power_law_log_prob(
        jnp.arange(num_classes, dtype=jnp.int32),
        jnp.full((num_classes,), exponent, jnp.float32),
        num_classes,
    )
    return np.exp(np.asarray(log_shares, float))


def fit_invalid(children: Children) -> np.ndarray:
    """f[2, S]: share of invalid samples after a wrong | a right path."""
    result = np.zeros((2, len(SETTINGS)))
    for right in (0, 1):
        for setting in range(len(SETTINGS)):
            here = (children.setting == setting) & (children.after_right == bool(right))
            if here.any():
                result[right, setting] = 1 - children.valid[here].mean()
    return result


def fit_ends(children: Children) -> np.ndarray:
    """f[L, 2, T]: share of steps that end the path; where there are none, the last step does."""
    result = np.zeros((NUM_LEVELS, 2, MAX_DEPTH))
    for level in range(NUM_LEVELS):
        last = level + 3  # depth of the closing step: level + 1 has level + 3 operations
        result[level, :, last:] = 1.0
        for right in (0, 1):
            for depth in range(MAX_DEPTH):
                here = (
                    _reference(children)
                    & children.valid
                    & (children.level == level)
                    & (children.depth == depth)
                    & (children.right == bool(right))
                )
                if here.sum() >= 10:
                    result[level, right, depth] = children.done[here].mean()
    return result


def fit_tokens(children: Children) -> np.ndarray:
    """f[L, T]: mean tokens of a valid step; the level's mean where there are none."""
    result = np.zeros((NUM_LEVELS, MAX_DEPTH))
    rows = _reference(children) & children.valid
    for level in range(NUM_LEVELS):
        at_level = rows & (children.level == level)
        result[level] = children.num_tokens[at_level].mean() if at_level.any() else 10.0
        for depth in range(MAX_DEPTH):
            here = at_level & (children.depth == depth)
            if here.sum() >= 10:
                result[level, depth] = children.num_tokens[here].mean()
    return result


def fit_answers(children: Children) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f[L] each: lucky, popular, no_answer of paths that ended with a mistake.

    `popular` follows from how often two such paths of one question agree whose mistakes differ:
    both are then popular, and the same one.
    """
    lucky, popular, no_answer = (np.zeros(NUM_LEVELS) for _ in range(3))
    shares = _power_law_shares(simulation.POPULAR_EXPONENT, simulation.NUM_POPULAR_ANSWERS)
    ended = _reference(children) & children.valid & children.done & ~children.right
    for level in range(NUM_LEVELS):
        here = ended & (children.level == level)
        if not here.any():
            continue
        answer = children.answer[here]
        no_answer[level] = np.mean(answer < 0)
        answered = here & (children.answer >= 0)
        lucky[level] = np.mean(children.answer[answered] == 0) if answered.any() else 0.0
        wrong = answered & (children.answer > 0)
        agree = pairs = 0
        for question in np.unique(children.question[wrong]):
            rows = wrong & (children.question == question)
            # One path per set of mistakes: equal ones would agree for another reason.
            _, first = np.unique(children.slips[rows], return_index=True)
            answers = children.answer[rows][first]
            _, counts = np.unique(answers, return_counts=True)
            agree += int((counts * (counts - 1)).sum())
            pairs += answers.size * (answers.size - 1)
        if pairs:
            share = np.sqrt(agree / pairs / np.sum(shares**2))
            popular[level] = min(share, 1.0) * (1 - lucky[level])
    return lucky, popular, no_answer


def _reference(children: Children) -> np.ndarray:
    return children.setting == 0


def _same_text_pairs(node: np.ndarray, text: np.ndarray) -> tuple[int, int]:
    """Ordered pairs of rows of one node with the same text, and all ordered pairs."""
    if not node.size:
        return 0, 0
    _, per_node = np.unique(node, return_counts=True)
    _, per_text = np.unique(np.stack([node, text]), axis=1, return_counts=True)
    return int((per_text * (per_text - 1)).sum()), int((per_node * (per_node - 1)).sum())


# --- A PRM's scores -----------------------------------------------------------------------------


def fit_scores(children: Children, prm: int, ease: np.ndarray) -> dict[str, np.ndarray]:
    """`simulation.ScoreTables` of one PRM, as arrays by field name.

    Each distinct step counts once. y is the normal score, by rank, of the score's logit among all
    steps. Within each kind, offsets by level, a and g are the least-squares coefficients of y on
    the parent's y and the node's ease. The residuals give the residual table, and their normal
    scores z give b: b^2 is the mean product of two siblings' z. Right steps seldom have right
    siblings: their b is the mean product with first wrong siblings, divided by the wrong ones' b.
    Kinds with too few samples take the figures of the next kind in `_SIMILAR_KINDS`.

    Args:
        children: rows at other settings than the reference are left out.
        prm: column of the scores.
        ease: per row, from `fit_margins`.
    """
    steps = scored_steps(children, prm, ease)
    kinds, levels = simulation.NUM_KINDS, NUM_LEVELS
    known = np.isfinite(steps.parent_y)
    offset, loading = np.zeros((kinds, levels)), np.zeros((kinds, 3))
    residual_table = np.zeros((kinds, NUM_POINTS))
    z = np.full(steps.y.size, np.nan)
    filled = np.zeros(kinds, bool)
    for k in range(kinds):
        here = known & (steps.kind == k)
        if here.sum() < _MIN_ROWS:
            continue
        by_level = np.eye(levels)[steps.level[here]]
        design = np.column_stack([by_level, steps.parent_y[here], steps.ease[here]])
        present = by_level.any(axis=0)
        columns = np.append(present, [True, True])
        found = np.linalg.lstsq(design[:, columns], steps.y[here], rcond=None)[0]
        # Levels without such steps get the mean of the others.
        offset[k] = found[:-2].mean()
        offset[k, present] = found[:-2]
        loading[k, 0], loading[k, 2] = found[-2:]
        residual = steps.y[here] - design[:, columns] @ found
        residual_table[k] = np.quantile(residual, _GRID_SHARES, method="hazen")
        z[here] = _normal_scores(residual)
        filled[k] = True
    products = _sibling_products(z, steps.kind, steps.node)
    for k in range(kinds):
        loading[k, 1] = np.sqrt(np.clip(products[k, k], 0.0, _MAX_FACTOR**2))
    for end in (0, 1):
        wrong = loading[2 + end, 1]
        if wrong > 0.1 and products[end, 2 + end] != 0.0:
            loading[end, 1] = np.clip(products[end, 2 + end] / wrong, -_MAX_FACTOR, _MAX_FACTOR)
    for k in range(kinds):
        if not filled[k]:
            donor = next((d for d in _SIMILAR_KINDS[k] if filled[d]), None)
            if donor is not None:
                offset[k], loading[k] = offset[donor], loading[donor]
                residual_table[k] = residual_table[donor]
    right = steps.y[steps.kind == 0]
    return {
        "logit": np.quantile(steps.logit, _GRID_SHARES, method="hazen"),
        "offset": offset,
        "loading": loading,
        "residual": residual_table,
        "root": np.array([right.mean(), right.std()]) if right.size else np.array([0.0, 1.0]),
    }


@dataclasses.dataclass(frozen=True)
class ScoredSteps:
    """Distinct steps sampled at the reference setting, with one PRM's scores.

    Attributes:
        node, level, kind: i[D].
        logit, y: f[D]; of the score, and its normal score by rank.
        parent_y: f[D]; NaN for first steps.
        ease: f[D]; of the parent node.
    """

    node: np.ndarray
    level: np.ndarray
    kind: np.ndarray
    logit: np.ndarray
    y: np.ndarray
    parent_y: np.ndarray
    ease: np.ndarray


def scored_steps(children: Children, prm: int, ease: np.ndarray) -> ScoredSteps:
    """Each distinct text under a node once."""
    rows = np.flatnonzero((children.setting == 0) & children.valid)
    _, first = np.unique(children.text[rows], return_index=True)
    rows = rows[np.sort(first)]
    score = children.score[rows, prm]
    logit = np.log(np.maximum(score, 1e-12)) - np.log(np.maximum(1 - score, 1e-12))
    logit = np.clip(logit, -_MAX_SCORE_LOGIT, _MAX_SCORE_LOGIT)
    y = _normal_scores(logit)
    y_of_text = dict(zip(children.text[rows].tolist(), y.tolist(), strict=True))
    parents = children.parent_row[rows]
    parent_y = [np.nan if p < 0 else y_of_text[int(children.text[p])] for p in parents]
    off_path = np.where(children.consistent[rows], 2, 3)
    group = np.where(children.right[rows], 0, np.where(children.after_right[rows], 1, off_path))
    return ScoredSteps(
        node=children.node[rows],
        level=children.level[rows],
        kind=2 * group + children.done[rows],
        logit=logit,
        y=y,
        parent_y=np.array(parent_y),
        ease=ease[rows],
    )


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks; ties share their mean rank."""
    return stats.norm.ppf((stats.rankdata(values) - 0.5) / values.size)


def _sibling_products(z: np.ndarray, kind: np.ndarray, node: np.ndarray) -> np.ndarray:
    """f[C, C]: mean product of the z of two siblings of the given kinds; 0 if too few."""
    known = np.isfinite(z)
    node, kind, z = np.unique(node[known], return_inverse=True)[1], kind[known], z[known]
    sums = np.zeros((node.max(initial=-1) + 1, simulation.NUM_KINDS))
    counts, squares = np.zeros_like(sums), np.zeros_like(sums)
    np.add.at(sums, (node, kind), z)
    np.add.at(counts, (node, kind), 1.0)
    np.add.at(squares, (node, kind), z**2)
    products = sums.T @ sums - np.diag(squares.sum(0))
    pairs = counts.T @ counts - np.diag(counts.sum(0))
    return np.where(pairs >= _MIN_ROWS, products / np.maximum(pairs, 1.0), 0.0)
