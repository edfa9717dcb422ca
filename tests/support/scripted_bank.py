"""A step bank collected from scripted models."""

import dataclasses
import json
import pathlib

from scripted import ScriptedModels, ScriptedPolicy, ScriptedPrm, question_set

import search
from cats_jax.bank import build
from cats_jax.bank.grow import grow
from cats_jax.bank.recipe import BankRecipe
from cats_jax.bank.trees import Allocation, SettingDraws
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.specs.recipe import PolicySpec, PrmSpec, QuestionSpec

MAX_DEPTH = 6
RICH = Allocation(
    (
        SettingDraws(search.Sampling(0.0), 1, 1),
        SettingDraws(search.Sampling(0.6), 8, 2),
        SettingDraws(search.Sampling(1.0), 16, 4),
    ),
    revisits_per_prm=2,
    revisit_arrivals=4.0,
)

ALONE = dataclasses.replace(RICH, revisits_per_prm=0)
"""The policy grows the trees alone."""


def recipe(folder, count=6, **changes):
    """Of a question file, which is written."""
    questions = question_set(count)
    file = pathlib.Path(folder) / f"questions-{count}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": q.id, "question": q.text, "answer": questions.answers[q.id]}
        for q in questions.questions
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "policy": PolicySpec("policy"),
        "prms": (PrmSpec("good"), PrmSpec("bad")),
        "questions": (QuestionSpec(file=str(file)),),
        "allocation": RICH,
        "max_depth": MAX_DEPTH,
        "seed": 0,
    }
    return BankRecipe(**{**values, **changes})


def grown(allocation=RICH, count=6, prms=None, *, known=None, policy=None, depth=MAX_DEPTH, seed=0):
    """The trees of some questions."""
    known = known or question_set(count)
    scripted = {"good": ScriptedPrm(0.2), "bad": ScriptedPrm(0.9)}
    return grow(
        known.questions,
        known,
        policy or ScriptedPolicy(),
        scripted if prms is None else prms,
        BoxedIntegerGrader(),
        allocation,
        max_depth=depth,
        seed=seed,
    )


def _silent(done, total):
    pass


def collected(folder, count=6, *, models=None, block_size=2, report=_silent, **changes):
    return build.collect_bank(
        recipe(folder, count, **changes),
        models or ScriptedModels(),
        pathlib.Path(folder) / "bank",
        grader=BoxedIntegerGrader(),
        block_size=block_size,
        report=report,
    )
