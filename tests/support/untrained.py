"""Controllers that were not trained: the state before the first update."""

import jax

import learners


def untrained(config: learners.TrainConfig, seed: int = 0) -> learners.LearnerState:
    """The first state of a training with this configuration."""
    actions = config.cats.actions
    learner = learners.make_learner(
        learners.make_actor(len(actions), config.actor_hidden),
        learners.make_critic(config.critic_hidden),
        actions,
        config.learner,
        num_updates=1,
    )
    return learner.init(jax.random.key(seed))
