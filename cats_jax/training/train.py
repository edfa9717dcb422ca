"""Train controllers on the simulator, a step bank or trajectories, and write checkpoints.

Several seeds are trained, entirely in the graph. The controller of each seed is then compared with
every constant action, many threshold rules and the random policy, on the same held-out questions.
`recipes/choose.yaml` chooses the best seed by live searches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import operator
import pathlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import learners
import search

from ..controllers import checkpoint
from ..controllers.strategies import controller_folder
from ..errors import BadInputError, known_names
from ..storage import durable
from ..storage.schema import check_seed
from . import stopping
from .collect import texts_by_id
from .comparison import PolicyResults, RivalComparison, compare
from .learning_curves import plot_learning_curves
from .options import TrainingOptions
from .questions import TrainingQuestions, bank_questions, simulator_questions
from .trajectories import at_recorded_prices, default_price, load_rows, models_of

_PARTS = 10
"""Most lines of progress for each seed."""

CONFIGS = {
    "cats": learners.CATS,
    # Ours: ranking and features use P(step right) for scores; see docs/results/ablations.md.
    "calibrated": dataclasses.replace(
        learners.CATS,
        cats=dataclasses.replace(learners.CATS.cats, calibrated=True, path_score="product"),
    ),
    # The paper prints no action table: both are our choice. The shipped bank recipes record the
    # sampling settings of "paper-bank".
    "paper": learners.PAPER,
    "paper-bank": dataclasses.replace(
        learners.PAPER,
        cats=dataclasses.replace(
            search.cats.PAPER, actions=search.cats.action_table("temperature")
        ),
    ),
    "offline": learners.OFFLINE,
    "tokens": learners.CATS_TOKENS,
    "selective": learners.SELECTIVE,
    "clone": learners.CLONE,
}


DEFAULT_CONFIG = "cats"


def run(options: TrainingOptions, *, report: Callable[[str], None] = print) -> list[pathlib.Path]:
    """Train `num_seeds` controllers; write `output/seed-K`, `curves.png`, `summary.json`.

    Args:
        options: configuration, questions and rivals of the training.
        report: called with lines of progress.

    Returns:
        The checkpoints, best first by accuracy minus cost on the held-out questions.

    Raises:
        BadInputError: a configuration or setting is unknown, a value is out of range, there is no
            simulator, a bank does not fit, a held-out question was learned from before, or the
            output folder is in use.
    """
    check_seed(options.seed)
    if options.prms == ():
        raise BadInputError("--prms names no PRM: name one, or leave the option out")
    if options.config in stopping.CONFIGS:
        return stopping.run_stopping(options, report=report)
    output, seed = options.output, options.seed
    if options.online is not None:
        return [_run_online(options, report)]
    num_seeds = 3 if options.num_seeds is None else options.num_seeds
    if num_seeds < 1:
        raise BadInputError(f"num_seeds={num_seeds}: must be at least 1")
    stopping.check_is_new(output)
    start = _start(options)
    config = _configured(options, start)
    checkpoint.check_start(start, config)
    _check_imitates(config, options)
    named = options.start or options.config or DEFAULT_CONFIG
    questions = _questions(config, options)
    config = dataclasses.replace(config, max_depth=questions.max_depth)
    keys = seed_keys(seed, num_seeds)
    rows, info = _learned_from(config, questions, options)
    if options.trajectories is not None:
        config = at_recorded_prices(options.trajectories, config, options.prms)
    _check_default_price(config)
    if start is not None:
        taught = checkpoint.questions_of(options.start or "", start.info)
        what = "the controller to start from"
        _check_held_out(what, texts_by_id(taught), questions, apart=options.validation is not None)
    info = checkpoint.with_questions_of(info, start)
    seeds = "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
    report(f"training {seeds} of {named!r} ({info['source']}) ...")
    with durable.hold(output):
        stopping.check_is_new(output)  # another training may have ended in the meantime
        collapses: dict[str, np.ndarray] = {}
        if rows is None:
            result = train_seeds(config, questions, keys[1:], report, start=start)
            title = f"{named}: {seeds}"
            plot_learning_curves(jax.device_get(result.curves), output / "curves.png", title)
            states, collapses["in_training"] = result.learner_state, np.asarray(result.collapsed)
        else:
            train = jax.jit(jax.vmap(learners.make_offline(config), in_axes=(0, None)))
            states, _ = jax.block_until_ready(train(keys[1:], rows))
            collapses["in_training"] = np.zeros(num_seeds, bool)
        report("playing the controllers" + (" and their rivals ..." if options.rivals else " ..."))
        comparison = compare(config, questions, states.actor, keys[0], rivals=options.rivals)
        collapses["greedy"] = comparison.controllers.top_action > learners.COLLAPSE_SHARE
        paths = _saved(output, config, states, comparison, collapses, info | {"seed": seed}, report)
        of_run = {"config": named, "seed": seed, "prms": list(questions.prms)}
        summary = of_run | _summary(config, comparison, collapses, {path.name for path in paths})
        durable.replace_json(output / "summary.json", summary, indent=1)
        report(f"checkpoints: {', '.join(str(path) for path in paths)}")
    return paths


def _check_imitates(config: learners.TrainConfig, options: TrainingOptions) -> None:
    """Learning that imitates other policies needs their decisions."""
    algorithm = config.learner.algorithm
    imitates = isinstance(algorithm, learners.AWR) and math.isinf(algorithm.temperature)
    if imitates and options.trajectories is None:
        raise BadInputError(
            "learner.algorithm=AWR with an infinite temperature imitates the decisions of other "
            "policies: choose another --config, or without --start name a folder of `cats-jax "
            "collect` by --trajectories"
        )


def _summary(
    config: learners.TrainConfig,
    comparison: RivalComparison,
    collapses: Mapping[str, np.ndarray],
    written: Collection[str],
) -> dict[str, Any]:
    """The figures of all controllers, and of rivals; `written` names the checkpoints."""
    collapsed = np.any([*collapses.values()], axis=0).tolist()
    return {
        "num_candidates": list(comparison.num_candidates),
        "prices": list(config.prices),
        # A network that is not finite has no figures either.
        "controllers": [
            _one(comparison.controllers, index) if f"seed-{index}" in written else None
            for index in range(len(collapsed))
        ],
        "collapsed": collapsed,
        "rivals": comparison.best_rivals(),
    }


def _saved(
    output: pathlib.Path,
    config: learners.TrainConfig,
    states: learners.LearnerState,
    comparison: RivalComparison,
    collapses: Mapping[str, np.ndarray],
    info: Mapping[str, Any],
    report: Callable[[str], None],
) -> list[pathlib.Path]:
    """Write the checkpoints, best first, and report their figures and those of the rivals."""
    controllers, paths = comparison.controllers, []
    for index in np.argsort(-controllers.value.mean(axis=1)).tolist():
        collapse = {when: bool(collapsed[index]) for when, collapsed in collapses.items()}
        path, state = output / f"seed-{index}", jax.tree.map(operator.itemgetter(index), states)
        if not checkpoint.is_finite((state.actor, state.critic)):
            report(f"{path.name}: not written: {checkpoint.DIVERGED}")
            continue
        document = {
            **info,
            "index": index,
            "collapsed": any(collapse.values()),
            "collapse": collapse,
            "held_out": _one(controllers, index),
            "prices": list(config.prices),
            "num_candidates": list(comparison.num_candidates),
        }
        paths.append(checkpoint.save(path, state, config, info=document))
        report(_line(path.name, config, controllers, index, collapse))
    if not paths:
        raise BadInputError(f"{str(output)!r}: {checkpoint.DIVERGED}")
    for line in comparison.lines():
        report(line)
    return paths


def _learned_from(
    config: learners.TrainConfig, questions: TrainingQuestions, options: TrainingOptions
) -> tuple[search.cats.Transition | None, dict[str, Any]]:
    """The rows of recorded decisions, None without trajectories, and the checkpoints' info."""
    info = {**questions.info, "prms": list(questions.prms)}
    if options.trajectories is None:
        return None, info | {"episodes": config.num_iterations * config.num_episodes}
    rows, taught = load_rows(options.trajectories, config, options.prms)
    _check_held_out("trajectories", taught, questions)
    # They replace the bank's questions, which only the comparison uses.
    learned = {"questions": list(taught), "texts": list(taught.values())}
    info |= {"source": "trajectories", **learned, "decisions": len(rows.weight_t)}
    return rows, info | models_of(options.trajectories, options.prms)


def _run_online(options: TrainingOptions, report: Callable[[str], None]) -> pathlib.Path:
    # Imported here, because it imports the models, which no other training needs.
    from ..models.source import ModelFolders
    from .online import train_online

    for name, why in _NOT_ONLINE.items():
        if getattr(options, name) is not None:
            raise BadInputError(f"--{name.replace('_', '-')} with --online: {why}")
    start = _start(options)
    config = _configured(options, start)
    _check_default_price(config)
    if isinstance(config.learner.algorithm, learners.AWR):
        others = (
            name
            for name, each in CONFIGS.items()
            if not isinstance(each.learner.algorithm, learners.AWR)
        )
        raise BadInputError(
            "--online with learner.algorithm=AWR: it learns from decisions of other policies; "
            f"choose one of {', '.join(others)}"
        )
    assert options.online is not None
    return train_online(
        options.online,
        config,
        ModelFolders(),
        options.output,
        prms=options.prms,
        seed=options.seed,
        start=start,
        functions=options.functions,
        report=report,
    )


_NOT_ONLINE = {
    "bank": "the questions are those of the recipe; choose one of the two",
    "validation": "nothing is compared; evaluate the controller with `cats-jax evaluate`",
    "calibration": "name it in the recipe",
    "trajectories": "nothing is learned from recorded decisions; choose one of the two",
    "num_seeds": "one controller is trained; give another --seed and --output for another one",
}
"""Options that exclude --online, and what to do instead."""


def _start(options: TrainingOptions) -> checkpoint.Checkpoint | None:
    """The controller to start from.

    Raises:
        BadInputError: there is no such controller, or another option contradicts it.
    """
    if options.start is None:
        return None
    if options.trajectories is not None:
        raise BadInputError(
            "--trajectories with --start: a controller that is trained further learns from its own "
            "searches; choose one of the two"
        )
    return checkpoint.load(controller_folder(options.start))


def _check_default_price(config: learners.TrainConfig) -> None:
    if config.default_price != default_price(config, config.prices):
        raise BadInputError(
            f"--set default_price={config.default_price:g}: is above the largest of the prices, "
            f"{max(config.prices):g}: lower it, or add it to the prices"
        )


def _configured(
    options: TrainingOptions, start: checkpoint.Checkpoint | None
) -> learners.TrainConfig:
    return configure(
        options.config or (DEFAULT_CONFIG if start is None else start.train_config),
        actions=options.actions,
        num_candidates=options.num_candidates,
        num_iterations=options.num_iterations,
        settings=options.settings,
    )


def seed_keys(seed: int, num_seeds: int) -> jax.Array:
    """Keys [num_seeds + 1]: of the comparison, and of each controller, whatever `num_seeds` is."""
    numbers = jnp.arange(num_seeds + 1, dtype=jnp.uint32)
    return jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(numbers)


def train_seeds(
    config: learners.TrainConfig,
    questions: TrainingQuestions,
    keys: jax.Array,
    report: Callable[[str], None] = lambda line: None,
    *,
    start: checkpoint.Checkpoint | None = None,
) -> learners.TrainResult:
    """Train one controller per key; the result has a leading axis of seeds.

    Args:
        keys: PRNG keys, one per controller; consumed.
        report: called with lines of progress.
        start: controller whose networks all seeds start with; default: random ones.
    """
    training = learners.make_train_loop(config, questions.environment)
    total = config.num_iterations
    # All parts have one length: another length would need another compilation.
    length = total // max(parts for parts in range(1, _PARTS + 1) if total % parts == 0)
    indices = jnp.arange(total, dtype=jnp.int32)
    init, advance = jax.jit(training.init), None
    results = []
    # One seed after another: under `jax.vmap` the ticks after the end of a batch's searches could
    # not be skipped.
    for seed, key in enumerate(keys):
        state, iteration_keys = init(key)
        state = checkpoint.started_from(state, start)
        curves: list[learners.Curves] = []
        started = time.perf_counter()
        for first in range(0, total, length):
            part = slice(first, first + length)
            arguments = (questions.tables, state, indices[part], iteration_keys[part])
            if advance is None:
                report("compiling ...")
                advance = jax.jit(training.advance).lower(*arguments).compile()
                report(f"compiled in {time.perf_counter() - started:.0f} s")
                started = time.perf_counter()
            state, found = jax.block_until_ready(advance(*arguments))
            curves.append(found)
            done = first + length
            left = (time.perf_counter() - started) / done * (total - done)
            report(
                f"seed {seed + 1} of {len(keys)}: {done} of {total} iterations, accuracy "
                f"{float(found.accuracy.mean()):.3f}, about {left:.0f} s left for this seed"
            )
        whole: learners.Curves = jax.tree.map(lambda *parts: jnp.concatenate(parts), *curves)
        collapsed = learners.has_collapsed(whole.top_action)
        results.append(learners.TrainResult(learner_state=state, curves=whole, collapsed=collapsed))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


def configure(
    named: str | learners.TrainConfig,
    *,
    actions: str | None = None,
    num_candidates: Sequence[int] | None = None,
    num_iterations: int | None = None,
    settings: Sequence[str] = (),
) -> learners.TrainConfig:
    """A named configuration with other values.

    Args:
        named: the configuration, or the name of one of `CONFIGS`.
        actions: name of an action table, in place of the configuration's.
        num_candidates: values of N, in place of the configuration's.
        num_iterations: number of iterations, in place of the configuration's.
        settings: "NAME=VALUE"; NAME is a field of `learners.TrainConfig`, dotted below it
            (learner.learning_rate, cats.reward.discount); commas separate the values of a list.
            learner.algorithm=NAME (A2C, PPO or AWR, with default settings) is set first. Without
            `default_price` this is at most the largest of the prices.

    Raises:
        BadInputError: a name, table or field is unknown, or a value is out of range.
    """
    if isinstance(named, str) and named not in CONFIGS:
        raise BadInputError(f"unknown configuration {named!r}: choose one of {', '.join(CONFIGS)}")
    algorithm, arguments = None, []
    for setting in settings:
        field, equals, value = setting.partition("=")
        if not equals or not field or not value:
            raise BadInputError(f"--set {setting}: write NAME=VALUE, such as gae_lambda=0.9")
        if field.replace("-", "_") == "max_depth":
            raise BadInputError(
                f"--set {setting}: the bank, the recipe or the simulator has it: leave it out"
            )
        if field == "learner.algorithm":
            algorithm = value
        else:
            arguments += [f"--{field}", *value.split(",")]
    given: dict[str, Any] = {}
    if num_candidates is not None:
        given["num_candidates"] = tuple(num_candidates)
    if num_iterations is not None:
        given["num_iterations"] = num_iterations
    try:
        config = CONFIGS[named] if isinstance(named, str) else named
        if actions is not None:
            cats = dataclasses.replace(config.cats, actions=search.cats.action_table(actions))
            config = dataclasses.replace(config, cats=cats)
        if algorithm is not None:
            config = _with_algorithm(config, algorithm)
        if arguments:
            config = _parse(arguments, config)
        names = {setting.partition("=")[0].replace("-", "_") for setting in settings}
        if "default_price" not in names:
            given["default_price"] = default_price(config, config.prices)
        return dataclasses.replace(config, **given)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _with_algorithm(config: learners.TrainConfig, name: str) -> learners.TrainConfig:
    """The configuration with the given algorithm at default settings; unchanged if it has it."""
    if name not in learners.ALGORITHMS:
        known = known_names(name, sorted(learners.ALGORITHMS))
        raise BadInputError(f"--set learner.algorithm={name}: unknown algorithm: {known}")
    algorithm = learners.ALGORITHMS[name]
    if isinstance(config.learner.algorithm, algorithm):
        return config
    learner = dataclasses.replace(config.learner, algorithm=algorithm())
    return dataclasses.replace(config, learner=learner)


def _parse(arguments: list[str], default: learners.TrainConfig) -> learners.TrainConfig:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return tyro.cli(
                learners.TrainConfig,
                default=default,
                args=arguments,
                # The algorithm is known, so its settings are plain options.
                config=(tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands),
            )
    except SystemExit:
        # Tyro's message without its frame and its advice about --help.
        text = re.sub(r"[─-╿]+|-{3,}", " ", said.getvalue())
        words = " ".join(text.split()).split(" For full helptext")[0]
        raise BadInputError(
            f"--set: {words}; the fields are those of learners.TrainConfig, see "
            "docs/train/controllers.md"
        ) from None


def _check_held_out(
    what: str, taught: Mapping[str, str], questions: TrainingQuestions, *, apart: bool = True
) -> None:
    """Raise BadInputError if `what` was taught a held-out question, of a set `apart` or not."""
    held_out = set(questions.held_out_texts)
    both = [identity for identity, digest in taught.items() if digest in held_out]
    if both:
        raise BadInputError(
            f"questions of {what} and validation overlap: {len(both)} are in both, such as "
            f"{both[0]!r}: "
            + ("take one of the two from another set" if apart else "name others by --validation")
        )


def check_calibration(config: learners.TrainConfig, calibration: str | None) -> None:
    """Raise BadInputError if a training on a bank needs a calibration and has none."""
    policy = learners.make_policy(learners.make_actor(len(config.cats.actions)).apply, "sample")
    strategy = search.cats.cats(policy, config.cats)
    if calibration is None and strategy.needs_calibration:
        raise BadInputError(
            "the configuration looks at the PRMs' calibration, but there is no --calibration: name "
            "a file of `cats-jax calibrate`, a policy of the embedded world, or 'none'"
        )


def _questions(config: learners.TrainConfig, options: TrainingOptions) -> TrainingQuestions:
    if options.bank is not None:
        check_calibration(config, options.calibration)
        return bank_questions(
            options.bank,
            validation=options.validation,
            calibration=options.calibration,
            prms=options.prms,
            sampling=config.cats.sampling,
        )
    for name in ("validation", "calibration"):
        if getattr(options, name) is not None:
            raise BadInputError(f"--{name} belongs to --bank: the simulator has its own")
    return simulator_questions(options.prms)


def _one(figures: PolicyResults, index: int) -> dict[str, Any]:
    return {
        name: np.round(getattr(figures, name)[index], 4).tolist()
        for name in ("accuracy", "candidates", "value", "entropy", "top_action")
    }


def _line(
    name: str,
    config: learners.TrainConfig,
    figures: PolicyResults,
    index: int,
    collapse: dict[str, bool],
) -> str:
    where = [when.replace("_", " ") for when, is_so in collapse.items() if is_so]
    return (
        f"{name}: accuracy minus cost {np.round(figures.value[index], 3)} at prices "
        f"{list(config.prices)}; accuracy {np.round(figures.accuracy[index].mean(1), 3)} "
        f"with {np.round(figures.candidates[index].mean(1), 1)} candidates"
        + (
            f", COLLAPSED ({', '.join(where)}): one action in over "
            f"{100 * learners.COLLAPSE_SHARE:.0f} % of its decisions"
            if where
            else ""
        )
    )
