"""Training in the graph against a PyTorch loop of Algorithm 1: valid node decisions per second.

    JAX_PLATFORMS=cpu .venv/bin/python benchmarks/training.py [--seconds 5] [--rounds 3]

Both train the controller of the paper's section 6.1 (actor 2x128, critic 2x256, Adam; one decision
a step) with the same reward and features, and our choices where the paper prints nothing (the 90
actions of the table `top-p`, two base children), at N = 64 on the same made-up world: a right path
stays right with a chance that depends on the temperature, and the score tells right from wrong with
noise. The loop is Algorithm 1 as written: plain Python for the search, PyTorch for the networks,
one node and one transition at a time, on one thread (more are slower for single rows). In the
graph, questions are searched in batches, and each batch is followed by one update.

The two take turns in one process, so that other load hits both; the ratio of each turn is printed
and their median, by the clock and by the processor time of all threads, which other load disturbs
less. Only valid decisions are counted: frontier slots in which the policy chose.
"""

import argparse
import dataclasses
import itertools
import math
import random
import statistics
import time

import jax
import jax.numpy as jnp
import torch

import learners
import search
from search.children import children_of

NUM_CANDIDATES, DEPTH = 64, 6
CONFIG = dataclasses.replace(
    learners.PAPER,
    num_candidates=(NUM_CANDIDATES,),
    max_depth=DEPTH,
    num_iterations=10,
    num_episodes=32,
)
CATS = CONFIG.cats
WIDTH = NUM_CANDIDATES // CATS.expansion
SPARSITY = (math.log10(0.1), math.log10(0.2))


# The world, in the graph


def expand(params, key, request):
    del params
    parent, granted = children_of(request.num_samples, NUM_CANDIDATES)
    luck, noise = jax.random.uniform(key, (2, NUM_CANDIDATES))
    chance = 0.95 - 0.2 * request.temperature[parent]
    right = request.embedding[parent] & (luck < chance)
    done = granted & request.to_end[parent]
    return search.Expansion(
        valid=granted,
        parent=parent,
        score=jnp.clip(0.3 + 0.3 * right + 0.4 * noise, 0.0, 1.0),
        done=done,
        answer=jnp.where(done, right.astype(jnp.int32), -1),
        text=jnp.arange(NUM_CANDIDATES, dtype=jnp.int32),
        log_prob=jnp.zeros((NUM_CANDIDATES,)),
        num_tokens=jnp.ones((NUM_CANDIDATES,), jnp.int32),
        embedding=right,
    )


def reset(tables, key):
    del tables, key
    context = search.Context(sparsity_total=jnp.float32(0.1), sparsity_last_layer=jnp.float32(0.2))
    return search.Task((), jnp.bool_(True), context, jnp.int32(DEPTH), jnp.int32(1))


ENVIRONMENT = search.Environment(reset, lambda capacity: expand)


# The same world and Algorithm 1, in Python and PyTorch


class Loop:
    """Algorithm 1, one node and one transition at a time."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        self.rng = random.Random(seed)
        size = len(search.cats.FEATURE_NAMES)
        self.actor = _mlp(size, 128, len(CATS.actions))
        self.critic = _mlp(size, 256, 1)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), 1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 1e-3)
        self.num_extra = torch.tensor([row[0] for row in CATS.actions.rows])
        self.decisions = 0

    def child(self, path, temperature):
        right = path["right"] and self.rng.random() < 0.95 - 0.2 * temperature
        score = min(1.0, 0.3 + 0.3 * right + 0.4 * self.rng.random())
        return {
            "right": right,
            "score": min(path["score"], score),
            "pending": None,
        }

    def question(self):
        frontier = [{"right": True, "score": 1.0, "pending": None}]
        spent = 0
        for depth in range(DEPTH):
            used = 0
            children = []
            frontier.sort(key=lambda path: -path["score"])
            for path in frontier:
                count = min(CATS.num_base, NUM_CANDIDATES - used)
                children.append([self.child(path, CATS.base.temperature) for _ in range(count)])
                used += count
            survivors = []
            for rank, (path, own) in enumerate(zip(frontier, children, strict=True)):
                if not own:
                    if path["pending"] is not None:
                        self.learn(path["pending"], None)
                    continue
                available = NUM_CANDIDATES - used
                features = self.features(own, depth, used, spent + used, rank)
                action = self.act(features, available)
                if path["pending"] is not None:
                    self.learn(path["pending"], features)
                num_extra, num_retain, temperature, _, _ = CATS.actions.rows[action]
                own += [self.child(path, temperature) for _ in range(num_extra)]
                used += num_extra
                own.sort(key=lambda child: -child["score"])
                kept, dropped = own[:num_retain], own[num_retain:]
                margin = kept[-1]["score"] - dropped[0]["score"] if dropped else 0.0
                reward = (
                    -CATS.reward.cost * num_extra / NUM_CANDIDATES
                    + CATS.reward.margin * margin
                    + CATS.reward.score * own[0]["score"]
                )
                for child in kept:
                    child["pending"] = (features, action, available, reward)
                survivors += kept
                self.decisions += 1
            spent += used
            survivors.sort(key=lambda path: -path["score"])
            frontier = survivors[:WIDTH]
        for path in frontier:
            self.learn(path["pending"], None)

    def features(self, own, depth, used, spent, rank):
        scores = sorted((child["score"] for child in own), reverse=True)
        mean = sum(scores) / len(scores)
        std = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
        padded = (scores + [0.0] * 16)[:16]
        gap = scores[0] - scores[1] if len(scores) > 1 else 0.0
        budget_left = NUM_CANDIDATES * DEPTH - spent
        counts = (budget_left, NUM_CANDIDATES - used, NUM_CANDIDATES)
        values = [
            math.log2(1 + len(own)) / 8,
            *padded,
            mean,
            std,
            scores[0],
            scores[-1],
            gap,
            depth / DEPTH,
            *(math.log2(1 + count) / 8 for count in counts),
            *SPARSITY,
        ]
        # The features that the paper does not have are 0, as in the graph.
        return torch.tensor(values + [0.0] * (len(search.cats.FEATURE_NAMES) - len(values)))

    def logits(self, features, available):
        return self.actor(features).masked_fill(self.num_extra > available, -1e9)

    def act(self, features, available):
        with torch.no_grad():
            probabilities = torch.softmax(self.logits(features, available), -1)
            return int(torch.multinomial(probabilities, 1))

    def learn(self, pending, features_t):
        features, action, available, reward = pending
        with torch.no_grad():
            bootstrap = 0.0 if features_t is None else self.critic(features_t)[0]
            target = reward + CATS.reward.discount * bootstrap
        td = target - self.critic(features)[0]
        self.critic_optimizer.zero_grad()
        (0.5 * td * td).backward()
        self.critic_optimizer.step()
        log_prob = torch.log_softmax(self.logits(features, available), -1)[action]
        self.actor_optimizer.zero_grad()
        (-log_prob * td.detach()).backward()
        self.actor_optimizer.step()


def _mlp(size_in, hidden, size_out):
    return torch.nn.Sequential(
        torch.nn.Linear(size_in, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, size_out),
    )


def _rates(run, seconds):
    """Decisions per second by the clock and per second of processor time."""
    begin, begin_cpu, decisions = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        decisions += run()
    return (
        decisions / (time.perf_counter() - begin),
        decisions / (time.process_time() - begin_cpu),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both")
    parser.add_argument("--episodes", type=int, default=CONFIG.num_episodes, help="per batch")
    options = parser.parse_args()

    torch.set_num_threads(1)
    loop = Loop(seed=0)
    config = dataclasses.replace(CONFIG, num_episodes=options.episodes)
    train = jax.jit(learners.make_train(config, ENVIRONMENT))
    begin = time.perf_counter()
    result = jax.block_until_ready(train((), jax.random.key(0)))
    print(f"compiled and first run in {time.perf_counter() - begin:.1f} s")
    per_question = float(result.curves.decisions.mean()) / config.num_episodes
    print(f"decisions per question: {per_question:.1f} in the graph (at the start of training)")

    def run_loop():
        before = loop.decisions
        loop.question()
        return loop.decisions - before

    seeds = itertools.count(1)

    def run_in_graph():
        return int(train((), jax.random.key(next(seeds))).curves.decisions.sum())

    run_loop()  # the first calls warm up
    run_in_graph()
    ratios, cpu_ratios = [], []
    for turn in range(options.rounds):
        slow, slow_cpu = _rates(run_loop, options.seconds)
        fast, fast_cpu = _rates(run_in_graph, options.seconds)
        ratios.append(fast / slow)
        cpu_ratios.append(fast_cpu / slow_cpu)
        print(
            f"turn {turn + 1}: loop {slow:.0f}/s ({slow_cpu:.0f} per CPU second)   in the graph "
            f"{fast:.0f}/s ({fast_cpu:.0f})   ratio {ratios[-1]:.1f} ({cpu_ratios[-1]:.1f})"
        )
    print(
        f"median ratio {statistics.median(ratios):.1f} by the clock, "
        f"{statistics.median(cpu_ratios):.1f} by processor time (aim: 50 or more)"
    )


if __name__ == "__main__":
    main()
