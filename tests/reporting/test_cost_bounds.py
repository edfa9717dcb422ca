"""Bounds on mean costs: their limits by hand, their share of delta, and where there is none."""

import dataclasses

import made_runs
import numpy as np
import pytest

import theory
from cats_jax.errors import BadInputError
from cats_jax.live.ledger import Ledger
from cats_jax.models.footprint import MARK_TOKENS, PROMPT_TOKENS
from cats_jax.reporting.certified_configurations import Claim, certificate_sheet, certify_run
from cats_jax.reporting.cost_bounds import PREMISE, cost_bounds
from cats_jax.reporting.groups import groups
from cats_jax.runs.folder import RunFolder
from cats_jax.runs.merge import merge_runs

POLICY = {"path": "weak", "max_step_tokens": 10, "max_answer_tokens": 40}
# 3 steps of 4 candidates; the last 4 run to the end of the answer.
SAMPLED = 8 * 10 + 4 * 40
COMPUTED = PROMPT_TOKENS + SAMPLED + MARK_TOKENS * 12


def searched(tmp_path, prm="good", counted=True, **config):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(100):
        prompt, generated, scored = (int(x) for x in rng.integers(50, 150, 3))
        scored = 0 if prm is None else scored
        flops = 2e6 * prompt + 6e6 * scored if counted else 0.0
        ledger = Ledger(
            candidates=int(rng.integers(4, 13)),
            prompt_computed=prompt,
            generated=generated,
            prm_computed=scored,
            flops=flops,
            prm_flops=6e6 * scored if counted else 0.0,
        )
        row = made_runs.row(prm=prm, question=f"q{i}")
        rows.append(dataclasses.replace(row, ledger=ledger))
    manifest = made_runs.manifest(max_depth=3, **config)
    manifest["config"]["policy"] = POLICY
    return RunFolder(tmp_path, manifest, tuple(rows))


def bounds(run, **options):
    (group,) = groups(run.rows)
    return group, cost_bounds(run, group, **{"delta": 0.01, "choices": 5, **options})


@pytest.mark.parametrize("prm", ["good", None])
def test_the_limits_are_those_of_the_run(tmp_path, prm):
    run = searched(tmp_path, prm)
    group, found = bounds(run)
    scored = 0 if prm is None else COMPUTED
    for cost, limit in (
        ("candidates", 12),
        ("tokens", SAMPLED + scored),
        ("flops", 2e6 * COMPUTED + 6e6 * scored),
    ):
        values = list(group.by_question(cost).values())
        expected = theory.cost_upper(values, limit=limit, delta=0.01 / 3, num_choices=5)
        assert getattr(found, cost) == pytest.approx(expected, rel=1e-9)
        assert np.mean(values) < expected < limit


def test_a_chat_endpoint_may_sample_a_step_twice_or_an_answer_as_one_step(tmp_path):
    run = searched(tmp_path, None)
    for answer in (15, 40):
        run.manifest["config"]["policy"] = {**POLICY, "chat": True, "max_answer_tokens": answer}
        group, found = bounds(run)
        values = list(group.by_question("tokens").values())
        limit = 8 * max(2 * 10, answer) + 4 * answer
        expected = theory.cost_upper(values, limit=limit, delta=0.01 / 3, num_choices=5)
        assert found.tokens == pytest.approx(expected, rel=1e-9)


def test_without_limits_or_counts_there_is_no_bound(tmp_path):
    _, found = bounds(searched(tmp_path, counted=False))
    assert found.tokens is not None
    assert found.flops is None
    run = searched(tmp_path)
    for policy in ({"path": "weak"}, {**POLICY, "examples": {"file": "examples.jsonl"}}):
        run.manifest["config"]["policy"] = policy
        _, found = bounds(run)
        assert (found.tokens, found.flops) == (None, None)
        assert found.candidates < 12
    run = searched(tmp_path)
    formats = {f"comparison {run.rows[0].strategy}": "own"}
    run = dataclasses.replace(run, manifest={**run.manifest, "formats": formats})
    _, found = bounds(run)
    assert (found.tokens, found.flops) == (None, None)


def test_a_merged_run_has_the_prompts_of_all_runs(tmp_path):
    def run(strategy, formats):
        manifest = made_runs.manifest(name=strategy, strategies=[strategy], max_depth=3)
        manifest["config"]["policy"] = POLICY
        rows = [made_runs.row(strategy, question=f"q{i}", tokens=100) for i in range(100)]
        return RunFolder(tmp_path / strategy, {**manifest, "formats": formats}, tuple(rows))

    plain = run("beam", {})
    for kind in ("rewriting", "comparison"):
        (merged,) = merge_runs([plain, run("own", {f"{kind} own": "own"})])
        found = [cost_bounds(merged, each, delta=0.01, choices=2) for each in groups(merged.rows)]
        assert [each.tokens is None for each in found] == [False, True]


def test_a_method_that_rewrites_answers_samples_at_most_n(tmp_path):
    run = searched(tmp_path)
    formats = {f"rewriting {run.rows[0].strategy}": "critique"}
    run = dataclasses.replace(run, manifest={**run.manifest, "formats": formats})
    with pytest.raises(BadInputError, match="more than the budget of 4 "):
        bounds(run)
    rows = [
        dataclasses.replace(row, ledger=dataclasses.replace(row.ledger, candidates=2 + i % 3))
        for i, row in enumerate(run.rows)
    ]
    group, found = bounds(dataclasses.replace(run, rows=tuple(rows)))
    assert (found.tokens, found.flops) == (None, None)
    values = list(group.by_question("candidates").values())
    expected = theory.cost_upper(values, limit=4, delta=0.01 / 3, num_choices=5)
    assert found.candidates == pytest.approx(expected, rel=1e-9)


def test_a_manifest_without_a_largest_number_of_steps_is_named(tmp_path):
    run = searched(tmp_path)
    config = {k: v for k, v in run.manifest["config"].items() if k not in ("budget", "max_depth")}
    run = dataclasses.replace(run, manifest={**run.manifest, "config": config})
    with pytest.raises(BadInputError, match=r"manifest.json' is damaged .*max_depth"):
        bounds(run)


def test_a_question_beyond_the_premise_takes_the_bound_away(tmp_path):
    run = searched(tmp_path)
    ledger = dataclasses.replace(run.rows[0].ledger, prompt_computed=10 * COMPUTED, flops=1e12)
    rows = (dataclasses.replace(run.rows[0], ledger=ledger), *run.rows[1:])
    _, found = bounds(dataclasses.replace(run, rows=rows))
    assert found.tokens is not None
    assert found.flops is None


def test_they_stand_in_the_table_and_in_the_file(tmp_path):
    certificate = certify_run(searched(tmp_path), Claim(target=0.5), delta=0.05)
    (each,) = certificate.configurations
    sheet = certificate_sheet(certificate)
    (record,) = sheet.records
    assert record["tokens_bound"] == each.costs.tokens
    assert record["flops_bound"] == each.costs.flops
    assert certificate.as_json()["configurations"] == [record]
    assert PREMISE in sheet.notes
    # All bounds on costs share a fifth of delta.
    _, expected = bounds(certificate.run, delta=0.01, choices=1)
    assert each.costs == expected
