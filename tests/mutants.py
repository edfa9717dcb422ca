"""Breaks the code in known ways and asks the tests to notice (`make mutants`).

    .venv/bin/python tests/mutants.py           # all of them: takes long
    .venv/bin/python tests/mutants.py TEXT ...  # those with such a text in their name or file

Each mutant is one small edit, applied to a fresh copy of the tree, never to the working tree. The
tests named by a mutant must pass before the edit and fail after it. Exit code 0: all caught;
1: one survived; 2: the list itself is wrong (the text to replace is not there exactly once, or
the tests do not pass unmutated, or pytest did not run them).
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import rich.console
import rich.table

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break the code.

    Attributes:
        name: what is broken, in a few words.
        file: path from the root of the repository.
        original: text that occurs exactly once in that file.
        mutated: what replaces it.
        tests: arguments of pytest that select the tests which must notice.
    """

    name: str
    file: str
    original: str
    mutated: str
    tests: tuple[str, ...]


def _parts(name: str) -> tuple[str, ...]:
    return ("tests/search/test_parts.py", "-k", name)


def _loop(strategy: str) -> tuple[str, ...]:
    return (f"tests/search/test_loop.py::test_graph_host_and_oracle_agree[{strategy}]",)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="a lock is opened through a link",
        file="cats_jax/storage/durable.py",
        original="flags |= os.O_NOFOLLOW | os.O_NONBLOCK",
        mutated="flags |= os.O_NONBLOCK",
        tests=("tests/storage/test_durable.py", "-k", "symbolic"),
    ),
    Mutant(
        name="a tree may inflate to any size",
        file="cats_jax/storage/reading.py",
        original="if total > MAX_INFLATED:",
        mutated="if total < 0:",
        tests=("tests/storage/test_reading.py", "-k", "inflating"),
    ),
    Mutant(
        name="a sliding window has a token more",
        file="cats_jax/models/huggingface/attention.py",
        original="from_here > window",
        mutated="from_here > window + 1",
        tests=("tests/models/test_sliding_windows.py", "-k", "last_tokens"),
    ),
    Mutant(
        name="a server that ignores n is asked again",
        file="cats_jax/models/serving/http_engine.py",
        original="if len(choices) == 1 < body",
        mutated="if len(choices) == 0 < body",
        tests=("tests/models/test_http_engine.py", "-k", "first_reply"),
    ),
    Mutant(
        name="calls in progress are left out of the limit on costs",
        file="cats_jax/models/serving/spending.py",
        original="self.spent + sum(self._held) + most",
        mutated="self.spent + most",
        tests=("tests/models/test_chat.py", "-k", "calls_in_progress"),
    ),
    Mutant(
        name="an answer that the endpoint cut is whole",
        file="cats_jax/models/serving/chat.py",
        original='"end" if finish == "stop" else "length"',
        mutated='"end"',
        tests=("tests/models/test_chat.py", "-k", "whole_answers_only"),
    ),
    Mutant(
        name="the tokenizer's own end of text ends no answer",
        file="cats_jax/models/huggingface/model.py",
        original="sources = [self.tokenizer, ",
        mutated="sources = [",
        tests=("tests/models/test_policies.py", "-k", "all_tokens_that_the_model"),
    ),
    Mutant(
        name="a sample without log-probabilities has a probability of 1",
        file="cats_jax/models/serving/vllm_engine.py",
        original="tuple(output.log_probs) if log_probs else None",
        mutated="tuple(output.log_probs)",
        tests=("tests/models/test_engine_settings.py", "-k", "seeds_of_the_samples"),
    ),
    Mutant(
        name="a recipe may leave out the log-probabilities that a strategy reads",
        file="cats_jax/evaluation/cells.py",
        original="strategy.needs_log_probs or by_likelihood",
        mutated="by_likelihood",
        tests=("tests/evaluation/test_asking_in_doubt.py", "-k", "without_log_prob"),
    ),
    Mutant(
        name="a recipe may leave out the log-probabilities that a calibration reads",
        file="cats_jax/evaluation/cells.py",
        original="strategy.needs_log_probs or by_likelihood",
        mutated="strategy.needs_log_probs",
        tests=("tests/evaluation/test_asking_in_doubt.py", "-k", "without_log_prob"),
    ),
    Mutant(
        name="a PRM that the calibration trusts little is asked, too",
        file="search/strategy/cats/search.py",
        original=" & (found[:, weight] >= least_weight)",
        mutated="",
        tests=("tests/search/test_asking.py",),
    ),
    Mutant(
        name="a node that asked the PRM goes on as if it had not",
        file="search/strategy/cats/search.py",
        original="return found[:, scored] == 0.0, in_doubt",
        mutated="return found[:, scored] <= 1.0, in_doubt",
        tests=("tests/search/test_asking.py",),
    ),
    Mutant(
        name="accepting a child without a score is a decision",
        file="search/strategy/cats/search.py",
        original="deciding, stuck = is_open & ~childless & ~unscored",
        mutated="deciding, stuck = is_open & ~childless",
        tests=("tests/search/test_asking.py",),
    ),
    Mutant(
        name="a phase that samples nothing is not the last one of its step",
        file="cats_jax/live/ticks.py",
        original="state = state.replace(phase=jnp.where(is_quiet, last, state.phase))",
        mutated="state = state.replace(phase=jnp.where(is_quiet, state.phase, state.phase))",
        tests=("tests/live/test_driver.py", "-k", "sample_nothing_are_skipped"),
    ),
    Mutant(
        name="options of XLA that the user sets are overridden",
        file="cats_jax/live/core_program.py",
        original="for name, value in _QUICK.items() if name not in flags}",
        mutated="for name, value in _QUICK.items()}",
        tests=("tests/live/test_core_program.py", "-k", "left_alone"),
    ),
    Mutant(
        name="an option of XLA that this JAX lacks ends the search",
        file="cats_jax/live/core_program.py",
        original="for name, value in wanted.items() if _is_known(name, value)}",
        mutated="for name, value in wanted.items()}",
        tests=("tests/live/test_core_program.py", "-k", "does_not_have"),
    ),
    Mutant(
        name="a large model on the CPU computes with one thread",
        file="cats_jax/models/threads.py",
        original="return 1 if parameters < _SMALL else available_cpus()",
        mutated="return 1",
        tests=("tests/models/test_threads.py", "-k", "size_decides"),
    ),
    Mutant(
        name="the threads of the last model that was loaded are those of all",
        file="cats_jax/models/huggingface/model.py",
        original="torch.get_num_threads() != self._num_threads:",
        mutated="self.seconds == 0.0:",
        tests=("tests/models/test_threads.py", "-k", "its_own_number"),
    ),
    Mutant(
        name="a greedy child is sampled again although its node has one",
        file="cats_jax/live/pending_requests.py",
        original="copy=slot.greedy.get(parent) if step_request.temperature == 0.0 else None,",
        mutated="copy=None,",
        tests=("tests/live/test_driver.py", "-k", "greedy_child_once"),
    ),
    Mutant(
        name="the PRM reads a text below a node each time that it is sampled",
        file="search/costs.py",
        original="is_new = scored & ~repeats & ~_has_equal(tick, was_read)",
        mutated="is_new = scored & ~repeats",
        tests=("tests/search/test_costs.py", "-k", "loop"),
    ),
    Mutant(
        name="a child without a score does not take that of an equal text",
        file="search/calibration.py",
        original="return best, jnp.any(same, axis=1), jnp.any(siblings, axis=1)",
        mutated="return best, scored, jnp.any(siblings, axis=1)",
        tests=("tests/search/test_calibration.py", "-k", "equal_text"),
    ),
    Mutant(
        name="adaptive consistency stops without looking at the second answer",
        file="search/strategy/path_by_path.py",
        original="second = jnp.max(jnp.where(leads, 0, votes), initial=0)",
        mutated="second = 0 * first",
        tests=_loop("adaptive_consistency"),
    ),
    Mutant(
        name="a path is given up although there is no answer yet",
        file="search/strategy/path_by_path.py",
        original="(has_answer | ~is_last)",
        mutated="(is_last | ~is_last)",
        tests=_loop("sequential_best_of_n"),
    ),
    Mutant(
        name="a path without an end counts on",
        file="search/strategy/path_by_path.py",
        original="stays = pool.valid & ~bad & ~too_long",
        mutated="stays = pool.valid & ~bad",
        tests=_loop("adaptive_consistency"),
    ),
    Mutant(
        name="a window agrees although one of its paths is lost",
        file="search/strategy/early_stopping_consistency.py",
        original="return ~jnp.any(grows) & whole & (lowest == highest) & (lowest >= 0)",
        mutated="return ~jnp.any(grows) & (lowest == highest) & (lowest >= 0)",
        tests=_loop("early_stopping_consistency"),
    ),
    Mutant(
        name="earlier windows vote against the one that agrees",
        file="search/strategy/early_stopping_consistency.py",
        original="jnp.where(silent, 0.0, finished.weight)",
        mutated="jnp.where(silent, 1.0, finished.weight)",
        tests=("tests/search/test_path_by_path.py", "-k", "against_more_votes"),
    ),
    Mutant(
        name="speculative rejection ranks without the finished paths",
        file="search/strategy/speculative_rejection.py",
        original="ranked = jnp.concatenate([finished.valid & memory.ranked, pool.valid])",
        mutated="ranked = jnp.concatenate([finished.valid & False, pool.valid])",
        tests=("tests/search/test_path_by_path.py", "-k", "worse_half"),
    ),
    Mutant(
        name="the steps of a reference are looked for in the wrong slot",
        file="search/strategy/particle_gibbs.py",
        original="own = own.replace(parent=jnp.zeros_like(own.parent))",
        mutated="own = own.replace(parent=own.parent + 1)",
        tests=_loop("particle_gibbs"),
    ),
    Mutant(
        name="the reference of particle Gibbs is a free particle, too",
        file="search/strategy/particle_gibbs.py",
        original="free = state.width - count(memory.reference)",
        mutated="free = state.width + 0 * count(memory.reference)",
        tests=("tests/search/test_invariants.py", "-k", "gibbs_keeps"),
    ),
    Mutant(
        name="weights are tempered until the end",
        file="search/strategy/particle_filtering.py",
        original="(ratio < ess_threshold) & (progress < early_phase) & (number > 1)",
        mutated="(ratio < ess_threshold) & (number > 1)",
        tests=("tests/search/test_resampling.py", "-k", "tempered"),
    ),
    Mutant(
        name="a frontier keeps points below its hull",
        file="cats_jax/reporting/frontier/mixtures.py",
        original="            hull.pop()",
        mutated="            break",
        tests=("tests/reporting/test_frontier.py",),
    ),
    Mutant(
        name="a choice by difficulty does not pay for its pilot",
        file="cats_jax/reporting/frontier/difficulty.py",
        original='free = [value == "correct" or',
        mutated="free = [True or",
        tests=("tests/reporting/test_frontier.py", "-k", "difficulty"),
    ),
    Mutant(
        name="a step without a usable candidate fails a question that goes on",
        file="cats_jax/live/slots.py",
        original="over = nothing_valid and terminal",
        mutated="over = nothing_valid",
        tests=("tests/live/test_driver.py", "-k", "goes_on_after_a_step"),
    ),
    Mutant(
        name="what a model returns is not checked",
        file="cats_jax/live/calls.py",
        original="if isinstance(returned, wanted):",
        mutated="if wanted:",
        tests=("tests/live/test_arguments.py",),
    ),
    Mutant(
        name="a policy's samples are not counted",
        file="cats_jax/live/contract.py",
        original="if _is_list(found) and len(found) == seeds:",
        mutated="if _is_list(found):",
        tests=("tests/live/test_contract.py", "-k", "policy_is_named"),
    ),
    Mutant(
        name="a controller is played from Python without its calibration",
        file="cats_jax/live/method.py",
        original="given is None and not self.strategy.needs_calibration",
        mutated="given is None",
        tests=("tests/controllers/test_by_name.py", "-k", "without_a_calibration"),
    ),
    Mutant(
        name="a controller says nothing of models that it was not trained with",
        file="cats_jax/live/method.py",
        original="kind == role.split()[0] and _same(model, each)",
        mutated="True",
        tests=("tests/controllers/test_by_name.py", "-k", "said_once"),
    ),
    Mutant(
        name="a strategy that indexes by a traced mask is not named",
        file="search/check_strategy.py",
        original="except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:",
        mutated="except jax.errors.JAXTypeError as error:",
        tests=("tests/search/test_check_strategy.py", "-k", "boolean"),
    ),
    Mutant(
        name="a missing answer column does not name its key",
        file="cats_jax/datasets/loading.py",
        original='for option in ("question_column", "answer_column"):',
        mutated='for option in ("question_column",):',
        tests=("tests/datasets/test_datasets.py", "-k", "names_the_key"),
    ),
    Mutant(
        name="a right step that was not kept does not lose the right path",
        file="cats_jax/reporting/right_path.py",
        original="kept = [c for c in result.candidates if c.id in right and c.kept]",
        mutated="kept = [c for c in result.candidates if c.id in right]",
        tests=("tests/reporting/test_right_path.py",),
    ),
    Mutant(
        name="ids are ordered as texts",
        file="cats_jax/reporting/selection.py",
        original="parts[place] = (len(digits), digits)",
        mutated="pass",
        tests=("tests/commands/test_show.py", "-k", "order_of_their_ids"),
    ),
    Mutant(
        name="the proposed command draws trees that do not differ",
        file="cats_jax/commands/show.py",
        original="    if differ is not None:\n        # A strategy",
        mutated="    if False:\n        # A strategy",
        tests=("tests/commands/test_show.py", "-k", "proposed"),
    ),
    Mutant(
        name="a dropped step that tied was dropped for its score",
        file="cats_jax/reporting/right_path.py",
        original="    if best == min(scores):",
        mutated="    if False:",
        tests=("tests/reporting/test_right_path.py", "-k", "without_a_lower"),
    ),
    Mutant(
        name="equal steps after other paths are one line",
        file="cats_jax/reporting/equal_paths.py",
        original="path = (firsts[candidate.parent], candidate.text",
        mutated="path = (candidate.step, candidate.text",
        tests=("tests/reporting/test_equal_paths.py",),
    ),
    Mutant(
        name="strategies differ with other PRMs",
        file="cats_jax/reporting/selection.py",
        original="(one.prm == other.prm or None in (one.prm, other.prm))",
        mutated="True",
        tests=("tests/reporting/test_selection.py",),
    ),
    Mutant(
        name="equal steps of different nodes are drawn as siblings of another path",
        file="cats_jax/reporting/draw.py",
        original="        for node in nodes:\n            for child",
        mutated="        for node in nodes[:1]:\n            for child",
        tests=("tests/reporting/test_draw.py", "-k", "lost_from or equal"),
    ),
    Mutant(
        name="a text of a run may change the direction of writing",
        file="cats_jax/reporting/plain_text.py",
        original="char if char.isprintable() else",
        mutated='char if char >= " " else',
        tests=("tests/commands/test_show.py", "-k", "hostile"),
    ),
    Mutant(
        name="a question is charged for compilation",
        file="cats_jax/live/accounting.py",
        original="0.0 if compiled else core / len(slots)",
        mutated="core / len(slots)",
        tests=("tests/live/test_driver.py", "-k", "compilation"),
    ),
    Mutant(
        name="a strategy's function may stand for the strategy",
        file="cats_jax/live/arguments.py",
        original="    if isinstance(strategy, search.Strategy):",
        mutated="    if isinstance(strategy, search.Strategy) or callable(strategy):",
        tests=("tests/live/test_arguments.py",),
    ),
    Mutant(
        name="a label of a figure lies on a bar or a marker",
        file="cats_jax/reporting/point_labels.py",
        original="            and not any(box.overlaps(other) for other in boxes)",
        mutated="            and boxes",
        tests=("tests/reporting/test_figures.py", "-k", "no_text_lies or without_room"),
    ),
    Mutant(
        name="a decision's own tick counts as spent",
        file="cats_jax/reporting/action_figures.py",
        original="bisect.bisect_left(",
        mutated="bisect.bisect_right(",
        tests=("tests/reporting/test_figures.py", "-k", "earlier_ticks"),
    ),
    Mutant(
        name="a figure's file has its date",
        file="cats_jax/reporting/drawing.py",
        original='    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},',
        mutated='    "pdf": {},',
        tests=("tests/reporting/test_figures.py", "-k", "the_same_each_time"),
    ),
    Mutant(
        name="models on one device do not add up",
        file="cats_jax/models/footprint.py",
        original="    needed = sum(model.least for model in plain)",
        mutated="    needed = max((model.least for model in plain), default=0)",
        tests=("tests/models/test_footprint.py", "-k", "add_up"),
    ),
    Mutant(
        name="a tied language-model head counts twice",
        file="cats_jax/models/footprint.py",
        original='    if head is not None or config.get("tie_word_embeddings"):',
        mutated="    if head is not None:",
        tests=("tests/models/test_footprint.py", "-k", "published_models"),
    ),
    Mutant(
        name="a grid keeps the models as the recipe was read",
        file="cats_jax/evaluation/cells.py",
        original="prm=None if cell.prm is None else prms[cell.prm.label]",
        mutated="prm=cell.prm",
        tests=("tests/batch/test_api.py", "-k", "settled_recipe"),
    ),
    Mutant(
        name="a call for a tree takes the first of several rows",
        file="cats_jax/batch/results.py",
        original="    if len(rows) > 1:",
        mutated="    if False:",
        tests=("tests/batch/test_api.py", "-k", "which_tree"),
    ),
    Mutant(
        name="memory is checked after the policy is loaded",
        file="cats_jax/evaluation/runners.py",
        original="check_models(self._models, recipe.policy, recipe.prms, largest",
        mutated="check_models(self._models, None, (), largest",
        tests=("tests/models/test_footprint.py", "-k", "refused_before"),
    ),
    Mutant(
        name="tokenizers are read when their model's turn has come",
        file="cats_jax/models/source.py",
        original="            models.check(spec)",
        mutated="            pass",
        tests=("tests/commands/test_cli.py", "-k", "tokenizer"),
    ),
    Mutant(
        name="a worker takes others' batches while cells are left to begin",
        file="cats_jax/evaluation/batch_queue.py",
        original="if batch is None or (rank(batch) == 2 and not helping):",
        mutated="if batch is None:",
        tests=("tests/evaluation/test_batch_queue.py", "-k", "keeps_to_its_cell"),
    ),
    Mutant(
        name="a helper forgets which paths it sampled",
        file="cats_jax/evaluation/batch_queue.py",
        original="known.update(self._homes[key] for key in keys if key in self._homes)",
        mutated="pass",
        tests=("tests/evaluation/test_batch_queue.py", "-k", "helper_keeps"),
    ),
    Mutant(
        name="the time of paths that cells share is counted in each",
        file="cats_jax/evaluation/measure.py",
        original="    shares = recipe.budget is None and recipe.max_seconds is None",
        mutated="    shares = False",
        tests=("tests/evaluation/test_measure.py", "-k", "paid_once"),
    ),
    Mutant(
        name="layers write to the constant channel of made models",
        file="benchmarks/gpu/made_models.py",
        original="            weight[0] = 0.0  # nothing is written",
        mutated="            weight[1] = 0.0  # nothing is written",
        tests=("tests/benchmarks/test_check_gpu.py", "-k", "constant_channel"),
    ),
    Mutant(
        name="a row of the GPU check that failed is kept as measured",
        file="benchmarks/gpu/report.py",
        original='if "error" not in row}',
        mutated="if row}",
        tests=("tests/benchmarks/test_check_gpu.py", "-k", "failed_row"),
    ),
    Mutant(
        name="a row of the GPU check runs on when the time is over",
        file="benchmarks/gpu/report.py",
        original="signal.setitimer(signal.ITIMER_REAL, seconds)",
        mutated="signal.setitimer(signal.ITIMER_REAL, 0)",
        tests=("tests/benchmarks/test_check_gpu.py", "-k", "longer_than_the_part"),
    ),
    Mutant(
        name="one example is not enough for Occam's bound",
        file="theory/pac_bayes.py",
        original='num_samples, 1, "at least one example is needed")\n    delta',
        mutated='num_samples, 2, "at least one example is needed")\n    delta',
        tests=("tests/theory/test_pac_bayes.py", "-k", "one_example_on"),
    ),
    Mutant(
        name="any standard deviation passes",
        file="theory/misranking.py",
        original="spread <= np.nextafter(epsilon, np.inf)",
        mutated="spread < np.inf",
        tests=("tests/theory/test_misranking.py", "-k", "at_most_epsilon"),
    ),
    Mutant(
        name="a standard deviation one rounding above epsilon is refused",
        file="theory/misranking.py",
        original="spread <= np.nextafter(epsilon, np.inf)",
        mutated="spread <= epsilon",
        tests=("tests/theory/test_misranking.py", "-k", "at_most_epsilon"),
    ),
    Mutant(
        name="two digits of the paper's table are turned round",
        file="theory/paper.py",
        original="0.0290, 0.0196, 2.78",
        mutated="0.0290, 0.0196, 2.87",
        tests=("tests/theory/test_paper.py", "-k", "recorded_one or printed_one"),
    ),
    Mutant(
        name="a training split may hold test questions",
        file="cats_jax/datasets/layout.py",
        original="            layout.check(row)\n",
        mutated="",
        tests=("tests/datasets/test_datasets.py", "-k", "math12k or math500 or training"),
    ),
    Mutant(
        name="half of a character is text",
        file="cats_jax/storage/tables.py",
        original="if (name := _with_lone_surrogate(row)) is not None:",
        mutated="if (name := None) is not None:",
        tests=("tests/datasets/test_datasets.py", "-k", "named_by_file_and_line"),
    ),
    Mutant(
        name="a start that failed locks its folder",
        file="cats_jax/storage/manifest.py",
        original="        if not filled:\n",
        mutated="        if False:\n",
        tests=("tests/runs/test_runs.py", "-k", "locked_by_no_manifest"),
    ),
    Mutant(
        name="rows of an earlier start count as work of this one",
        file="cats_jax/commands/time_left.py",
        original="part.done - part.before + 0.5",
        mutated="part.done + 0.5",
        tests=("tests/evaluation/test_evaluate.py", "-k", "time_left"),
    ),
    Mutant(
        name="white space hides that a question was trained on",
        file="cats_jax/datasets/digests.py",
        original='" ".join(text.split())',
        mutated="text",
        tests=("tests/training/test_training_split.py", "-k", "not_asked_what_it_was_taught"),
    ),
    Mutant(
        name="a controller trained off-line forgets what it was taught",
        file="cats_jax/training/train.py",
        original='"texts": list(taught.values())',
        mutated='"texts": []',
        tests=("tests/training/test_training_split.py", "-k", "from_trajectories"),
    ),
    Mutant(
        name="the name of a row leaves a narrow table",
        file="cats_jax/reporting/fitting.py",
        original="if leaving is None or ranks[leaving] == 0:",
        mutated="if leaving is None:",
        tests=("tests/reporting/test_sheets.py", "-k", "columns_leave or whole"),
    ),
    Mutant(
        name="a bracket of a label is an argument of LaTeX's line break",
        file="cats_jax/reporting/sheet_files.py",
        original='.replace("[", "{[}")',
        mutated="",
        tests=("tests/reporting/test_sheets.py", "-k", "latex"),
    ),
    Mutant(
        name="rows of one key with other tokens are one row",
        file="cats_jax/runs/merge.py",
        original="        if values[0] != values[1]:",
        mutated='        if values[0] != values[1] and name == "answer":',
        tests=("tests/runs/test_merge.py", "-k", "contradict"),
    ),
    Mutant(
        name="the tree of a merged row is looked for in the first folder",
        file="cats_jax/runs/folder.py",
        original="self.tree_folders.get(row.key, self.folder)",
        mutated="self.folder",
        tests=("tests/runs/test_merge.py", "-k", "share_count_once"),
    ),
    Mutant(
        name="a configuration is judged on the questions it was chosen on",
        file="cats_jax/reporting/compute_optimal.py",
        original="for level, half in halves.items() for question in half.judged_on",
        mutated="for level, half in halves.items() for question in half.chosen_on",
        tests=("tests/reporting/test_compute_optimal.py", "-k", "plain_python"),
    ),
    Mutant(
        name="a mean over some of the paper's N stands beside the paper's",
        file="cats_jax/reporting/paper_tables.py",
        original="values = None if missing else _mean",
        mutated="values = None if not there else _mean",
        tests=("tests/reporting/test_paper_tables.py", "-k", "not_whole"),
    ),
    Mutant(
        name="a seed that lacks questions counts in the interval over seeds",
        file="cats_jax/reporting/groups.py",
        original="if found.keys() == questions",
        mutated="if found",
        tests=("tests/evaluation/test_evaluate.py", "-k", "seeds"),
    ),
    Mutant(
        name="a step that occurs again is a sibling of itself",
        file="cats_jax/scoring/quality.py",
        original="return agree & first",
        mutated="return first",
        tests=("tests/scoring/test_prm_quality.py", "-k", "occurs_again"),
    ),
    Mutant(
        name="the bound on a PRM's risk counts steps, not questions",
        file="cats_jax/scoring/quality.py",
        original="num_samples=int(question.max()) + 1, delta=_DELTA",
        mutated="num_samples=question.size, delta=_DELTA",
        tests=("tests/scoring/test_prm_quality.py", "-k", "bounds_are_the_formulas"),
    ),
    Mutant(
        name="ProcessBench's first wrong step counts as right",
        file="cats_jax/scoring/labelled.py",
        original="[1] * label + [0]",
        mutated="[1] * (label + 1)",
        tests=("tests/scoring/test_prm_quality_layouts.py", "-k", "processbench"),
    ),
    Mutant(
        name="an expansion's dtypes are not looked at",
        file="search/shapes.py",
        original='chex.assert_type(value, dtype, custom_message=f"{name}.{field}")',
        mutated="pass",
        tests=("tests/search/test_shapes.py", "-k", "named"),
    ),
    Mutant(
        name="an ablation's row has another discount than the paper's",
        file="cats_jax/training/ablations.yaml",
        original="cats.reward.discount=0.7",
        mutated="cats.reward.discount=0.8",
        tests=("tests/training/test_ablations.py", "-k", "paper"),
    ),
    Mutant(
        name="PPO clips on the wrong side",
        file="learners/losses.py",
        original="return -jnp.minimum(ratio * advantage, clipped * advantage)",
        mutated="return -jnp.maximum(ratio * advantage, clipped * advantage)",
        tests=("tests/learners/test_losses.py", "-k", "clipped_loss"),
    ),
    Mutant(
        name="returns behind a branching are summed, not averaged",
        file="learners/returns.py",
        original="sums / divisor[None, :], at.last_reward",
        mutated="sums, at.last_reward",
        tests=("tests/learners/test_returns.py", "-k", "loop_over_the_tree"),
    ),
    Mutant(
        name="a search is its own baseline",
        file="learners/returns.py",
        original="keepdims=True) - by_question",
        mutated="keepdims=True)",
        tests=("tests/learners/test_returns.py", "-k", "mean_of_others"),
    ),
    Mutant(
        name="random decisions cost nothing",
        file="cats_jax/controllers/strategies.py",
        original="SearchMethod(strategy, (), _price(price))",
        mutated="SearchMethod(strategy, (), 0.0)",
        tests=("tests/training/test_collect.py", "-k", "charged_the_price"),
    ),
    Mutant(
        name="a controller that sees the calibration is played without one",
        file="cats_jax/evaluation/cells.py",
        original="required = strategy.needs_calibration",
        mutated="required = strategy.calibrated",
        tests=("tests/specs/test_calibrations.py", "-k", "sees_the_calibration"),
    ),
    Mutant(
        name="every CATS search is said to see the calibration",
        file="search/strategy/cats/search.py",
        original="name in features.names and name not in config.excluded_features",
        mutated="name in features.names",
        tests=("tests/specs/test_calibrations.py", "-k", "sees_the_calibration"),
    ),
    Mutant(
        name="a controller that sees likelihoods is played without them",
        file="search/strategy/cats/search.py",
        original="not config.score_base or _sees(LIKELIHOOD_FEATURES, config, features)",
        mutated="not config.score_base",
        tests=("tests/live/test_driver.py", "-k", "without_log_probabilities"),
    ),
    Mutant(
        name="an old controller is said to see features that it was trained without",
        file="cats_jax/controllers/checkpoint_migration.py",
        original="    if not new:\n",
        mutated="    if new or not new:\n",
        tests=("tests/controllers/test_checkpoint.py",),
    ),
    Mutant(
        name="the questions held out of training are every fifth one",
        file="cats_jax/training/questions.py",
        original="np.random.default_rng(0).permutation(number)",
        mutated="np.arange(number)",
        tests=("tests/training/test_train.py", "-k", "held_out"),
    ),
    Mutant(
        name="a replay charges for copies of a greedy child",
        file="cats_jax/evaluation/replay.py",
        original="search.costs.tick_tokens(tick).sampled",
        mutated="jnp.sum(expansion.num_tokens, dtype=jnp.int32)",
        tests=("tests/evaluation/test_replay.py",),
    ),
    Mutant(
        name="controllers are trained without the calibration they will see",
        file="cats_jax/training/train.py",
        original="if calibration is None and strategy.needs",
        mutated="if calibration == '' and strategy.needs",
        tests=("tests/specs/test_calibrations.py", "-k", "training_on_a_bank"),
    ),
    Mutant(
        name="base children are not paid for",
        file="learners/episodes.py",
        original="cost.at[:, -1].add(next_base)",
        mutated="cost.at[:, -1].add(0 * next_base)",
        tests=("tests/learners/test_returns.py", "-k", "counted_once"),
    ),
    Mutant(
        name="an epoch of PPO leaves out rows",
        file="learners/ppo.py",
        original="stop = (index + 1) * rows.num_rows // self.num_minibatches",
        mutated="stop = start + rows.num_rows // self.num_minibatches",
        tests=("tests/learners/test_updates.py", "-k", "clipped_update"),
    ),
    Mutant(
        name="an old checkpoint's A2C forgets Algorithm 1's order",
        file="cats_jax/controllers/checkpoint_migration.py",
        original='"sequential": sequential,',
        mutated='"sequential": False,',
        tests=("tests/controllers/test_checkpoint.py", "-k", "reads_format_2"),
    ),
    Mutant(
        name="siblings share a seed",
        file="cats_jax/live/pending_requests.py",
        original="job.seed_name, slot.step, slot.phase, row + offset",
        mutated="job.seed_name, slot.step, slot.phase, row",
        tests=("tests/live/test_driver.py", "-k", "seeds_differ"),
    ),
    Mutant(
        name="a dropped question leaves its caches",
        file="cats_jax/live/driver.py",
        original="        self._expander.keep_only(slot.tree.question, [])\n",
        mutated="",
        tests=("tests/live/test_growing_cohort.py", "-k", "come_later"),
    ),
    Mutant(
        name="a question with a call in progress is dropped at once",
        file="cats_jax/live/driver.py",
        original="here = [slot for slot in self._open() if slot not in away]\n        dropped",
        mutated="here = self._open()\n        dropped",
        tests=("tests/live/test_growing_cohort.py", "-k", "call_in_progress"),
    ),
    Mutant(
        name="samples follow the id of a request",
        file="cats_jax/server/engine.py",
        original="searcher.job(ticket.question, SEED_NAME)",
        mutated="searcher.job(ticket.question)",
        tests=("tests/server/test_server.py", "-k", "lives_of_their_own"),
    ),
    Mutant(
        name="searches with and without a budget share a batch",
        file="cats_jax/server/offer.py",
        original="return self.strategy, self.num_candidates, self.budget is None",
        mutated="return self.strategy, self.num_candidates, True",
        tests=("tests/server/test_batches.py",),
    ),
    Mutant(
        name="the search of a client that went away goes on",
        file="cats_jax/server/app.py",
        original="end = functools.partial(self._engine.drop, ticket)",
        mutated="end = lambda: None",
        tests=("tests/server/test_server.py", "-k", "goes_away"),
    ),
    Mutant(
        name="any token opens the server",
        file="cats_jax/server/app.py",
        original='        if kind.lower() == "bearer" and right:',
        mutated='        if kind.lower() == "bearer":',
        tests=("tests/server/test_server.py", "-k", "token_is_asked"),
    ),
    Mutant(
        name="bytes of headers keep a connection for ever",
        file="cats_jax/server/connections.py",
        original="        if not self._in_progress:",
        mutated="        if self.cycle is not None and not self._in_progress:",
        tests=("tests/server/test_connections.py", "-k", "seconds_for_its_request"),
    ),
    Mutant(
        name="silent connections keep others out",
        file="cats_jax/server/connections.py",
        original="next((each for each in self._open if each.is_silent), connection).abort()",
        mutated="connection.abort()",
        tests=("tests/server/test_connections.py", "-k", "make_room"),
    ),
    Mutant(
        name="a reply does not name what it ignores",
        file="cats_jax/server/replies.py",
        original='        "ignored": list(ignored),',
        mutated='        "ignored": [],',
        tests=("tests/server/test_server.py", "-k", "names_what_it_ignores"),
    ),
    Mutant(
        name="a broken score counts as zero",
        file="cats_jax/live/contract.py",
        original="return _is_number(score) and 0.0 <= score <= 1.0",
        mutated="return _is_number(score) and not score > 1.0",
        tests=("tests/live/test_driver.py", "-k", "bad_score"),
    ),
    Mutant(
        name="an outcome model is asked for unfinished answers",
        file="search/interface.py",
        original="scored=jnp.zeros_like(ends), score_ends=ends",
        mutated="scored=ends, score_ends=ends",
        tests=("tests/live/test_outcome_search.py", "-k", "classifier_prefers"),
    ),
    Mutant(
        name="rows that share paths forget that the model is an outcome model",
        file="cats_jax/evaluation/shared_paths.py",
        original="self.finished_only = reads_finished_only(scorer)",
        mutated="self.finished_only = False",
        tests=("tests/live/test_outcome_search.py", "-k", "shares_its_paths"),
    ),
    Mutant(
        name="best-of-N by the worst step passes for a reader of finished answers",
        file="search/strategy/fixed.py",
        original='needs_step_scores=path_score != "last",',
        mutated="needs_step_scores=False,",
        tests=("tests/live/test_outcome_search.py", "-k", "is_refused and best_of_n"),
    ),
    Mutant(
        name="a reward is read at the padding token that ends the chat",
        file="cats_jax/models/prm/answer_encoder.py",
        original="while end > 1 and ids[end - 1] == self._padding:",
        mutated="while False:",
        tests=("tests/models/test_outcome_models.py", "-k", "own_classifier and llama"),
    ),
    Mutant(
        name="blanks that the chat template cuts off an answer are read",
        file="cats_jax/models/prm/answer_encoder.py",
        original=".lstrip(left).rstrip(right)\n        question = self",
        mutated="\n        question = self",
        tests=("tests/models/test_outcome_models.py", "-k", "own_classifier and mistral"),
    ),
    Mutant(
        name="a verdict is read from the middle of a critique",
        file="cats_jax/models/prm/verdict.py",
        original='self.of_line(critique.rstrip().rpartition("\\n")[2])',
        mutated='self.of_line(critique.rstrip().partition("\\n")[0])',
        tests=("tests/models/test_judge.py", "-k", "last_line"),
    ),
    Mutant(
        name="a step states its own verdict to a judge that repeats it",
        file="cats_jax/models/prm/judge_text.py",
        original='f"{BAR} {line}"',
        mutated="line",
        tests=("tests/models/test_judge.py", "-k", "only_what_the_judge"),
    ),
    Mutant(
        name="a critique that was cut has a verdict",
        file="cats_jax/models/judge.py",
        original='if sample.finish == "end" else None',
        mutated="if sample.finish else None",
        tests=("tests/models/test_judge.py", "-k", "count_as_zero"),
    ),
    Mutant(
        name="a question does not pay for what another search has left",
        file="cats_jax/models/judge.py",
        original="            self._paid.pop(question, None)",
        mutated="            pass",
        tests=("tests/models/test_judge.py", "-k", "remembered"),
    ),
    Mutant(
        name="a reward is squashed by the sigmoid",
        file="cats_jax/models/huggingface/prm.py",
        original="squash = bounded if self._head.unbounded else _sigmoid",
        mutated="squash = _sigmoid",
        tests=("tests/models/test_outcome_models.py", "-k", "own_classifier and qwen"),
    ),
    Mutant(
        name="the PRM is asked although a request is not scored",
        file="cats_jax/live/new_candidates.py",
        original="asks = asked.scored or (asked.score_ends and candidate.done)",
        mutated="asks = True",
        tests=("tests/live/test_driver.py", "-k", "request_says_so"),
    ),
    Mutant(
        name="the price does not reach the strategy",
        file="cats_jax/live/searcher.py",
        original="context = search.Context(price, *sparsity",
        mutated="context = search.Context(0.0, *sparsity",
        tests=("tests/live/test_driver.py", "-k", "price_and_rate"),
    ),
    Mutant(
        name="paths are shared whatever a strategy says of them",
        file="cats_jax/evaluation/cells.py",
        original="if not strategy.keeps_all_paths or strategy.width(256) != 256:",
        mutated='if strategy.name not in ("majority", "best_of_n", "best_of_n_weighted"):',
        tests=("tests/evaluation/test_own_strategies.py", "-k", "shares_them"),
    ),
    Mutant(
        name="a strategy that ignores N runs for every N",
        file="cats_jax/evaluation/cells.py",
        original="once = strategy.ignores_num_candidates",
        mutated='once = strategy.name == "greedy"',
        tests=("tests/evaluation/test_own_strategies.py", "-k", "ignores_n"),
    ),
    Mutant(
        name="the thread that writes dies in silence",
        file="cats_jax/runs/appender.py",
        original="except Exception as error:",
        mutated="except OSError as error:",
        tests=("tests/runs/test_runs.py", "-k", "lost_in_silence"),
    ),
    Mutant(
        name="a replay's ceiling is its accuracy",
        file="cats_jax/evaluation/replay.py",
        original="return correct, jnp.any(right, axis=1), end.spent",
        mutated="return correct, correct, end.spent",
        tests=("tests/evaluation/test_replay.py", "-k", "tick_by_tick"),
    ),
    Mutant(
        name="every tick of a replay begins with the same draws",
        file="search/bank/expansion.py",
        original="number = request.used + sibling +",
        mutated="number = sibling +",
        tests=("tests/search/test_bank.py", "-k", "go_on_with_the_draws"),
    ),
    Mutant(
        name="a lost block of a bank ends it",
        file="cats_jax/bank/store.py",
        original="    if missing:\n        raise BadInputError(",
        mutated="    if False:\n        raise BadInputError(",
        tests=("tests/bank/test_bank.py", "-k", "lost_is_collected"),
    ),
    Mutant(
        name="a PRM is asked for paths whose beginning it can't read",
        file="cats_jax/bank/score.py",
        original="if tree.readable(tree.nodes.parent[row], column):",
        mutated="if True:",
        tests=("tests/bank/test_stages.py", "-k", "not_asked_for"),
    ),
    Mutant(
        name="the policy stays in memory while its bank is scored",
        file="cats_jax/bank/build.py",
        original="        self._grow(judge, ())\n        _release_models()",
        mutated="        self._grow(judge, ())",
        tests=("tests/bank/test_stages.py", "-k", "one_model_is_in_memory"),
    ),
    Mutant(
        name="a recipe that lacks a PRM goes on with a bank",
        file="cats_jax/bank/build.py",
        original="if after[: len(before)] != before:",
        mutated="if not set(after) & set(before):",
        tests=("tests/bank/test_stages.py", "-k", "prms_of_a_bank_stay"),
    ),
    Mutant(
        name="scores stay when their trees are sampled again",
        file="cats_jax/bank/store.py",
        original="        path.unlink()",
        mutated="        pass",
        tests=("tests/bank/test_stages.py", "-k", "trees_that_are_lost"),
    ),
    Mutant(
        name="ranks start at one",
        file="search/ranking.py",
        original="ranks = reduce_rows(jnp.sum, (better | tie) & rival)",
        mutated="ranks = reduce_rows(jnp.sum, (better | tie) & rival) + 1",
        tests=_parts("segment_ranks or retain or prune"),
    ),
    Mutant(
        name="ranking ties go to the higher row",
        file="search/ranking.py",
        original="(rows[None, :] < rows[:, None])",
        mutated="(rows[None, :] > rows[:, None])",
        tests=_parts("segment_ranks or retain or prune"),
    ),
    Mutant(
        name="one candidate over the limit",
        file="search/allocation.py",
        original="jnp.clip(available - served_before, 0, wanted)",
        mutated="jnp.clip(available + 1 - served_before, 0, wanted)",
        tests=_parts("allocate"),
    ),
    Mutant(
        name="allocation ties go to the higher slot",
        file="search/allocation.py",
        original="(rows[None, :] < rows[:, None])",
        mutated="(rows[None, :] > rows[:, None])",
        tests=_parts("allocate"),
    ),
    Mutant(
        name="a path without answer has a vote",
        file="search/selection.py",
        original="voter = valid & (answer >= 0)",
        mutated="voter = valid",
        tests=_parts("votes"),
    ),
    Mutant(
        name="the cost is not normalised by N",
        file="search/strategy/cats/reward.py",
        original="cost = num_extra.astype(jnp.float32) / num_candidates.astype(jnp.float32)",
        mutated="cost = num_extra.astype(jnp.float32)",
        tests=_parts("reward"),
    ),
    Mutant(
        name="zeros make products incomparable",
        file="search/aggregation.py",
        original="jnp.maximum(step_scores, smallest)",
        mutated="step_scores",
        tests=_parts("products or tenth or gradient"),
    ),
    Mutant(
        name="a negative wish takes from others",
        file="search/allocation.py",
        original="jnp.where(valid, jnp.maximum(wanted, 0), 0)",
        mutated="jnp.where(valid, wanted, 0)",
        tests=_parts("allocate"),
    ),
    Mutant(
        name="paths without a child pass for kept",
        file="search/check_strategy.py",
        original="grows_all = jnp.all(granted | ~tick.before.frontier.valid)",
        mutated="grows_all = jnp.any(granted | ~tick.before.frontier.valid)",
        tests=("tests/search/test_check_strategy.py", "-k", "child"),
    ),
    Mutant(
        name="a capacity below the size",
        file="search/state.py",
        original="if capacity >= size)",
        mutated="if 2 * capacity >= size)",
        tests=("tests/search/test_parts.py", "-k", "capacity"),
    ),
    Mutant(
        name="the budget does not limit a step",
        file="search/state.py",
        original="jnp.minimum(state.num_candidates - state.used, state.budget - state.spent)",
        mutated="state.num_candidates - state.used",
        tests=_loop("beam"),
    ),
    Mutant(
        name="finished paths take no place",
        file="search/step.py",
        original="free = state.width - count(state.finished)",
        mutated="free = state.width",
        tests=("tests/search/test_loop.py", "-k", "keep_their_places"),
    ),
    Mutant(
        name="the last step is not sampled to its end",
        file="search/interface.py",
        original="to_end=frontier.depth >= state.max_depth - 1",
        mutated="to_end=frontier.depth >= state.max_depth",
        tests=_loop("beam"),
    ),
    Mutant(
        name="subtrees of unequal size",
        file="search/step.py",
        original="rows * state.width // state.num_candidates",
        mutated="rows % state.width",
        tests=_loop("dvts"),
    ),
    Mutant(
        name="equal siblings compete with each other",
        file="search/ranking.py",
        original="return pool.valid & ~jnp.any(earlier, axis=1)",
        mutated="return pool.valid",
        tests=("tests/search/test_beams.py", "-k", "distinct_steps"),
    ),
    Mutant(
        name="VG-Search does not score paths that end between two verifications",
        file="search/strategy/vg_search.py",
        original="scored=asks, score_ends=True",
        mutated="scored=asks",
        tests=("tests/search/test_beams.py", "-k", "between_two_verifications"),
    ),
    Mutant(
        name="a step that VG-Search has not verified counts with a score of 0",
        file="search/strategy/vg_search.py",
        original="return with_newest_scores(pool, unseen, before), pool.valid, state.memory",
        mutated="return pool, pool.valid, state.memory",
        tests=_loop("vg_search"),
    ),
    Mutant(
        name="a rollout at the largest depth is not scored",
        file="search/strategy/lookahead.py",
        original="scored=(left == 1) | at_end, score_ends=True",
        mutated="scored=left == 1",
        tests=("tests/search/test_beams.py", "-k", "look_ahead_search_is"),
    ),
    Mutant(
        name="candidates wait on when the budget is spent",
        file="search/strategy/lookahead.py",
        original="decides = ~jnp.any(rolls) | (state.spent >= state.budget)",
        mutated="decides = ~jnp.any(rolls)",
        tests=("tests/search/test_beams.py", "-k", "spent_budget"),
    ),
    Mutant(
        name="a node of LiteSearch at any depth gets the children of one at the root",
        file="search/strategy/litesearch.py",
        original="whole, rest = enough // depth, 2 * (enough % depth)",
        mutated="whole, rest = enough, 0 * depth",
        tests=("tests/search/test_litesearch.py", "-k", "number_of_children"),
    ),
    Mutant(
        name="LiteSearch goes on although its best node is a solution",
        file="search/strategy/litesearch.py",
        original="best = jnp.argmax(jnp.where(tree.is_open | is_leaf, values, -jnp.inf))",
        mutated="best = jnp.argmax(jnp.where(tree.is_open, values, -jnp.inf))",
        tests=("tests/search/test_litesearch.py", "-k", "what_ends"),
    ),
    Mutant(
        name="a solution of LiteSearch must be better than the greedy one",
        file="search/strategy/litesearch.py",
        original="tree.greedy_value - _SLACK",
        mutated="tree.greedy_value",
        tests=("tests/search/test_litesearch.py", "-k", "what_ends"),
    ),
    Mutant(
        name="the discount is not zeroed at the end",
        file="search/strategy/cats/transitions.py",
        original="discount=nothing,",
        mutated="discount=nothing + 1.0,",
        tests=_loop("cats_one_round"),
    ),
    Mutant(
        name="pending decisions stay in their slots",
        file="search/strategy/cats/transitions.py",
        original="inherited = take(held, after.frontier.parent)",
        mutated="inherited = held",
        tests=_loop("cats_one_round"),
    ),
    Mutant(
        name="a closed node decides again",
        file="search/strategy/cats/search.py",
        original="is_open = state.frontier.valid & state.memory.is_open",
        mutated="is_open = state.frontier.valid",
        tests=_loop("cats_three_rounds"),
    ),
    Mutant(
        name="a tick after the end changes the state",
        file="search/step.py",
        original="return select(active, after, state), output",
        mutated="return after, output",
        tests=("tests/search/test_invariants.py", "-k", "after_the_end and beam"),
    ),
    Mutant(
        name="paths that the end of the search cuts do not count as ended",
        file="search/step.py",
        original="ends = finishes | (grows & is_terminal(stepped))",
        mutated="ends = finishes",
        tests=_loop("beam"),
    ),
    Mutant(
        name="scores nobody asked for are used",
        file="search/step.py",
        original="jnp.where(scored, child.score, 0.0)",
        mutated="child.score",
        tests=("tests/search/test_own_strategies.py", "-k", "not_scored"),
    ),
    Mutant(
        name="a batch whose searches have all ended goes on",
        file="search/loop.py",
        original="jnp.all(jax.vmap(is_terminal)(carry[0]))",
        mutated="jnp.bool_(False)",
        tests=("tests/search/test_play.py", "-k", "expands_nothing and beam"),
    ),
    Mutant(
        name="a batch ends with the first of its searches",
        file="search/loop.py",
        original="jnp.all(jax.vmap(is_terminal)(carry[0]))",
        mutated="jnp.any(jax.vmap(is_terminal)(carry[0]))",
        tests=("tests/search/test_play.py", "-k", "batch_is_its_searches and beam"),
    ),
    Mutant(
        name="the guard against shadowing never runs",
        file="cats_jax/__init__.py",
        original="\n_check_neighbours()\n",
        mutated="\n",
        tests=("tests/repository/test_repository.py", "-k", "guard"),
    ),
    Mutant(
        name="a skipped test passes in CI",
        file="tests/conftest.py",
        original="session.exitstatus = pytest.ExitCode.TESTS_FAILED",
        mutated="pass",
        tests=("tests/repository/test_repository.py", "-k", "skip_fails_in_ci"),
    ),
    Mutant(
        name="a step's text can make special tokens",
        file="cats_jax/models/prompts/chat.py",
        original="add_special_tokens=False, split_special_tokens=True",
        mutated="add_special_tokens=False",
        tests=("tests/models/test_prm_format.py", "-k", "appended_tag"),
    ),
    Mutant(
        name="white space before a step reaches a PRM that reads turns",
        file="cats_jax/models/prm/encoder.py",
        original="step = step.strip()",
        mutated="step = step.rstrip()",
        tests=("tests/models/test_prm_families.py", "-k", "white_space_around"),
    ),
    Mutant(
        name="one call that hangs ends the run",
        file="cats_jax/models/serving/http_engine.py",
        original="tried = tenacity.stop_all(",
        mutated="tried = tenacity.stop_any(",
        tests=("tests/models/test_http_engine.py", "-k", "hangs_longer"),
    ),
    Mutant(
        name="a missing tensor is overlooked",
        file="cats_jax/models/stored_model.py",
        original="if missing and not foreign:",
        mutated="if missing and foreign:",
        tests=("tests/models/test_stored_model.py", "-k", "missing_tensor"),
    ),
    Mutant(
        name="a label's odds against itself",
        file="cats_jax/models/serving/vllm_head.py",
        original="if index != label]",
        mutated="if index == label]",
        tests=("tests/models/test_engine_overrides.py", "-k", "log_odds"),
    ),
    Mutant(
        name="what is computed again for lack of room is charged",
        file="cats_jax/models/huggingface/scorer.py",
        original="if not each.computed and each not in charged]",
        mutated="if each.slots is None and each not in charged]",
        tests=("tests/models/test_kv_memory.py", "-k", "score_and_no_usage and 130"),
    ),
    Mutant(
        name="a call begins with any question, resident or not",
        file="cats_jax/models/huggingface/prefix_cache.py",
        original="key=lambda i: num_missing(ends[i : i + 1])",
        mutated="key=lambda i: 0",
        tests=("tests/models/test_prefix_cache.py", "-k", "begins_with"),
    ),
    Mutant(
        name="a wave puts all other questions aside",
        file="cats_jax/models/huggingface/prefix_cache.py",
        original="            if self._room(wanted) >= wanted:\n                return\n",
        mutated="",
        tests=("tests/models/test_prefix_cache.py", "-k", "only_as_many"),
    ),
    Mutant(
        name="a score's last bit depends on its place in the batch",
        file="cats_jax/models/huggingface/prm.py",
        original="[_sigmoid(x) for x in (pair[:, 0] - pair[:, 1]).tolist()]",
        mutated="(pair[:, 0] - pair[:, 1]).sigmoid().tolist()",
        tests=("tests/models/test_huggingface.py", "-k", "last_bit"),
    ),
    Mutant(
        name="pieces of a sentencepiece model merge by id",
        file="cats_jax/models/huggingface/tokenizer.py",
        original='key=lambda pair: -score["".join(pair)]',
        mutated="key=lambda pair: 0",
        tests=("tests/real/test_tokenizers.py", "-k", "converted_sentencepiece"),
    ),
    Mutant(
        name="blank lines before a step are part of its text",
        file="cats_jax/models/prompts/step_text.py",
        original="        text = self._begin(text)\n        stop, start",
        mutated="        stop, start",
        tests=("tests/models/test_step_text.py",),
    ),
    Mutant(
        name="a thought goes on beyond its budget",
        file="cats_jax/models/huggingface/thoughts.py",
        original="return self._thinking.budget - thought.spent - len(thought.body)",
        mutated="return self._thinking.budget - len(thought.body)",
        tests=("tests/models/test_thinking.py", "-k", "cut_into_steps"),
    ),
    Mutant(
        name="a thought is prolonged once too often",
        file="cats_jax/models/huggingface/thoughts.py",
        original="if thought.waits == self._thinking.waits:",
        mutated="if thought.waits > self._thinking.waits:",
        tests=("tests/models/test_thinking.py", "-k", "prolonged"),
    ),
    Mutant(
        name="a path without an answer has the score of a thought",
        file="cats_jax/models/prm/answer_steps.py",
        original="IN_THOUGHT if is_open else NO_ANSWER",
        mutated="IN_THOUGHT",
        tests=("tests/models/test_thinking.py", "-k", "reads_the_answer"),
    ),
    Mutant(
        name="what a closing token says behind the separator is lost",
        file="cats_jax/models/prompts/step_text.py",
        original="if closing is not None and closing[1] > 0 else None",
        mutated="if closing is None else None",
        tests=("tests/models/test_step_text.py", "-k", "real_text"),
    ),
    Mutant(
        name="a sample that an engine has stopped too early does not go on",
        file="cats_jax/models/serving/step_samples.py",
        original="elif not sampled.stopped or len(ids) >= request.max_tokens:",
        mutated="else:",
        tests=("tests/models/test_engine_generator.py", "-k", "same_steps"),
    ),
    Mutant(
        name="the value head's last bits depend on the batch",
        file="cats_jax/models/huggingface/prm.py",
        original="torch.stack([(hidden * row).sum(-1) for row in self.last.weight.unbind()], -1)",
        mutated="torch.nn.functional.linear(hidden, self.last.weight)",
        tests=("tests/models/test_prm_families.py", "-k", "keep_their_contract and skywork"),
    ),
    Mutant(
        name="an adapter's rank is taken for its root",
        file="cats_jax/models/adapter.py",
        original='math.sqrt(rank) if self._config.get("use_rslora") else rank',
        mutated="rank",
        tests=("tests/models/test_adapter.py", "-k", "single_layers"),
    ),
    Mutant(
        name="a torn copy of a merged model is read",
        file="cats_jax/models/merged_folder.py",
        original="all((folder / name).stat().st_size == size for",
        mutated="all((folder / name).is_file() or size for",
        tests=("tests/models/test_adapter.py", "-k", "torn_one"),
    ),
    Mutant(
        name="a weight that rounds to the threshold counts as below it",
        file="cats_jax/models/prm/sparsity.py",
        original="np.count_nonzero(bits < limit)",
        mutated="np.count_nonzero(bits <= limit)",
        tests=("tests/models/test_prm_sparsity.py", "-k", "stored_bits"),
    ),
    Mutant(
        name="convert runs what a pickle asks for",
        file="cats_jax/models/prm/convert_worker.py",
        original="mmap=True, weights_only=True",
        mutated="mmap=True, weights_only=False",
        tests=("tests/models/test_convert.py", "-k", "malicious"),
    ),
    Mutant(
        name="convert has no limit on memory",
        file="cats_jax/models/prm/convert_worker.py",
        original="resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
        mutated="pass",
        tests=("tests/models/test_convert.py", "-k", "memory_is_limited"),
    ),
    Mutant(
        name="one broken score costs the whole file",
        file="cats_jax/scoring/score_rows.py",
        original="        if len(tasks) == 1:",
        mutated="        if True:",
        tests=("tests/scoring/test_score.py", "-k", "its_own_row_only"),
    ),
    Mutant(
        name="the paper's bound is taken at n in place of n - 1",
        file="theory/pac_bayes.py",
        original="(2 * (n - 1))",
        mutated="(2 * n)",
        tests=("tests/theory/test_pac_bayes.py", "-k", "test_figures or test_gap_bounds"),
    ),
    Mutant(
        name="at a gap of 2 epsilon nothing can be mis-ranked",
        file="theory/misranking.py",
        original="gap / 2 > epsilon",
        mutated="gap / 2 >= epsilon",
        tests=("tests/theory/test_misranking.py", "-k", "tie_at_two_epsilon"),
    ),
    Mutant(
        name="a negative denominator gives a number",
        file="theory/budget.py",
        original="positive = bracket > 0",
        mutated="positive = bracket != 0",
        tests=("tests/theory/test_budget.py", "-k", "negative_denominator"),
    ),
    Mutant(
        name="a certificate holds for another policy",
        file="cats_jax/specs/certificates.py",
        original='for kind in ("policy", "prm", "controller")',
        mutated='for kind in ("prm", "controller")',
        tests=("tests/evaluation/test_guarantees.py", "-k", "known_by_their_files"),
    ),
    Mutant(
        name="a server compares a format that is not settled",
        file="cats_jax/server/offer.py",
        original="policy=settle_format(self.recipe.policy)",
        mutated="policy=self.recipe.policy",
        tests=("tests/evaluation/test_guarantees.py", "-k", "format_is_auto"),
    ),
    Mutant(
        name="a certificate holds for another tokenizer",
        file="cats_jax/specs/certificates.py",
        original="if files.get(name) != others.get(name)",
        mutated="if name not in {*files, *others}",
        tests=("tests/evaluation/test_guarantees.py", "-k", "tokenizers_formats"),
    ),
    Mutant(
        name="a certified strategy is certified again by what chose it",
        file="cats_jax/evaluation/evaluate.py",
        original='"chosen_on": sum(text in recipe.chosen_on for text in texts)',
        mutated='"chosen_on": sum(text in recipe.fitted_on for text in texts)',
        tests=("tests/evaluation/test_guarantees.py", "-k", "certify_again"),
    ),
    Mutant(
        name="a failed search needs a tree",
        file="cats_jax/reporting/selective_answers.py",
        original="row.tree is None and row.answer is not None",
        mutated="row.tree is None",
        tests=("tests/reporting/test_selective_answers.py", "-k", "failed_search"),
    ),
    Mutant(
        name="the speed of a machine is certified",
        file="cats_jax/reporting/certified_configurations.py",
        original='config"].get("max_seconds")) is not None',
        mutated='config"].get("max_seconds")) == 0',
        tests=("tests/reporting/test_certified_configurations.py", "-k", "can_not_certify"),
    ),
    Mutant(
        name="a certificate says which server gets the question",
        file="cats_jax/commands/solve.py",
        original="if key not in changed:",
        mutated="if key not in model:",
        tests=("tests/commands/test_solve.py", "-k", "where_questions_go"),
    ),
    Mutant(
        name="a claim is settled at the level of one look",
        file="theory/sequential.py",
        original="reached = (above >= needed) | (below >= needed)",
        mutated="reached = (above >= needed / 2) | (below >= needed)",
        tests=("tests/theory/test_sequential.py",),
    ),
    Mutant(
        name="questions are looked at as the file has them",
        file="cats_jax/evaluation/until_certified.py",
        original="return sorted(questions, key=place)",
        mutated="return list(questions)",
        tests=("tests/evaluation/test_until_certified.py", "-k", "order"),
    ),
    Mutant(
        name="a run that its results ended is certified by a fixed test",
        file="cats_jax/reporting/certified_configurations.py",
        original='run.manifest.get("until_certified") is not None',
        mutated="False",
        tests=("tests/evaluation/test_until_certified.py", "-k", "another_claim"),
    ),
    Mutant(
        name="a merged run forgets what another run's calibration was fitted on",
        file="cats_jax/runs/merge.py",
        original='most = max(*counts, sum(text in known for text in found.get("texts", ())))',
        mutated="most = max(counts)",
        tests=("tests/runs/test_merge.py", "-k", "premises"),
    ),
    Mutant(
        name="three bounds on costs have the level of one",
        file="cats_jax/reporting/cost_bounds.py",
        original="_NUM_COSTS = 3",
        mutated="_NUM_COSTS = 1",
        tests=("tests/reporting/test_cost_bounds.py", "-k", "limits_are"),
    ),
    Mutant(
        name="a rescored run is certified",
        file="cats_jax/reporting/certified_configurations.py",
        original='config"].get("rescored") is not None',
        mutated='config"].get("rescored") == 0',
        tests=("tests/reporting/test_certified_configurations.py", "-k", "can_not_certify"),
    ),
    Mutant(
        name="an answer below the certified threshold is given",
        file="cats_jax/live/abstention.py",
        original="score >= threshold",
        mutated="score <= threshold",
        tests=("tests/reporting/test_selective_answers.py", "-k", "below_the_threshold"),
    ),
    Mutant(
        name="a threshold keeps the level of one that was not certified",
        file="theory/testing.py",
        original="            carried = 0.0\n",
        mutated="            pass\n",
        tests=("tests/reporting/test_selective_answers.py", "-k", "fallback"),
    ),
    Mutant(
        name="p_N that rounds to 1 certifies what it can't",
        file="theory/budget.py",
        original="return possible & (",
        mutated="return (",
        tests=("tests/theory/test_budget.py", "-k", "budgets_at_the_ends"),
    ),
    Mutant(
        name="the margin bound goes on below gap = epsilon",
        file="theory/accuracy.py",
        original="np.where(gap > epsilon, (gap - epsilon) / gap",
        mutated="np.where(gap >= 0, (gap - epsilon) / gap",
        tests=("tests/theory/test_accuracy.py", "-k", "two_borders"),
    ),
    Mutant(
        name="a density passes for a probability",
        file="theory/_arguments.py",
        original="array >= 0, assumption",
        mutated="array > -np.inf, assumption",
        tests=("tests/theory/test_arguments.py", "-k", "neg_log_prior"),
    ),
    Mutant(
        name="no counterexample counts as a proof",
        file="theory/checks/report.py",
        original="holds = Verdict.HOLDS if proof else Verdict.OPEN",
        mutated="holds = Verdict.HOLDS",
        tests=("tests/theory/test_checks.py", "-k", "verdict_is_what_was_found"),
    ),
    Mutant(
        name="sampling noise refutes a claim",
        file="theory/checks/report.py",
        original="violated = bool(high[worst] < -tolerance)",
        mutated="violated = bool(value[worst] < -tolerance)",
        tests=("tests/theory/test_checks.py", "-k", "beyond_its_interval"),
    ),
    Mutant(
        name="epsilon's upper end is one order statistic too low",
        file="theory/estimators/deviation.py",
        original="np.searchsorted(below, 1.0 - tail)) + 1",
        mutated="np.searchsorted(below, 1.0 - tail))",
        tests=("tests/theory/test_estimators.py", "-k", "epsilon_holds_for_any_law"),
    ),
    Mutant(
        name="a path with the same answer counts as a rival",
        file="cats_jax/reporting/certificates.py",
        original="if not judge.equivalent(answer, best)]",
        mutated="if answer != best]",
        tests=("tests/reporting/test_certificates.py", "-k", "lead_is_over_other_answers"),
    ),
    Mutant(
        name="epsilon is taken from the questions it certifies",
        file="cats_jax/reporting/certificates.py",
        original="    if shared:",
        mutated="    if False:",
        tests=("tests/reporting/test_certificates.py", "-k", "other_questions"),
    ),
    Mutant(
        name="a number's base is ignored",
        file="cats_jax/grading/plain_numbers.py",
        original="int(match[3] or match[4]))",
        mutated="0 * int(match[3] or match[4]))",
        tests=("tests/grading/test_parts.py", "-k", "plain_numbers"),
    ),
    Mutant(
        name="brackets do not count",
        file="cats_jax/grading/structure.py",
        original="return Structure(brackets[text[0] + text[-1]], tuple(inside))",
        mutated='return Structure("()", tuple(inside))',
        tests=("tests/grading/test_parts.py", "-k", "structures"),
    ),
    Mutant(
        name="numbers that intervals can't tell apart are equal",
        file="cats_jax/grading/exact_numbers.py",
        original="number.upper * (degree - 1) + number.lower if degree > 1 else number.lower",
        mutated="32.0",
        tests=("tests/grading/test_grading.py", "-k", "labelled_pairs"),
    ),
    Mutant(
        name="numbers in a relation are compared by rounding",
        file="cats_jax/grading/comparison.py",
        original="<= _CLOSE * max(1.0, abs(a), abs(b))",
        mutated="< 0",
        tests=("tests/grading/test_grading.py", "-k", "labelled_pairs"),
    ),
    Mutant(
        name="a thought ends with its step",
        file="cats_jax/grading/thinking.py",
        original="        parts, start = [], 0\n",
        mutated="        parts, start, thinking = [], 0, False\n",
        tests=("tests/grading/test_parts.py", "-k", "thinking"),
    ),
    Mutant(
        name="a comparison has no limit of CPU time",
        file="cats_jax/grading/worker.py",
        original="signal.setitimer(signal.ITIMER_PROF, seconds)",
        mutated="signal.setitimer(signal.ITIMER_PROF, 0)",
        tests=("tests/grading/test_grading.py", "-k", "error_of_its_pair"),
    ),
    Mutant(
        name="votes compare every two answers",
        file="cats_jax/grading/judge.py",
        original="> _APART * size",
        mutated="> 1e300 * size",
        tests=("tests/grading/test_grading.py", "-k", "far_fewer"),
    ),
    Mutant(
        name="a data set's tolerance is forgotten",
        file="cats_jax/grading/verdict.py",
        original="return judge.compare(answer, gold, tolerance)",
        mutated="return judge.compare(answer, gold)",
        tests=("tests/evaluation/test_evaluate.py", "-k", "tolerance_is_kept"),
    ),
    Mutant(
        name="a node without a valid child gives up",
        file="search/strategy/cats/search.py",
        original="jnp.where(is_open, chosen.num_extra, 0)",
        mutated="jnp.where(deciding, chosen.num_extra, 0)",
        tests=("tests/live/test_driver.py", "-k", "greedy_child"),
    ),
    Mutant(
        name="a path that dies without a decision leaves no transition",
        file="search/strategy/cats/transitions.py",
        original="weight=pending.valid & (decided | dies)",
        mutated="weight=pending.valid & decided",
        tests=("tests/training/test_collect.py", "-k", "those_of_the_core"),
    ),
    Mutant(
        name="a candidate that the PRM can't read fails its question",
        file="cats_jax/live/new_candidates.py",
        original="if candidate.invalid is not None:  # also where the PRM can't read the path",
        mutated="if False:",
        tests=("tests/live/test_driver.py", "-k", "fifteen_paths or dropped_alone"),
    ),
    Mutant(
        name="paths that a PRM could not read are a basis for another PRM",
        file="cats_jax/evaluation/shared_paths.py",
        original=" and not result.ledger.prm_refused",
        mutated="",
        tests=("tests/evaluation/test_shared_paths.py", "-k", "one_prm_cannot"),
    ),
    Mutant(
        name="rows whose search would differ are rescored",
        file="cats_jax/evaluation/rescore.py",
        original="if change.of_scores and not strategy.keeps_all_paths:",
        mutated="if False and not strategy.keeps_all_paths:",
        tests=("tests/evaluation/test_rescore.py", "-k", "aggregation and last"),
    ),
    Mutant(
        name="an engine's context has no room for the first step",
        file="cats_jax/models/settle.py",
        original="steps = (max_depth - 1) * policy.max_step_tokens + last",
        mutated="steps = (max_depth - 2) * policy.max_step_tokens + last",
        tests=("tests/models/test_engine_settings.py", "-k", "context_that_the_run_needs"),
    ),
    Mutant(
        name="every engine is put on the first GPU",
        file="cats_jax/models/serving/vllm_engine.py",
        original='arguments["device_ids"] = list(gpu_numbers(settings))',
        mutated='arguments["device_ids"] = list(range(settings.tensor_parallel_size or 1))',
        tests=("tests/models/test_engine_settings.py", "-k", "over_several_gpus"),
    ),
    Mutant(
        name="the manifest does not say which backend auto took",
        file="cats_jax/evaluation/evaluate.py",
        original="recipe = dataclasses.replace(recipe, policy=policy, prms=prms)",
        mutated="recipe = dataclasses.replace(recipe, prms=prms)",
        tests=("tests/models/test_engine_settings.py", "-k", "what_was_taken"),
    ),
    Mutant(
        name="an iteration that a kill cut short keeps its line of the curves",
        file="cats_jax/training/online_state.py",
        original="_lines(folder / CURVES)[: self.iteration]",
        mutated="_lines(folder / CURVES)",
        tests=("tests/training/test_online.py", "-k", "goes_on_as_if"),
    ),
    Mutant(
        name="on-line, all searches of a batch have the key of the first",
        file="cats_jax/training/online_searches.py",
        original="key=data[row]",
        mutated="key=data[0]",
        tests=("tests/training/test_online.py", "-k", "in_the_graph and paper and not gae"),
    ),
    Mutant(
        name="a question is learned from although one of its searches failed",
        file="cats_jax/training/online_searches.py",
        original='any(each.status == "failed" for each in group)',
        mutated='result.status == "failed"',
        tests=("tests/training/test_online.py", "-k", "takes_its_question_along"),
    ),
    Mutant(
        name="the page's policy lets any inline script run",
        file="cats_jax/page/assets.py",
        original='    scripts = " ".join(_digest(script) for script in assets.scripts)',
        mutated="    scripts = \"'unsafe-inline'\"",
        tests=("tests/page/test_page.py", "-k", "policy"),
    ),
    Mutant(
        name="trees of a merged page are those of the first folder",
        file="cats_jax/page/build.py",
        original="_encoded(run, row, judge, texts, question, damaged)",
        mutated="_encoded(runs[0], row, judge, texts, question, damaged)",
        tests=("tests/page/test_page.py", "-k", "own_folder"),
    ),
    Mutant(
        name="data of a page are plain text",
        file="cats_jax/page/blocks.py",
        original="{packed}</script>",
        mutated="{text}</script>",
        tests=("tests/page/test_page.py", "-k", "markup"),
    ),
    Mutant(
        name="an equal column of a tree loses its first value",
        file="cats_jax/page/trees.py",
        original="    return column[0] if len(column) > 1 and",
        mutated="    return 0 if len(column) > 1 and",
        tests=("tests/page/test_page.py", "-k", "read_back"),
    ),
)


class BrokenListError(Exception):
    """The list of mutants does not fit the tree."""


def main(texts: Sequence[str]) -> int:
    """Try every mutant that is meant, print a table, return the exit code."""
    console = rich.console.Console()
    meant = [
        mutant
        for mutant in MUTANTS
        if not texts or any(text in f"{mutant.name} {mutant.file}" for text in texts)
    ]
    if not meant:
        console.print(f"[red]error:[/] no mutant has {' or '.join(texts)} in its name or file")
        return 2
    table = rich.table.Table("mutant", "file", "tests", "result")
    survivors = 0
    try:
        for mutant in meant:  # all texts first: a wrong one should not cost a test run
            _mutated_text(mutant)
        for tests in dict.fromkeys(mutant.tests for mutant in meant):
            with console.status(f"unmutated: {' '.join(tests)}"):
                _expect_pass(tests)
        for mutant in meant:
            with console.status(mutant.name):
                caught = _is_caught(mutant)
            survivors += not caught
            result = "[green]caught[/]" if caught else "[bold red]SURVIVED[/]"
            table.add_row(mutant.name, mutant.file, " ".join(mutant.tests), result)
    except BrokenListError as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        return 2
    console.print(table)
    console.print(f"{len(meant) - survivors} of {len(meant)} mutants caught")
    return 1 if survivors else 0


def _mutated_text(mutant: Mutant) -> str:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    count = text.count(mutant.original)
    if count != 1:
        raise BrokenListError(
            f"mutant {mutant.name!r}: its original text occurs {count} times in {mutant.file}, "
            f"not once: {mutant.original!r}"
        )
    return text.replace(mutant.original, mutant.mutated)


def _expect_pass(tests: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = _pytest(_copy_tree(folder), tests)
    if run.returncode != 0:
        raise BrokenListError(f"{' '.join(tests)} does not pass unmutated:\n{run.stdout[-2000:]}")


def _is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        tree = _copy_tree(folder)
        (tree / mutant.file).write_text(_mutated_text(mutant), encoding="utf-8")
        run = _pytest(tree, mutant.tests)
    # 1 is "tests ran and some failed". Anything else (no such test, interrupted) proves nothing.
    if run.returncode not in (0, 1):
        raise BrokenListError(
            f"mutant {mutant.name!r}: pytest ended with {run.returncode}:\n{run.stdout[-2000:]}"
        )
    return run.returncode == 1


def _copy_tree(folder: str) -> pathlib.Path:
    by_products = shutil.ignore_patterns(".venv*", ".git", "__pycache__", "_build", ".*_cache")

    def ignore(directory: str, names: list[str]) -> set[str]:
        # Packages are called runs too.
        runs = {"runs"} if pathlib.Path(directory) == ROOT else set()
        return by_products(directory, names) | runs

    return pathlib.Path(shutil.copytree(ROOT, pathlib.Path(folder) / "tree", ignore=ignore))


def _pytest(tree: pathlib.Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH: the copy must win over the working tree, which is installed editable.
    # Derandomised, so that a mutant is caught today because it was caught yesterday.
    env = {
        # Beside the tree, which its copy is not.
        "CATS_JAX_SHARED": str(ROOT.parent / "shared"),
        **os.environ,
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "true",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command,
        cwd=tree,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
