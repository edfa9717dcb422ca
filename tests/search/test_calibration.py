"""Calibrated scores against their formula, and the hand-made rules."""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import search
from search.calibration import calibrate_children, unscored_probability

POSITIVE = st.floats(0, 4)
CALIBRATION = st.tuples(
    st.floats(-3, 3), POSITIVE, POSITIVE, POSITIVE, st.floats(-3, 3), st.floats(-1, 4)
)
LOG_PROB = st.just(math.nan) | st.floats(-40, 0, width=32)


@hypothesis.given(
    st.floats(0, 1, width=32), st.integers(1, 64), st.integers(0, 64), LOG_PROB, CALIBRATION
)
def test_calibrated_scores_follow_the_formula(score, same_text, others, log_prob, calibration):
    actual = search.calibration.calibrated_score(
        jnp.float32(score),
        jnp.float32(same_text),
        jnp.float32(same_text + others),
        jnp.float32(log_prob),
        search.Calibration(*map(jnp.float32, calibration)),
    )
    expected = oracle.calibrated(score, same_text, same_text + others, log_prob, calibration)
    assert math.isclose(float(actual), expected, rel_tol=2e-4, abs_tol=1e-7)


@hypothesis.given(LOG_PROB, CALIBRATION)
def test_probabilities_without_a_score_follow_the_formula(log_prob, calibration):
    values = search.Calibration(*map(jnp.float32, calibration))
    actual = unscored_probability(jnp.float32(log_prob), values)
    expected = oracle.unscored(log_prob, calibration)
    assert math.isclose(float(actual), expected, rel_tol=2e-4, abs_tol=1e-7)


def test_without_a_calibration_an_unscored_step_has_the_policys_probability():
    probability = jnp.asarray([0.0, 1e-9, 1e-4, 0.3, 0.5, 0.99, 1.0])
    found = unscored_probability(jnp.log(probability), search.Calibration())
    np.testing.assert_allclose(found, np.clip(probability, 1e-6, 1 - 1e-6), rtol=1e-3)
    assert unscored_probability(jnp.float32(jnp.nan), search.Calibration()) == 0.5


def test_the_identity_leaves_a_score_and_clips_only_the_ends():
    scores = jnp.asarray([0.0, 1e-3, 0.25, 0.5, 0.9, 1.0])
    one = jnp.ones_like(scores)
    same = search.calibration.calibrated_score(scores, one, one, -one, search.Calibration())
    np.testing.assert_allclose(same, np.clip(scores, 1e-2, 1 - 1e-2), rtol=1e-4)


VALUES = (-0.5, 0.75, 0.5, 0.25, 0.125, 0.5)
ROW = st.tuples(
    st.booleans(),  # valid
    st.integers(0, 1),  # parent
    st.integers(0, 2),  # text
    st.booleans(),  # the PRM was asked for it
    st.floats(0, 1, width=32),
    LOG_PROB,
)


@hypothesis.given(st.lists(ROW, min_size=6, max_size=6))
def test_a_child_without_a_score_takes_that_of_an_equal_text(rows):
    valid, parent, text, scored, score, log_prob = zip(*rows, strict=True)
    start = search.init(jnp.int32(0), strategy=search.beam(), num_candidates=6, max_depth=2)
    before = [[0.25, s if asked else 0.0] for s, asked in zip(score, scored, strict=True)]
    unread = [0 if asked else 3 + row for row, asked in enumerate(scored)]
    pool = start.pool.replace(
        valid=jnp.asarray(valid),
        parent=jnp.asarray(parent, jnp.int32),
        text=jnp.asarray(text, jnp.int32),
        depth=jnp.full(6, 2, jnp.int32),
        step_scores=jnp.asarray(before, jnp.float32),
        log_prob=jnp.asarray(log_prob, jnp.float32),
        unread=jnp.asarray(unread, jnp.int32),
        num_tokens=jnp.arange(6, dtype=jnp.int32),
    )
    after = _calibrate(pool, search.Calibration(*map(jnp.float32, VALUES)))
    for row in range(6):
        if not valid[row]:
            assert after.step_scores[row].tolist() == pool.step_scores[row].tolist()
            continue
        siblings = [r for r in range(6) if valid[r] and parent[r] == parent[row]]
        same = [r for r in siblings if text[r] == text[row]]
        known = [score[r] for r in same if scored[r]]
        if known:
            raw = score[row] if scored[row] else max(known)
            expected = oracle.calibrated(raw, len(same), len(siblings), log_prob[row], VALUES)
        else:
            expected = oracle.unscored(log_prob[row], VALUES)
        np.testing.assert_allclose(after.step_scores[row], [0.25, expected], rtol=2e-4)
        path_is_read = any(scored[r] for r in siblings)
        assert after.unread[row] == (0 if known else row if path_is_read else unread[row])


_calibrate = jax.jit(calibrate_children)


def test_a_prm_that_cannot_rank_leaves_the_vote_to_the_siblings():
    """Slope 0: beam search keeps what most siblings say, whatever the scores are."""
    root, texts, scores = jnp.int32(0), [1, 2, 2, 2], [0.9, 0.1, 0.2, 0.1]

    def expand(params, key, request):
        del params, key
        rows = jnp.arange(4, dtype=jnp.int32)
        zeros = jnp.zeros(4, jnp.int32)
        return search.Expansion(
            valid=rows < request.num_samples[0],
            parent=zeros,
            score=jnp.asarray(scores, jnp.float32),
            done=jnp.ones(4, bool),
            answer=jnp.asarray(texts, jnp.int32),
            text=jnp.asarray(texts, jnp.int32),
            log_prob=jnp.zeros(4),
            num_tokens=zeros,
            embedding=rows,
        )

    def answer(calibration, calibrated):
        strategy = search.beam(path_score="product", calibrated=calibrated)
        state = search.init(
            root,
            strategy=strategy,
            num_candidates=4,
            max_depth=1,
            capacity=4,
            context=search.Context(calibration=search.Calibration(*calibration)),
        )
        end, _ = search.rollout(
            (), (), jax.random.key(0), state, strategy=strategy, expand_fn=expand
        )
        return int(end.finished.answer[search.answer((), end, strategy=strategy)])

    assert answer((0.0, 0.0, 1.0), calibrated=True) == 2
    assert answer((0.0, 1.0, 0.0), calibrated=True) == 1
    assert answer((0.0, 0.0, 1.0), calibrated=False) == 1


def test_a_rule_samples_below_its_threshold_while_it_can():
    table = search.cats.CATS.actions
    sample = next(row for row, action in enumerate(table.rows) if action[0] == 4)
    stop = next(row for row, action in enumerate(table.rows) if action[0] == 0)
    params = search.cats.RuleParams(jnp.float32(0.5), jnp.int32(sample), jnp.int32(stop))
    policy = search.cats.sample_while_below("max")
    features = np.zeros((3, len(search.cats.FEATURE_NAMES)), np.float32)
    features[:, search.cats.FEATURE_NAMES.index("max")] = [0.4, 0.5, 0.6]
    features[:, search.cats.FEATURE_NAMES.index("gap")] = [0.9, 0.1, 0.1]
    state = search.init(
        jnp.int32(0), strategy=search.beam(), num_candidates=4, max_depth=1, frontier_capacity=3
    )

    def observed(available):
        return search.cats.Observation(
            features=jnp.asarray(features),
            legal=table.legal(jnp.int32(available)),
            deciding=jnp.ones(3, bool),
            state=state,
        )

    def act(available):
        return policy(params, jax.random.key(0), observed(available))[0].tolist()

    assert act(4) == [sample, stop, stop]
    assert act(3) == [stop, stop, stop]
    gap = search.cats.sample_while_below("gap")
    action, log_prob = gap(params, jax.random.key(0), observed(9))
    assert action.tolist() == [stop, sample, sample]
    assert not log_prob.any()
    with pytest.raises(ValueError, match="unknown features"):
        search.cats.sample_while_below("best")
