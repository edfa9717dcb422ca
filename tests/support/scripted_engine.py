"""Engines that write and score tokens by the context alone, and models of the world on them."""

import random

from cats_jax import world
from cats_jax.models.prm.format import WORLD
from cats_jax.models.serving.generator import EngineGenerator
from cats_jax.models.serving.scorer import EngineScorer
from cats_jax.models.serving.token_engine import (
    Classified,
    ClassifiedSteps,
    TokenSample,
    by_beginnings,
)
from cats_jax.protocols import TokenUsage
from cats_jax.world import tokenizer

STEP, END = tokenizer.SEPARATOR_ID, tokenizer.EOS_ID
DIGIT = tokenizer.TOKEN_IDS["7"]


class ScriptedEngine:
    """Writes tokens drawn from the context and the seed; counts calls and requests."""

    concurrent = False

    def __init__(self):
        self.calls = []

    def sample(self, requests):
        self.calls.append(requests)
        return [[self._sampled(request, seed) for seed in request.seeds] for request in requests]

    def _sampled(self, request, seed):
        ids = []
        while len(ids) < request.max_tokens:
            if request.temperature == 0:
                chance = random.Random(str((*request.prompt, *ids))).random()
            else:
                chance = random.Random(str((request.prompt, seed, len(ids)))).random()
            if chance < 0.55:
                ids.append(DIGIT)
            elif chance < 0.85:
                ids.append(STEP)
            elif chance < 0.95:
                ids.append(tokenizer.TOKEN_IDS["+"])
            else:
                ids.append(END)
            if ids[-1] in request.stop_ids:
                break
        return TokenSample(tuple(ids), ids[-1] in request.stop_ids, (-0.5,) * len(ids), 0)


class ScriptedPrm:
    """Scores by the ids it reads, except at the first end of a path where it `reads_cache`."""

    concurrent = False

    def __init__(self, reads_cache=False):
        self.reads_cache = reads_cache
        self.single, self.whole = [], []

    def classify(self, prompts):
        self.single.append(prompts)
        return [Classified(score_of(ids), 0) for ids in prompts]

    def classify_steps(self, prompts, ends):
        self.whole.append(prompts)
        answers = []
        for ids, places in zip(prompts, ends, strict=True):
            cached = places[0] if self.reads_cache and len(places) > 1 else 0
            scores = [score_of(ids[:end]) if end > cached else None for end in places]
            usage = TokenUsage(computed=len(ids) - cached, cached=cached)
            answers.append(ClassifiedSteps(scores, usage))
        return answers


class Server(ScriptedPrm):
    """Scores the beginnings of a path by single requests, as a server does."""

    def classify_steps(self, prompts, ends):
        return by_beginnings(self.classify, prompts, ends)


def score_of(ids):
    return random.Random(str(ids)).random()


def policy(engine, **limits):
    limits = {"max_step_tokens": 8, "max_answer_tokens": 40, **limits}
    return EngineGenerator(world.policy_path("weak"), lambda context: engine, **limits)


def prm(engine, context=256):
    return EngineScorer(world.prm_path("exact"), WORLD, lambda model: engine, max_model_len=context)
