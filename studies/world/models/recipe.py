"""The numbers of a build: which models, how large, how long each training.

`FULL` made the shipped assets; `QUICK` makes a toy of the same shape within about a minute, to test
the build. Every stage has its own seed (`stage_seed`), so that the order of stages, or running them
side by side, does not change the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

from .policies import PolicyRecipe
from .prms import BaseRecipe, PrmRecipe
from .training import ModelSize, Schedule


@dataclasses.dataclass(frozen=True)
class WorldSettings:
    """Everything a build does, apart from its seed.

    Attributes:
      policies: ``weak`` and ``strong``.
      num_path_questions: questions of the ``prm`` set on which each policy is sampled.
      paths_per_question: its paths for each of them; they train base and PRMs. Of the strong
        policy's paths those with an error are kept, and as many without.
      num_monte_carlo_paths: how many of the weak policy's paths get Monte-Carlo labels too.
      num_rollouts: rollouts behind one Monte-Carlo label.
      base: the verification base.
      prms: the family, by name.
      num_questions: ``validation`` questions behind every measured figure.
      samples_per_question: paths a policy draws for each of them.
      num_curve_questions: how many of them follow the base's training.
      samples_per_curve_question: paths drawn for each of those.
      num_scored_samples: paths of a question that the PRMs score, for best-of-N.
    """

    policies: Mapping[str, PolicyRecipe]
    num_path_questions: Mapping[str, int]
    paths_per_question: Mapping[str, int]
    num_monte_carlo_paths: int
    num_rollouts: int
    base: BaseRecipe
    prms: Mapping[str, PrmRecipe]
    num_questions: int
    samples_per_question: Mapping[str, int]
    num_curve_questions: int
    samples_per_curve_question: int
    num_scored_samples: int


def stage_seed(seed: int, stage: str) -> int:
    """The seed of one stage of a build with seed `seed`."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{stage}".encode()).digest()[:4], "big") >> 1


def _tune(num_steps: int, rate: float = 0.005) -> Schedule:
    """A short fine-tune, at a quarter of the rate of a training from scratch."""
    return Schedule(num_steps, matrix_rate=rate, other_rate=rate / 5, warmup=20, flat=0.4)


FULL = WorldSettings(
    policies={
        "weak": PolicyRecipe(ModelSize(num_layers=3, num_heads=3), Schedule(1400)),
        "strong": PolicyRecipe(
            ModelSize(num_layers=4, num_heads=4, num_kv_heads=2), Schedule(5500)
        ),
    },
    num_path_questions={"weak": 6000, "strong": 12000},
    paths_per_question={"weak": 4, "strong": 8},
    num_monte_carlo_paths=1500,
    num_rollouts=8,
    base=BaseRecipe(
        extra_layers=2,
        schedule=Schedule(4000, matrix_rate=0.006, other_rate=0.002),
        language_weight=0.5,
        measure_every=250,
    ),
    prms={
        "exact": PrmRecipe("base", "dense", 24000, _tune(400, rate=0.003)),
        "sparse": PrmRecipe("base", "exact", 24000, _tune(400), shrink=0.02),
        "pruned-50": PrmRecipe("base", "exact", 24000, _tune(150), prune=0.5),
        "monte-carlo": PrmRecipe("base", "monte-carlo", 1500, _tune(300, rate=0.004)),
        "pruned-80": PrmRecipe("base", "dense", 24000, _tune(300, rate=0.01), prune=0.8),
        "labels-only": PrmRecipe("weak", "exact", 24000, _tune(600, rate=0.01)),
        "on-policy": PrmRecipe(
            "exact",
            "dense",
            24000,
            Schedule(9000, matrix_rate=0.006, other_rate=0.002, flat=0.4),
            policies=("weak", "strong"),
            slip_levels=(1, 2, 3, 4, 5),
        ),
        "strong-errors": PrmRecipe(
            "on-policy",
            "dense",
            40000,
            Schedule(5000, matrix_rate=0.006, other_rate=0.002, flat=0.3),
            policies=("strong",),
            slip_levels=(4, 5),
        ),
    },
    num_questions=250,
    samples_per_question={"weak": 256, "strong": 64},
    num_curve_questions=100,
    samples_per_curve_question=16,
    num_scored_samples=64,
)

QUICK = WorldSettings(
    policies={
        "weak": PolicyRecipe(ModelSize(num_layers=1, num_heads=1), Schedule(150, batch_size=16)),
        "strong": PolicyRecipe(ModelSize(num_layers=2, num_heads=1), Schedule(200, batch_size=16)),
    },
    num_path_questions={"weak": 40, "strong": 40},
    paths_per_question={"weak": 2, "strong": 2},
    num_monte_carlo_paths=8,
    num_rollouts=2,
    base=BaseRecipe(
        extra_layers=1,
        schedule=Schedule(40, batch_size=16),
        language_weight=0.5,
        measure_every=20,
    ),
    prms={
        name: dataclasses.replace(full, schedule=dataclasses.replace(full.schedule, num_steps=10))
        for name, full in FULL.prms.items()
    },
    num_questions=10,
    samples_per_question={"weak": 16, "strong": 8},
    num_curve_questions=5,
    samples_per_curve_question=8,
    num_scored_samples=16,
)
