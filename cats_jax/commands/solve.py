"""`cats-jax solve`: one question, any strategy, and its search tree in the terminal."""

from __future__ import annotations

import time
from typing import Annotated

import tyro

from ..errors import BadInputError


def solve(
    question: tyro.conf.Positional[str],
    *,
    strategy: str = "beam",
    num_candidates: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 16,
    policy: str = "weak",
    prm: str = "exact",
    prm_format: str = "auto",
    checkpoint: str | None = None,
    calibration: str | None = None,
    width: int | None = None,
    path_score: str | None = None,
    max_depth: int = 10,
    max_step_tokens: int = 256,
    budget: int | None = None,
    seed: int = 0,
    show_dropped: int = 2,
    epsilon: float | None = None,
) -> int:
    """Search one question and draw the tree: steps, scores, what was kept, the actions taken.

    The embedded world's policies are "weak" and "strong"; its questions look like
    "((50*4)-21)+15=?".

    Args:
        question: text of the question.
        strategy: greedy, majority, best_of_n, best_of_n_weighted, beam, dvts, particle_filtering,
            mcts, adaptive_consistency, sequential_best_of_n, cats or cats_random; or a function of
            your own as module:function.
        num_candidates: N, candidates per reasoning step at most.
        policy: model folder, or a policy of the embedded world.
        prm: model folder, or a PRM of the embedded world.
        prm_format: format in which the PRM reads a solution.
        checkpoint: checkpoint of the controller, for --strategy cats; default: the shipped one.
        calibration: calibration of the PRM, a file of `cats-jax calibrate` or "none"; default: that
            of the controller's training with these models, or the one shipped for the world's.
        width: K, the number of paths kept; default: the strategy's.
        path_score: aggregation of step scores: min, last, mean or product.
        max_depth: most reasoning steps of a path.
        max_step_tokens: a longer step is cut and dropped.
        budget: most candidates of the search.
        seed: random seed of the search.
        show_dropped: most dropped steps drawn per node.
        epsilon: largest deviation of a path's score from the truth (`cats-jax report --held-out`
            estimates one): also say whether the answer is certified.
    """
    from ..controllers.strategies import default_calibrations, foreign_models
    from ..evaluation.cells import grid
    from ..evaluation.runners import largest_work
    from ..live.searcher import Searcher
    from ..models.source import ModelFolders, check_models, check_world_question
    from ..protocols import Question
    from ..reporting.draw import LEGEND, describe_result, draw_search
    from ..specs.calibrations import load_calibrations
    from ..specs.recipe import PolicySpec, PrmSpec, QuestionSpec, Recipe, StrategySpec
    from .terminal import make_console, say

    if epsilon is not None and not epsilon >= 0:
        raise BadInputError(f"--epsilon {epsilon}: a deviation can't be negative")
    if not question.strip():
        raise BadInputError("question is blank: give its text")
    if any("\ud800" <= char <= "\udfff" for char in question):
        raise BadInputError("question is not UTF-8 text: check the terminal's encoding (locale)")
    options = {"checkpoint": checkpoint, "width": width, "path_score": path_score}
    given = tuple(sorted((name, value) for name, value in options.items() if value is not None))
    prm_spec = PrmSpec(prm, format=prm_format)
    spec = StrategySpec(strategy, options=given)
    if calibration is None:
        calibrations = default_calibrations(spec, policy)
    else:
        calibrations = load_calibrations(calibration, [prm_spec.label])
    # A recipe of one cell, so that every rule is checked in one place.
    recipe = Recipe(
        name="solve",
        strategies=(spec,),
        num_candidates=(num_candidates,),
        questions=(QuestionSpec(world="test", count=1),),
        policy=PolicySpec(policy, max_step_tokens=max_step_tokens),
        prms=(prm_spec,),
        calibration=calibrations,
        max_depth=max_depth,
        budget=budget,
    )
    (cell,) = grid(recipe)
    check_world_question(question, recipe.policy)
    console, status = make_console(), make_console(stderr=True)
    models = ModelFolders()
    prms = () if cell.prm is None else recipe.prms
    fingerprints = {f"prm {each.label}": models.fingerprint(each) for each in prms}
    fingerprints["policy"] = models.fingerprint(recipe.policy)
    for line in foreign_models(recipe.strategies, fingerprints):
        status.print(f"warning: {line}", markup=False, soft_wrap=True)
    check_models(models, recipe.policy, prms, largest_work(recipe))
    started = time.perf_counter()
    with status.status("loading the models"):
        loaded = models.policy(recipe.policy)
        scorer = None if cell.prm is None else models.prm(cell.prm)
    loading = time.perf_counter() - started
    searcher = Searcher(
        policy=loaded,
        scorer=scorer,
        strategy=cell.strategy,
        params=cell.params,
        num_candidates=num_candidates,
        calibration=cell.calibration,
        price=cell.price,
        prm_rate=cell.prm_rate,
        seed=seed,
        max_depth=max_depth,
        budget=budget,
    )
    started = time.perf_counter()
    with status.status("searching; the first search of its kind compiles its programs"):
        (result,) = searcher.run([Question("question", question)])
    seconds, compiling = (
        time.perf_counter() - started,
        searcher.timings.as_dict().get("compiling", 0.0),
    )
    console.print(draw_search(result, show_dropped))
    console.print(LEGEND)
    say(console, describe_result(result))
    say(
        console,
        f"loading models {loading:.1f} s, compiling {compiling:.1f} s, searching "
        f"{seconds - compiling:.1f} s",
    )
    if epsilon is not None:
        from ..grading.boxed_integer import BoxedIntegerJudge
        from ..reporting.certificates import describe_certificate

        say(console, describe_certificate(result, epsilon, BoxedIntegerJudge()))
    return int(result.status == "failed")
