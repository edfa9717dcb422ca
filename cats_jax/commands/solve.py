"""`cats-jax solve`: one question, any strategy, and its search tree in the terminal."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..errors import BadInputError
from .solve_options import SolveOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..protocols import AnswerGrader
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
            seed are the defaults. The options below replace its values, except those of models.
        strategy: greedy, majority, best_of_n, best_of_n_weighted, beam, dvts, step_level_beam,
            vg_search, lookahead, rebase, dora, ets, particle_filtering, particle_gibbs,
            proportional_resampling, mcts, global_mcts, litesearch, speculative_rejection,
            sequential_halving, adaptive_consistency, early_stopping_consistency, self_certainty,
            deepconf, deepconf_online, gen_select, universal_self_consistency, pairwise_borda,
            llama_berry, sequential_best_of_n, cats or cats_random; or a function of your own as
            module:function; or the label of a strategy in the recipe. Default: beam.
        certified: certificate.json of `cats-jax certify`: search with its strategy and N, and
            without a recipe also with its models, calibration and limits.
        elsewhere: search without the guarantee if models or limits differ from the certificate's.
        num_candidates: N, candidates per reasoning step at most; default: 16.
        policy: model folder, id of the Hugging Face hub, or a policy of the embedded world;
            default: weak.
        policy_format: prompt format of the policy: a name, a .yaml file, or auto (default).
        policy_adapter: folder of a LoRA adapter in PEFT's layout, merged into the policy's weights.
        chat: the policy is the model --served-name of the chat endpoint --backend, and the PRM is
            on the back end hf, or at --prm-backend.
        prm: model folder, id of the Hugging Face hub, PRM of the embedded world, chat-judge, the
            model --prm-served-name of the chat endpoint --prm-backend, or the label of a PRM in the
            recipe; default: exact.
        prm_format: format in which the PRM reads a solution: a name, a .yaml file, or auto
            (default).
        prm_adapter: folder of a LoRA adapter, merged into the PRM's weights.
        prm_head: .safetensors file of a linear head on the last hidden state of a plain language
            model, whose sigmoid is the score; for the back end hf.
        loading: how policy and PRM are loaded.
        checkpoint: folder of the controller, for --strategy cats or learned_stopping; default: the
            shipped controller of cats.
        calibration: calibration of the PRM, a file of `cats-jax calibrate` or "none"; default: that
            of the controller's training with these models, or the one shipped for the embedded
            world's.
        beam_width: K, the number of paths kept; default: the strategy's.
        path_score: aggregation of step scores: min, last, mean or product.
        max_depth: most reasoning steps of a path; default: 10.
        max_step_tokens: a longer step is cut and dropped; default: 256.
        budget: most candidates of the search.
        seed: random seed of the search; default: 0.
        show_dropped: most dropped steps drawn per node.
        epsilon: largest deviation of a path's score from the truth (`cats-jax report --held-out`
            estimates one): also say whether the answer is certified.
        functions: run the code of functions that are named as module:function.
    """
    from ..controllers.strategies import foreign_models
    from ..evaluation.asked import asked_of
    from ..evaluation.cells import (
        asked_prompts,
        check_outcome_models,
        grid,
        prompt_tokens_of,
    )
    from ..evaluation.guarantees import guarantees
    from ..evaluation.runners import check_steps, largest_work
    from ..live.abstention import decided
    from ..live.searcher import Searcher
    from ..models.backend import check_there
    from ..models.hub import fetch_models
    from ..models.settle import check_shares, settle
    from ..models.source import ModelFolders, check_models, check_world_question
    from ..protocols import Question, facts_of
    from ..reporting.draw import LEGEND, describe_result, draw_search
    from ..specs.functions import function_lines
    from .terminal import make_console, say

    if epsilon is not None and not epsilon >= 0:
        raise BadInputError(f"--epsilon {epsilon}: a deviation can't be negative")
    if not question.strip():
        raise BadInputError("question is blank: give its text")
    if any("\ud800" <= char <= "\udfff" for char in question):
        raise BadInputError("question is not UTF-8 text: check the terminal's encoding (locale)")
    if elsewhere and certified is None:
        raise BadInputError("--elsewhere: goes on beyond a certificate: give it with --certified")
    given = {
        "certified": certified,
        "elsewhere": elsewhere or None,
        "strategy": strategy,
        "num_candidates": num_candidates,
        "policy": policy,
        "policy_format": policy_format,
        "policy_adapter": policy_adapter,
        "chat": chat or None,
        "prm": prm,
        "prm_format": prm_format,
        "prm_adapter": prm_adapter,
        "prm_head": prm_head,
        "checkpoint": checkpoint,
        "calibration": calibration,
        "beam_width": beam_width,
        "path_score": path_score,
        "max_depth": max_depth,
        "max_step_tokens": max_step_tokens,
        "budget": budget,
        "seed": seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    # A recipe of one cell, so that every rule is checked in one place.
    one = _of_options(given, loading) if recipe is None else _of_recipe(recipe, given, loading)
    console, status = make_console(), make_console(stderr=True)
    for line in function_lines(one.strategies, one.policy, one.prms, allowed=functions):
        say(status, line)
    (cell,) = grid(one)
    check_world_question(question, one.policy)
    models = ModelFolders()
    one = dataclasses.replace(one, prms=() if cell.prm is None else (cell.prm,))
    fetch_models((one.policy, *one.prms))
    for spec in (one.policy, *one.prms):
        models.check(spec)
    check_outcome_models([cell])
    wording, asked = asked_of(one) | asked_prompts([cell]), Question("question", question)
    longest = [prompt_tokens_of([cell], one, judge) for judge in ("policy", "prm")]
    chosen, prms = settle(one.policy, one.prms, [asked], one.max_depth, *longest)
    one = dataclasses.replace(one, policy=chosen, prms=prms)
    check_there((chosen, *prms))
    fingerprints = {f"prm {each.label}": models.fingerprint(each) for each in prms}
    fingerprints["policy"] = models.fingerprint(chosen)
    held = guarantees(one, fingerprints, wording, of_questions=False)
    for line in foreign_models(one.strategies, fingerprints):
        say(status, f"warning: {line}")
    check_shares(chosen, prms)
    check_models(models, chosen, prms, largest_work(one))
    grader = _grader(one)
    started = time.perf_counter()
    with status.status("loading the models"):
        loaded = models.policy(chosen)
        check_steps(loaded, one)
        scorer = models.prm(prms[0]) if prms else None
    loading_seconds = time.perf_counter() - started
    searcher = Searcher(
        policy=loaded,
        scorer=scorer,
        strategy=cell.strategy,
        prompts=cell.prompts,
        params=cell.params,
        num_candidates=cell.num_candidates,
        calibration=cell.calibration,
        price=cell.price,
        prm_token_cost=cell.prm_token_cost,
        seed=one.seeds[0],
        grader=grader,
        max_depth=one.max_depth,
        budget=one.budget,
        max_tokens=one.max_tokens,
        max_seconds=one.max_seconds,
    )
    started = time.perf_counter()
    with status.status("searching; the first search of its kind compiles its programs"):
        (result,) = searcher.run([asked])
    if cell.spec.certified is not None:
        result = decided(result, cell.spec.certified.threshold)
    seconds, compiling = (
        time.perf_counter() - started,
        searcher.timings.as_dict().get("compiling", 0.0),
    )
    console.print(draw_search(result, show_dropped))
    console.print(LEGEND)
    say(console, describe_result(result))
    say(
        console,
        f"loading models {loading_seconds:.1f} s, compiling {compiling:.1f} s, searching "
        f"{seconds - compiling:.1f} s",
    )
    if (note := facts_of(scorer).note) is not None:
        say(status, f"warning: {note}")
    for guarantee in held.values():
        say(console, guarantee.line)
    if epsilon is not None:
        from ..reporting.certificates import describe_certificate

        say(console, describe_certificate(result, epsilon, grader))
    return int(result.status == "failed")


_OF_STRATEGIES = ("checkpoint", "beam_width", "path_score")
_OF_MODELS = ("policy", "policy_format", "policy_adapter", "prm_format", "prm_adapter", "prm_head")
_OF_MODELS += ("chat", "calibration", "max_step_tokens")
_OF_CERTIFICATES = ("strategy", "num_candidates", "calibration", *_OF_STRATEGIES)


def _of_options(given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from the options alone."""
    from ..controllers.strategies import default_calibrations
    from ..specs.calibrations import load_calibrations
    from ..specs.recipe import PolicySpec, PrmSpec, QuestionSpec, Recipe, StrategySpec

    if "certified" in given:
        return _of_certificate(given, loading)
    of_policy, of_prm = loading.of_each(chat="chat" in given)
    steps = {name: given[name] for name in ("max_step_tokens",) if name in given}
    policy = PolicySpec(
        given.get("policy", "weak"),
        format=given.get("policy_format", "auto"),
        adapter=given.get("policy_adapter"),
        **steps,
        **of_policy,
    )
    prm = PrmSpec(
        given.get("prm", "exact"),
        format=given.get("prm_format", "auto"),
        adapter=given.get("prm_adapter"),
        head=given.get("prm_head"),
        **of_prm,
    )
    spec = StrategySpec(given.get("strategy", "beam"), options=_options(given))
    if "calibration" in given:
        calibrations = load_calibrations(given["calibration"], [prm.label])
    else:
        calibrations = default_calibrations(spec, policy.name)
    return Recipe(
        name="solve",
        strategies=(spec,),
        num_candidates=(given.get("num_candidates", 16),),
        questions=(QuestionSpec(world="test", count=1),),
        policy=policy,
        prms=(prm,),
        calibration=calibrations,
        seeds=(given.get("seed", 0),),
        max_depth=given.get("max_depth", 10),
        budget=given.get("budget"),
        in_flight=1,
    )


def _certified(given: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a certified strategy in a recipe.

    Raises:
        BadInputError: an option is given that only the certificate may set.
    """
    for name in _OF_CERTIFICATES:
        if name in given:
            raise BadInputError(
                f"--{name.replace('_', '-')}: the certificate {given['certified']!r} names the "
                "strategy with its options, N and calibration: leave the option out"
            )
    return {"certified": given["certified"], "elsewhere": "elsewhere" in given}


def _of_certificate(given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from a certificate; given options replace its values."""
    from ..specs.certificates import LIMITS, read_certificate, read_content
    from ..specs.recipe import parse_recipe
    from ..storage.reading import reading

    strategy = _certified(given)
    if "chat" in given:
        raise BadInputError(
            "--chat: the certificate names the policy: name the certificate in a recipe whose "
            "policy has chat: true, and give that by --recipe"
        )
    path = str(given["certified"])
    content, (_, certified) = read_content(path), read_certificate(path)
    config = content["config"]
    with reading(f"certificate {path!r}", "make it anew by `cats-jax certify`"):
        policy, prms = _certified_models(path, content, certified.prm, given, loading)
        limits = {name: given.get(name, config.get(name)) for name in LIMITS}
        return parse_recipe(
            {
                "name": "solve",
                "strategies": [strategy],
                "questions": {"world": "test", "count": 1},
                "policy": policy,
                "prms": prms,
                "seeds": given.get("seed", 0),
                "in_flight": 1,
                **{name: value for name, value in limits.items() if value is not None},
            }
        )


def _certified_models(
    path: str,
    content: Mapping[str, Any],
    prm: str | None,
    given: Mapping[str, Any],
    loading: SolveOptions,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The policy and the certified PRM of a certificate; given options replace their values.

    Raises:
        BadInputError: a model needs a setting that only the user may give, see `_USERS_OWN`.
    """
    config, (of_policy, of_prm) = content["config"], loading.given_for_each()
    policy = dict(config["policy"])
    prms = [dict(each) for each in config["prms"] if each.get("label") == prm]
    asked = content.get("asked") or {}
    for model, name in ((policy, "policy"), *((each, "prm") for each in prms)):
        # The user's value, not the one that the run chose for its questions.
        at, changed = (name, of_policy) if model is policy else (f"prm {prm}", of_prm)
        model["max_model_len"] = asked.get(at, {}).get("max_model_len")
        keys = {name: "path", f"{name}_format": "format", f"{name}_adapter": "adapter"}
        keys |= {"prm_head": "head"} if name == "prm" else {"max_step_tokens": "max_step_tokens"}
        for key in _USERS_OWN:
            value = model.get(key)
            if value is None or (key == "backend" and value in ("hf", "vllm", "auto")):
                continue
            if key not in changed:
                raise BadInputError(
                    f"certificate {path!r}: its {name} has {key}, and a file may not say where a "
                    "question goes or what runs: name the certificate in a recipe of your own that "
                    "has it, or give the option of solve"
                )
        model |= changed | {key: given[option] for option, key in keys.items() if option in given}
    return policy, prms


_USERS_OWN = ("backend", "served_name", "api_key_env", "engine_args")
"""Settings that name a server, its key, or classes that an engine loads. Only the user may give
these settings, because a certificate may come from a stranger."""


def _of_recipe(path: pathlib.Path, given: Mapping[str, Any], loading: SolveOptions) -> Recipe:
    """A recipe of one cell from a recipe's values; given options replace them."""
    from ..specs.recipe import StrategySpec, load_recipe, parse_strategy

    for option in (
        *(f"--{n.replace('_', '-')}" for n in _OF_MODELS if n in given),
        *loading.given(),
    ):
        raise BadInputError(
            f"{option}: the recipe {str(path)!r} names the models with their settings: change it "
            "there, or leave --recipe out"
        )
    limits = {name: given[name] for name in ("max_depth", "budget") if name in given}
    recipe = load_recipe(path, {**limits, "in_flight": 1})
    label = given.get("strategy", recipe.strategies[0].label)
    if "certified" in given:
        spec = parse_strategy(_certified(given))
    else:
        spec = next((s for s in recipe.strategies if s.label == label), StrategySpec(label))
    if spec.certified is not None:
        _certified({"certified": spec.certified.file, **_certified_options(given)})
    options = tuple(sorted({**dict(spec.options), **dict(_options(given))}.items()))
    labels = [prm.label for prm in recipe.prms]
    if "prm" in given and given["prm"] not in labels:
        raise BadInputError(
            f"--prm {given['prm']!r} is not in the recipe {str(path)!r}: it has "
            f"{', '.join(labels) or 'none'}"
        )
    wanted = given.get("prm", labels[0] if labels else None)
    return dataclasses.replace(
        recipe,
        strategies=(dataclasses.replace(spec, options=options),),
        num_candidates=(given.get("num_candidates", recipe.num_candidates[0]),),
        prms=tuple(prm for prm in recipe.prms if prm.label == wanted),
        seeds=(given.get("seed", recipe.seeds[0]),),
    )


def _certified_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that a certificate sets, except the strategy's label."""
    return {name: given[name] for name in _OF_CERTIFICATES[1:] if name in given}


def _options(given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The given options of strategies, as those of a `StrategySpec`."""
    return tuple(sorted((name, given[name]) for name in _OF_STRATEGIES if name in given))


def _grader(recipe: Recipe) -> AnswerGrader:
    """The grader of the answers: boxed integers for the embedded world, else LaTeX if installed."""
    import importlib.util

    from ..grading.graders import make_grader
    from ..models.source import is_world_policy

    has_math = importlib.util.find_spec("math_verify") is not None
    return make_grader("math" if has_math and not is_world_policy(recipe.policy) else "integer")
