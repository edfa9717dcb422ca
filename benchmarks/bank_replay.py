"""Valid node decisions per second in the graph: from a step bank, and from the simulator.

    JAX_PLATFORMS=cpu .venv/bin/python benchmarks/bank_replay.py runs/bank/weak-controller

Searches of the configuration `cats` at N = 64 with an untrained policy, in batches of 32 questions
with a PRM each, alone and as part of training (each batch followed by an update). The two
environments take turns, so that other load hits both; medians, by the clock and by the processor
time of all threads. Only valid decisions are counted: frontier slots in which the policy chose.
"""

import argparse
import dataclasses
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp

import learners
import search
from cats_jax.training.questions import bank_questions, simulator_questions

NUM_CANDIDATES, NUM_EPISODES, BATCHES = 64, 32, 10
CONFIG = dataclasses.replace(
    learners.CATS,
    num_candidates=(NUM_CANDIDATES,),
    num_episodes=NUM_EPISODES,
    num_iterations=BATCHES,
)


def searches(questions):
    """`(tables, key) -> decisions` of some batches of searches, without learning."""
    actor = learners.make_actor(len(CONFIG.cats.actions), CONFIG.actor_hidden)
    strategy = search.cats.cats(learners.make_policy(actor.apply, "sample"), CONFIG.cats)

    play = learners.make_episodes(
        strategy,
        questions.environment,
        max_depth=questions.max_depth,
        capacity=NUM_CANDIDATES,
    )

    def run(tables, key):
        sizes = jnp.full((NUM_EPISODES,), NUM_CANDIDATES, jnp.int32)
        prices = jnp.full((NUM_EPISODES,), 0.1, jnp.float32)

        def batch(key):
            keys = jax.random.split(key, NUM_EPISODES)
            _, outcome = play(actor.init(key), tables, keys, sizes, prices)
            return jnp.sum(outcome.action_counts)

        return jnp.sum(jax.lax.map(batch, jax.random.split(key, BATCHES)))

    return jax.jit(run)


def training(questions):
    """`(tables, key) -> decisions` of as many iterations of training."""
    config = dataclasses.replace(CONFIG, max_depth=questions.max_depth)
    train = learners.make_train(config, questions.environment)
    return jax.jit(lambda tables, key: jnp.sum(train(tables, key).curves.decisions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bank", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sources = {
        "bank": bank_questions(arguments.bank, sampling=CONFIG.cats.sampling),
        "simulator": simulator_questions(),
    }
    programs = {
        (what, name): (make(questions), questions.tables)
        for what, make in (("search", searches), ("training", training))
        for name, questions in sources.items()
    }
    for name, (program, tables) in programs.items():
        started = time.perf_counter()
        program(tables, jax.random.key(0)).block_until_ready()
        print(f"{' '.join(name)}: compiled in {time.perf_counter() - started:.0f} s", flush=True)
    rates = {name: [] for name in programs}
    for number in range(arguments.rounds):
        for name, (program, tables) in programs.items():
            wall, processor = time.perf_counter(), time.process_time()
            decisions = int(program(tables, jax.random.key(number + 1)))
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            rates[name].append((decisions / wall, decisions / processor, decisions))
    print(f"valid decisions at N = {NUM_CANDIDATES}, medians of {arguments.rounds}")
    for name, rows in rates.items():
        wall, processor, count = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"{' '.join(name):20} {wall:9.0f} per second {processor:9.0f} per processor second "
            f"({count:.0f} a round)"
        )


if __name__ == "__main__":
    main()
