"""Recorded decisions (`cats-jax collect`) as rows for `learners.make_offline`."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import learners
import search

from ..errors import BadInputError, known_names
from ..storage.table_folder import read_manifest
from .collect import (
    KIND,
    StoredDecisions,
    load_decisions,
    reading_collection,
    recorded_settings,
    texts_by_id,
)


def load_rows(
    folder: pathlib.Path, config: learners.TrainConfig, prms: Sequence[str] | None = None
) -> tuple[search.cats.Transition, Mapping[str, str]]:
    """Transitions to learn from, and digests of questions by id, see `texts_by_id`.

    The questions are the searched ones, and those of the training of the behaviour policies.

    Args:
        config: configuration. With the reward "outcome" and gae_lambda 1, a return is that of the
            whole search from the decision on; with "paper" and 0, that of one step along the path.
        prms: labels of PRMs; only decisions of searches with one of them are used.

    Raises:
        BadInputError: the folder or a PRM is missing, the action table or a setting of the searches
            is not the configuration's, the algorithm or the returns need decisions of the trained
            policy itself, or the price is for tokens and the algorithm does more than imitate.
    """
    if isinstance(config.learner.algorithm, learners.PPO):
        raise BadInputError(
            "--trajectories with learner.algorithm=PPO: PPO learns from decisions of the policy it "
            "trains; choose --config offline, clone or paper"
        )
    algorithm = config.learner.algorithm
    imitates = isinstance(algorithm, learners.AWR) and math.isinf(algorithm.temperature)
    if config.cats.cost_unit == "tokens" and not imitates:
        raise BadInputError(
            "--trajectories with a price per 1000 tokens: the tokens of a decision are not "
            "recorded, so that a decision can be imitated and not valued; choose --config clone"
        )
    decisions = _decisions(folder, prms)
    if decisions.actions != config.cats.actions:
        raise BadInputError(
            f"trajectories {str(folder)!r} were collected with another action table than the "
            "configuration's: collect them with its strategies, or choose another --config or "
            "--actions"
        )
    _check_settings(folder, decisions, config, prms)
    decisions = _without_excluded(decisions, config.cats)
    if config.reward == "outcome" and config.gae_lambda == 1.0 and config.num_steps is None:
        rows = outcome_rows(
            decisions, config.terminal_weight, charged=config.cats.cost_unit == "candidates"
        )
    elif config.reward == "paper" and config.gae_lambda == 0.0:
        rows = one_step_rows(decisions, config)
    else:
        raise BadInputError(
            "--trajectories needs reward=outcome with gae_lambda=1, or reward=paper "
            "with gae_lambda=0"
        )
    manifest = decisions.manifest
    with reading_collection(folder):
        digests = dict(zip(manifest["question_ids"], manifest["question_texts"], strict=True))
        asked = {str(name): digests[name] for name in decisions.columns["question"]}
        return rows, texts_by_id([*asked.items(), *manifest.get("behaviours_learned", {}).items()])


def at_recorded_prices(
    folder: pathlib.Path, config: learners.TrainConfig, prms: Sequence[str] | None = None
) -> learners.TrainConfig:
    """The configuration with the prices of the trajectories, in place of those it would draw.

    The reward "paper" has no price. The costs of a PRM token are those recorded, too.
    """
    if config.reward == "paper":
        return config
    decisions = _decisions(folder, prms)
    # They are stored in float32.
    prices = tuple(float(f"{price:.6g}") for price in np.unique(decisions.columns["price"]))
    changes: dict[str, Any] = {"prices": prices, "default_price": default_price(config, prices)}
    if config.cats.cost_unit == "tokens":
        place = search.cats.FEATURES.column("prm_token_cost")
        encoded = np.unique(decisions.columns["features"][:, place]).astype(float)
        if encoded.any():  # otherwise the feature was excluded
            costs = [float(f"{cost:.6g}") for cost in 2 ** (4 * encoded) - 1]
            usual = config.prm_token_costs[0]  # the first one is a search's default
            changes["prm_token_costs"] = tuple(sorted(costs, key=lambda cost: cost != usual))
    return dataclasses.replace(config, **changes)


def default_price(config: learners.TrainConfig, prices: Sequence[float]) -> float:
    """The configuration's default price, but at most the largest of `prices`, unless that is 0."""
    largest = max(prices, default=0.0)
    return min(config.default_price, largest) if largest else config.default_price


def _check_settings(
    folder: pathlib.Path,
    decisions: StoredDecisions,
    config: learners.TrainConfig,
    prms: Sequence[str] | None,
) -> None:
    """Raise BadInputError if features, prices or rewards were recorded with other settings."""
    wanted = recorded_settings(config.cats)
    if config.reward != "paper":  # the recorded rewards are not read
        wanted = {name: value for name, value in wanted.items() if not name.startswith("reward.")}
    # Collections of earlier versions have no settings.
    for recorded in decisions.manifest.get("cats", ()):
        if prms is not None and recorded["prm"] not in prms:
            continue
        others = [name for name in wanted if _differ(name, recorded[name], wanted[name])]
        if others:
            has, asks = (
                " ".join(f"cats.{name}={_setting(values[name])}" for name in others)
                for values in (recorded, wanted)
            )
            raise BadInputError(
                f"trajectories {str(folder)!r} were collected with {has}, the configuration has "
                f"{asks}: set the former by --set or another --config, or collect them anew"
            )


def _differ(name: str, recorded: Any, wanted: Any) -> bool:
    if name == "excluded_features":  # a recorded feature can still be excluded
        return not set(recorded) <= set(wanted)
    return recorded != wanted


def _without_excluded(
    decisions: StoredDecisions, config: search.cats.CatsConfig
) -> StoredDecisions:
    """The decisions with the configuration's excluded features 0, as in its searches."""
    mask = np.asarray(search.cats.FEATURES.mask(config.excluded_features))
    columns = {**decisions.columns, "features": decisions.columns["features"] * mask}
    return dataclasses.replace(decisions, columns=columns)


def _setting(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def models_of(folder: pathlib.Path, prms: Sequence[str] | None = None) -> dict[str, Any]:
    """A checkpoint's entries on the policy and the PRMs of trajectories.

    Args:
        prms: labels of the PRMs; default: all.
    """
    manifest = read_manifest(folder, KIND)
    with reading_collection(folder):
        used = [spec["label"] for spec in manifest["config"]["prms"]]
        used = [label for label in used if prms is None or label in prms]
        names = ("policy", *(f"prm {label}" for label in used))
        calibration = dict(manifest["config"]["calibration"] or ())
        return {
            "prms": used,
            "models": {name: manifest["models"][name] for name in names},
            "calibration": {label: calibration[label] for label in used if label in calibration},
        }


def _decisions(folder: pathlib.Path, prms: Sequence[str] | None) -> StoredDecisions:
    """The decisions of all searches, or of those with one of some PRMs."""
    decisions = load_decisions(folder)
    if prms is None:
        return decisions
    recorded = decisions.columns["prm"]
    for label in prms:
        if label not in recorded:
            known = known_names(label, sorted(set(recorded.tolist())))
            raise BadInputError(f"trajectories {str(folder)!r} have no PRM {label!r}: {known}")
    kept = np.isin(recorded, list(prms))
    columns = {name: values[kept] for name, values in decisions.columns.items()}
    return dataclasses.replace(decisions, columns=columns)


def outcome_rows(
    decisions: StoredDecisions, terminal_weight: float, *, charged: bool = True
) -> search.cats.Transition:
    """Every decision once, with its Monte-Carlo return as in `learners.question_returns`.

    Args:
        terminal_weight: reward of a right answer.
        charged: whether the return includes the cost of candidates; tokens are not recorded.
    """
    columns = decisions.columns
    worth = terminal_weight * columns["correct"].astype(np.float32)
    cost = charged * columns["price"] * columns["remaining"].astype(np.float32) / 100.0
    every = np.arange(len(worth))
    return _rows(decisions, every, worth - cost, np.full(len(worth), -1), 0.0, np.ones(len(worth)))


def one_step_rows(
    decisions: StoredDecisions, config: learners.TrainConfig
) -> search.cats.Transition:
    """Transitions of Algorithm 1: one to each decision that followed on the path, one per end.

    Args:
        config: configuration with the discount and the terminal weight.
    """
    columns = decisions.columns
    search_of, ends = columns["search"], columns["ends"]
    is_first = np.r_[True, search_of[1:] != search_of[:-1]]
    start = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]  # of each row's search
    later = np.flatnonzero(columns["predecessor"] >= 0)
    earlier = start[later] + columns["predecessor"][later]
    ended = np.flatnonzero(ends > 0)
    bonus = config.terminal_weight * columns["correct"][ended].astype(np.float32)
    row = np.r_[earlier, ended]
    reward = columns["reward"][row] + np.r_[np.zeros(len(later)), bonus]
    weight = np.r_[np.ones(len(later)), ends[ended]]
    successor = np.r_[later, np.full(len(ended), -1)]
    return _rows(decisions, row, reward, successor, config.cats.reward.discount, weight)


def _rows(
    decisions: StoredDecisions,
    row: np.ndarray,
    reward: np.ndarray,
    successor: np.ndarray,
    discount: float,
    weight: np.ndarray,
) -> search.cats.Transition:
    """Transitions from decisions `row` to decisions `successor`, or to an end where it is -1."""
    columns = decisions.columns
    goes_on = successor >= 0
    after = columns["features"][np.maximum(successor, 0)]
    return search.cats.Transition(
        features_tm1=jnp.asarray(columns["features"][row], jnp.float32),
        available_tm1=jnp.asarray(columns["available"][row], jnp.int32),
        action_tm1=jnp.asarray(columns["action"][row], jnp.int32),
        log_prob_tm1=jnp.asarray(columns["log_prob"][row], jnp.float32),
        reward_t=jnp.asarray(reward, jnp.float32),
        discount_t=jnp.asarray(np.where(goes_on, discount, 0.0), jnp.float32),
        features_t=jnp.asarray(np.where(goes_on[:, None], after, 0.0), jnp.float32),
        weight_t=jnp.asarray(weight, jnp.float32),
    )
