"""`cats-jax solve`: one question, any strategy, and its search tree in the terminal."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import tyro

from ..errors import BadInputError
from .solve_options import SolveOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..evaluation.cells import Cell
    from ..models.source import ModelFolders
    from ..protocols import AnswerGrader, Question
    from ..specs.recipe import Recipe


def solve(
    question: tyro.conf.Positional[str],
    *,
    recipe: pathlib.Path | None = None,
    strategy: str | None = None,
    certified: str | None = None,
    elsewhere: bool = False,
    num_candidates: Annotated[int | None, tyro.conf.arg(aliases=["-n"])] = None,
    policy: str | None = None,
    policy_format: str | None = None,
    policy_adapter: str | None = None,
    chat: bool = False,
    prm: str | None = None,
    prm_format: str | None = None,
    prm_adapter: str | None = None,
    prm_head: str | None = None,
    loading: tyro.conf.OmitArgPrefixes[SolveOptions],
    checkpoint: str | None = None,
    calibration: str | None = None,
    beam_width: int | None = None,
    path_score: str | None = None,
    max_depth: int | None = None,
    max_step_tokens: int | None = None,
    budget: int | None = None,
    seed: int | None = None,
    show_dropped: int = 2,
    epsilon: float | None = None,
    functions: bool = True,
) -> int:
    """Search one question and draw the tree: steps, scores, what was kept, the actions taken.

    The embedded world's policies are "weak" and "strong"; its questions look like
    "((50*4)-21)+15=?". A model of real size needs settings, such as --device cuda --dtype bfloat16;
    policy and PRM share them. A recipe gives each its own.

    Args:
        question: text of the question.
        recipe: recipe whose models, limits and calibration are used; its first strategy, N, PRM and
            seed are the defaults, but a certified strategy has the PRM of its certificate. Answers
            are compared as those to its questions. The options below replace its values, except
            those of models.
        strategy: greedy, majority, best_of_n, best_of_n_weighted, beam, dvts, step_level_beam,
            vg_search, lookahead, rebase, dora, ets, particle_filtering, particle_gibbs,
            proportional_resampling, mcts, global_mcts, litesearch, speculative_rejection,
            sequential_halving, adaptive_consistency, early_stopping_consistency, self_certainty,
            deepconf, deepconf_online, gen_select, universal_self_consistency, pairwise_borda,
            mctsr, ab_mcts_a, llama_berry, sequential_best_of_n, learned_stopping, cats or
            cats_random; or a function of your own as module:function; or the label of a strategy in
            the recipe. Default: beam.
        certified: certificate.json of `cats-jax certify`: search with its strategy and N, and
            without a recipe also with its models, calibration and limits.
        elsewhere: search without the guarantee if models or limits differ from the certificate's.
        num_candidates: N, candidates per reasoning step at most; default: 16.
        policy: model folder, id of the Hugging Face hub, or a policy of the embedded world;
            default: weak.
        policy_format: prompt format of the policy: a name, a .yaml file, or auto (default).
        policy_adapter: folder of a LoRA adapter in PEFT's layout, merged into the policy's weights.
        chat: the policy is the model --served-name of the chat endpoint --backend, and the PRM is
            on the backend hf, or at --prm-backend.
        prm: model folder, id of the Hugging Face hub, PRM of the embedded world, label of a PRM in
            the recipe, or chat-judge, which means the model --prm-served-name at --prm-backend;
            default: exact.
        prm_format: format in which the PRM reads a solution: a name, a .yaml file, or auto
            (default).
        prm_adapter: folder of a LoRA adapter, merged into the PRM's weights.
        prm_head: .safetensors file of a linear head on the last hidden state of a plain language
            model, whose sigmoid is the score; for the backend hf.
        loading: how policy and PRM are loaded.
        checkpoint: controller of --strategy cats, a folder or the name of a shipped one (default:
            "cats"); or folder of the stopper, which --strategy learned_stopping needs.
        calibration: calibration of the PRM: a file of `cats-jax calibrate`, a shipped name such as
            "weak", or "none"; default: that of the controller's training with these models, or the
            one shipped for the embedded world's.
        beam_width: K, the number of paths kept; default: the strategy's.
        path_score: aggregation of step scores: min, last, mean or product.
        max_depth: largest number of reasoning steps of a path; default: 10.
        max_step_tokens: a longer step is cut and dropped; default: 256.
        budget: largest number of candidates of the search.
        seed: random seed of the search; default: 0.
        show_dropped: largest number of dropped steps drawn per node.
        epsilon: largest deviation of a path's score from the truth (`cats-jax report --held-out`
            estimates one): also say whether the answer is certified.
        functions: run the code of functions that are named as module:function.
    """
    # The arguments that are there; a seed or a limit of 0 is, too.
    given = {
        name: value for name, value in locals().items() if value is not None and value is not False
    }
    from ..specs.functions import function_lines
    from .solve_recipe import one_cell
    from .terminal import make_console, say

    _check_arguments(question, epsilon, certified, elsewhere=elsewhere)
    if show_dropped < 0:
        raise BadInputError(f"--show-dropped {show_dropped}: must be at least 0")
    one = one_cell(given, loading, recipe)
    console, status = make_console(), make_console(stderr=True)
    for line in function_lines(one.strategies, one.policy, one.prms, allowed=functions):
        say(status, line)
    plan = _planned(one, question)
    for line in plan.warnings:  # a check that fails must not hide them
        say(status, f"warning: {line}")
    _check_memory(plan)
    grader = _grader(plan.recipe, is_given=recipe is not None)
    return _answer(plan, grader, console, status, show_dropped, epsilon)


def _check_arguments(
    question: str, epsilon: float | None, certified: str | None, *, elsewhere: bool
) -> None:
    if epsilon is not None and not 0 <= epsilon < math.inf:
        raise BadInputError(f"--epsilon {epsilon}: a deviation must be finite and at least 0")
    if not question.strip():
        raise BadInputError("question is blank: give its text")
    if any("\ud800" <= char <= "\udfff" for char in question):
        raise BadInputError("question is not UTF-8 text: check the terminal's encoding (locale)")
    if elsewhere and certified is None:
        raise BadInputError("--elsewhere: searches beyond a certificate: give it with --certified")


class _Plan(NamedTuple):
    """A search whose models are checked, except for memory, and not loaded yet.

    Attributes:
        recipe, cell: recipe of one cell, with the settings that its models chose, and the cell.
        asked, models: the question, and the checked models.
        warnings: what the user should know before the search.
        guarantees: what certificates state about the answer, one line each.
    """

    recipe: Recipe
    cell: Cell
    asked: Question
    models: ModelFolders
    warnings: Sequence[str]
    guarantees: Sequence[str]


def _planned(recipe: Recipe, question: str) -> _Plan:
    """Check the question, the strategy and the models of a recipe of one cell."""
    from ..controllers.strategies import foreign_models
    from ..evaluation.asked import asked_of
    from ..evaluation.cells import asked_prompts, check_outcome_models, grid, resolved_recipe
    from ..evaluation.guarantees import guarantees
    from ..models.backend import check_there
    from ..models.hub import fetch_models
    from ..models.source import ModelFolders, check_world_question
    from ..protocols import Question

    (cell,) = grid(recipe)
    check_world_question(question, recipe.policy)
    prms = () if cell.prm is None else (cell.prm,)
    recipe = dataclasses.replace(recipe, prms=prms)
    fetch_models((recipe.policy, *prms))
    models = ModelFolders()
    for spec in (recipe.policy, *prms):
        models.check(spec)
    check_outcome_models([cell])
    wording = asked_of(recipe) | asked_prompts([cell])
    asked = Question("question", question)
    recipe = resolved_recipe(recipe, [cell], [asked])
    check_there((recipe.policy, *recipe.prms))
    fingerprints = {f"prm {each.label}": models.fingerprint(each) for each in recipe.prms}
    fingerprints["policy"] = models.fingerprint(recipe.policy)
    held = guarantees(recipe, fingerprints, wording, of_questions=False)
    foreign = foreign_models(recipe.strategies, fingerprints)
    lines = [guarantee.line for guarantee in held.values()]
    return _Plan(recipe, cell, asked, models, foreign, lines)


def _check_memory(plan: _Plan) -> None:
    from ..evaluation.runners import largest_work
    from ..models.resolve import check_gpu_shares
    from ..models.source import check_models

    recipe = plan.recipe
    check_gpu_shares(recipe.policy, recipe.prms)
    check_models(plan.models, recipe.policy, recipe.prms, largest_work(recipe, [plan.cell]))


def _answer(
    plan: _Plan,
    grader: AnswerGrader,
    console: Console,
    status: Console,
    show_dropped: int,
    epsilon: float | None,
) -> int:
    """Load the models, search, and print the tree and the answer; 1 if the search failed."""
    from ..evaluation.runners import check_steps, searcher_of
    from ..live.abstention import decided
    from ..protocols import warn_note
    from ..reporting.certificates import describe_certificate
    from ..reporting.draw import LEGEND, describe_result, draw_search
    from .terminal import say

    recipe, cell = plan.recipe, plan.cell
    started = time.perf_counter()
    with status.status("loading the models"):
        policy = plan.models.policy(recipe.policy)
        check_steps(policy, recipe, [cell])
        scorer = plan.models.prm(recipe.prms[0]) if recipe.prms else None
    loaded = time.perf_counter()
    searcher = searcher_of(cell, recipe, policy, scorer, grader)
    with status.status("searching; the first search of its kind compiles its programs"):
        (result,) = searcher.run([plan.asked])
    if cell.spec.certified is not None:
        result = decided(result, cell.spec.certified.threshold)
    seconds = time.perf_counter() - loaded
    compiling = searcher.timings.as_dict().get("compiling", 0.0)
    console.print(draw_search(result, show_dropped))
    console.print(LEGEND)
    say(console, describe_result(result))
    say(
        console,
        f"loading models {loaded - started:.1f} s, compiling {compiling:.1f} s, searching "
        f"{seconds - compiling:.1f} s",
    )
    warn_note(policy)
    warn_note(scorer)
    for line in plan.guarantees:
        say(console, line)
    if epsilon is not None:
        say(console, describe_certificate(result, epsilon, grader))
    return int(result.status == "failed")


def _grader(recipe: Recipe, *, is_given: bool) -> AnswerGrader:
    """The grader of the answers, which is that of the questions of a recipe that was given.

    Else boxed integers for the embedded world's policies, and LaTeX for others if it is installed.
    """
    import importlib.util

    from ..evaluation.evaluate import check_grading
    from ..grading.graders import default_grader, make_grader
    from ..models.source import is_world_policy

    if is_given:
        check_grading(recipe.questions)
        return default_grader(recipe.questions)
    has_math = importlib.util.find_spec("math_verify") is not None
    return make_grader("math" if has_math and not is_world_policy(recipe.policy) else "integer")
