"""Breaks the code in known ways and asks the tests to notice (`make mutants`).

    .venv/bin/python tests/mutants.py           # all of them: takes long
    .venv/bin/python tests/mutants.py TEXT ...  # those with such a text in their name or file

Each mutant is one edit, applied to a copy of the tree, never to the working tree. The tests
named by a mutant must pass before the edit and fail after it. Exit code 0: all caught; 1: one
survived; 2: the list itself is wrong (the code to replace is not there exactly once, the tests do
not pass unmutated, or pytest did not run them).

What is replaced is an expression or statements inside a named function, found in its syntax tree:
line breaks, quotes, brackets, comments and the rest of the file may change. `if x: ...` and
`for x in y: ...` stand for statements with any body, which the replacement keeps.
"""

import ast
import concurrent.futures
import copy
import dataclasses
import itertools
import os
import pathlib
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

import rich.console
import rich.markup

ROOT = pathlib.Path(__file__).resolve().parents[1]

T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break the code.

    Attributes:
        name: what is broken, in a few words.
        where: "FILE:FUNCTION", with the names of outer functions or classes before dots; a class or
            a constant of the module may stand for the function. The whole file without a name.
        original: expression or statements that occur exactly once there; a text if the file is not
            Python.
        mutated: what replaces it.
        tests: arguments of pytest that select the tests which must notice.
    """

    name: str
    where: str
    original: str
    mutated: str
    tests: str

    @property
    def file(self) -> str:
        """Path from the root of the repository."""
        return self.where.partition(":")[0]


def _parts(name: str) -> str:
    return f"tests/search/test_parts.py -k {shlex.quote(name)}"


def _loop(strategy: str) -> str:
    return f"tests/search/test_loop.py::test_graph_host_and_oracle_agree[{strategy}]"


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    Mutant("sequential halving forgets the finished paths that are arms",
        "search/strategy/sequential_halving.py:_halved",
        "state.memory.is_arm", "state.memory.is_arm & False", _loop("sequential_halving")),
    Mutant("a round of sequential halving costs more the more paths are left",
        "search/strategy/sequential_halving.py:round_length", "jnp.maximum(number, 1) * rounds",
        "jnp.maximum(1, 1) * rounds", _loop("sequential_halving")),
    Mutant("DeepConf stops paths that are shorter than a window",
        "search/strategy/deepconf_online.py:deepconf_online.keep", "length >= window_size",
        "length >= 0", _loop("deepconf_online")),
    Mutant("paths of the warm-up below the bar have a vote",
        "search/strategy/deepconf_online.py:_weighed",
        "jnp.where(paths.certainty >= bar, paths.certainty, 0.0)",
        "jnp.where(paths.certainty >= 0.0, paths.certainty, bar)", _loop("deepconf_online")),
    Mutant("a search reads the certainty of the newest step alone",
        "cats_jax/live/tree.py:SearchTree.token_certainties", "self.nodes(node)",
        "self.nodes(node)[-1:]", "tests/models/test_certainty.py -k reads_the_paths"),
    Mutant("paths without certainties are shared with methods that read them",
        "cats_jax/evaluation/cells.py:pool_name",
        "f'seed {seed}, {strategy.sampling}, {certainty}, {strategy.needs_vectors}'",
        "f'seed {seed}, {strategy.sampling}, {strategy.needs_vectors}'",
        "tests/models/test_certainty.py -k are_shared"),
    Mutant("paths without vectors are shared with methods that read them",
        "cats_jax/evaluation/cells.py:pool_name",
        "f'seed {seed}, {strategy.sampling}, {certainty}, {strategy.needs_vectors}'",
        "f'seed {seed}, {strategy.sampling}, {certainty}'",
        "tests/models/test_step_vectors.py -k not_shared"),
    Mutant("DORA divides by the similarities of padding, too", "search/strategy/dora.py:directed",
        "jnp.where(valid[None, :], similarities, -jnp.inf)", "similarities",
        "tests/search/test_ets.py -k no_similarity"),
    Mutant("DORA's copies are not cut at the places", "search/strategy/dora.py:rounded",
        "whole * numbers", "numbers", _loop("dora")),
    Mutant("the nodes above the leaves cost ETS nothing", "search/strategy/ets_program.py:_terms",
        "program.lambdac / jnp.maximum(_float(num_nodes), 1.0)", "0.0",
        "tests/search/test_ets.py -k few_places"),
    Mutant("a leaf on trial stays kept", "search/strategy/ets_program.py:_visit",
        "kept & ~undone", "kept", "tests/search/test_ets.py -k cross_the_tree"),
    Mutant("the bound of ETS counts no cluster that is still open",
        "search/strategy/ets_program.py:_bound",
        "jnp.where(can_cover, terms.gain - pays, 0.0).sum()", "0.0",
        "tests/search/test_ets.py -k cross_the_tree"),
    Mutant("the clusters of ETS never pay less", "search/strategy/ets_program.py:_bound",
        "jnp.where(can_cover, following, state.pays)", "state.pays",
        "tests/search/test_ets.py -k many_leaves"),
    Mutant("ETS forgets which nodes are above a leaf", "search/strategy/ets.py:ets.keep",
        "pool.parent[:, None]", "0", "tests/search/test_ets.py -k follow_the_publication"),
    Mutant("a step's vector is the hidden state of another row",
        "cats_jax/models/huggingface/generator.py:HuggingFaceGenerator._decode",
        "self._model.hidden[row_of[found.one]]", "self._model.hidden[found.one]",
        "tests/models/test_step_vectors.py -k last_hidden_state"),
    Mutant("MCTSr rewrites a node although a child is as good", "search/strategy/mctsr.py:choose",
        "best_child >= rewards", "best_child > rewards",
        "tests/search/test_answer_trees.py -k by_hand"),
    Mutant("AB-MCTS-A takes the score of a new answer for one below its parent's children",
        "search/strategy/ab_mcts_a.py:observe.climb", "seen.deeper.at[parent[node]]",
        "seen.deeper.at[node]", "tests/search/test_answer_trees.py -k ab_mcts_a_grows"),
    Mutant("the critiques of rewrites cost nothing", "cats_jax/live/rewriter.py:Rewriter.generate",
        "[*found, critiques[i]] if i in critiques else found", "found",
        "tests/live/test_rewriter.py -k one_call"),
    Mutant("an answer that the judge did not choose wins",
        "cats_jax/live/comparison_rules.py:_winner",
        "vote(match) if choice is None else match[choice]", "match[choice or 0]",
        "tests/live/test_comparisons.py -k unread"),
    Mutant("the Borda count has no transitive closure",
        "cats_jax/live/comparison_rules.py:borda_keys", "beats[i] |= beats[k]",
        "beats[i] |= 0", "tests/live/test_comparisons.py -k borda_count_by_hand"),
    Mutant("comparisons cost nothing", "cats_jax/live/accounting.py:charge_comparison",
        "for usage, seconds in replies: ...", "for usage, seconds in (): ...",
        "tests/live/test_comparisons.py -k judge_chooses"),
    Mutant("a reply that was cut is a choice", "cats_jax/live/comparisons.py:_said",
        "sample.finish == 'end'", "sample.finish", "tests/live/test_comparisons.py -k unread"),
    Mutant("equal texts are compared with each other",
        "cats_jax/live/comparisons.py:Comparisons._contenders",
        "not self._judge.comparison.repeats", "False",
        "tests/live/test_comparisons.py -k what_the_judge_reads"),
    Mutant("an answer may state a choice",
        "cats_jax/specs/comparing.py:ComparisonPrompt._quoted", "self._number(line) is None",
        "line", "tests/live/test_comparisons.py -k hostile_answers"),
    Mutant("searches that are compared take no place",
        "cats_jax/live/driver.py:SearchBatch._refill",
        "len(self._slots) - len(self._open()) - compared", "len(self._slots) - len(self._open())",
        "tests/live/test_comparisons.py -k take_places"),
    Mutant("the context of an engine holds one answer",
        "cats_jax/evaluation/cells.py:written_prompts",
        "prompt.prompt_tokens(path, comparison.most_shown(answers))",
        "prompt.prompt_tokens(path, 1)", "tests/evaluation/test_comparing.py -k context"),
    Mutant("LLaMA-Berry leaves no answer out", "search/strategy/llama_berry.py:choose",
        "valid & (nodes != 0) & ~explored", "valid & (nodes != 0)",
        "tests/live/test_llama_berry.py -k oracle"),
    Mutant("LLaMA-Berry keeps the value of a child to itself",
        "search/strategy/llama_berry.py:backpropagated",
        "(1.0 - gamma) * quality + gamma * quality[new]", "quality",
        "tests/live/test_llama_berry.py -k oracle"),
    Mutant("the last ranking of answers is paid again",
        "cats_jax/live/comparisons.py:Comparisons._next", "asked.id not in known",
        "True", "tests/live/test_llama_berry.py -k oracle"),
    Mutant("a thought goes on beyond its budget",
        "cats_jax/models/huggingface/thoughts.py:Thoughts._left",
        "self._thinking.budget - thought.spent", "self._thinking.budget",
        "tests/models/test_thinking.py -k cut_into_steps"),
    Mutant("a thought is prolonged once too often",
        "cats_jax/models/huggingface/thoughts.py:Thoughts._prolong",
        "thought.waits == self._thinking.waits", "thought.waits > self._thinking.waits",
        "tests/models/test_thinking.py -k prolonged"),
    Mutant("a probe that hesitates counts as an answer",
        "cats_jax/models/prompts/thinking.py:Thinking.answer_of", "word in text.lower()", "False",
        "tests/models/test_thinking.py -k dynasor"),
    Mutant("the answers to probes are free",
        "cats_jax/models/huggingface/thoughts.py:Thoughts.generate", "usage[i][j].append(cost)",
        "thought.probing or usage[i][j].append(cost)",
        "tests/models/test_thinking.py -k probes_agree"),
    Mutant("tokens that close a thought are certain",
        "cats_jax/models/huggingface/thoughts.py:Thoughts._step", "thought.sampled", "None",
        "tests/models/test_thinking.py -k its_budget"),
    Mutant("a judge at an endpoint is free", "cats_jax/live/accounting.py:_charge_prm",
        "ledger.prm_cost += usage.cost", "pass",
        "tests/models/test_chat_judge.py -k knows_the_same"),
    Mutant("a path without an answer has the score of a thought",
        "cats_jax/models/prm/answer_steps.py:answer_steps", "IN_THOUGHT if is_open else NO_ANSWER",
        "IN_THOUGHT", "tests/models/test_thinking.py -k reads_the_answer"),
    Mutant("a claim against another strategy counts its own losses",
        "cats_jax/evaluation/until_certified.py:AccuracyClaim.value",
        "1 - sum(other) / len(other) + share", "1 + sum(other) / len(other) - share",
        "tests/evaluation/test_until_certified.py -k a_loss_against"),
    Mutant("one configuration is ahead of the other when a claim is settled",
        "cats_jax/evaluation/evaluate.py:search_cells",
        "[[cell] for cell in cells] if until is None else [cells]", "[[cell] for cell in cells]",
        "tests/evaluation/test_until_certified.py -k a_loss_against"),
    Mutant("a search stops one path after the good one", "theory/stopping.py:_stopped",
        "highest[None, :, :] < grid[:, None, None]", "highest[None, :, :] <= grid[:, None, None]",
        "tests/theory/test_stopping.py -k literal"),
    Mutant("paths are in the order in which they ended",
        "cats_jax/reporting/stopping_thresholds.py:_paths",
        "result.candidates[path.nodes[0] - 1].pool_row", "result.paths.index(path)",
        "tests/reporting/test_stopping_thresholds.py -k lowest"),
    Mutant("a calibrated head is certified on what fitted it",
        "cats_jax/scoring/certified_quality.py:certified_quality", "~fits", "fits",
        "tests/scoring/test_certified_quality.py -k a_head"),
    Mutant("a misspelt key of a recipe has no hint", "cats_jax/storage/schema.py:from_mapping",
        "key not in names", "False", "tests/models/test_engine_settings.py -k refused_as"),
    Mutant("a key that stands in place of its variable's name is quoted",
        "cats_jax/storage/schema.py:must.check", "'secret' if secret else 'rule'", "'rule'",
        "tests/models/test_engine_settings.py -k refused_as"),
    Mutant("the entry of a list that is wrong is not named",
        "cats_jax/storage/schema.py:_described", "if entry and said.startswith(f'{name}: '): ...",
        "if False: ...", "tests/bank/test_bank.py -k one_line"),
    Mutant("a lock is opened through a link", "cats_jax/storage/durable.py:open_unlinked",
        "os.O_NOFOLLOW | os.O_NONBLOCK", "os.O_NONBLOCK",
        "tests/storage/test_durable.py -k symbolic"),
    Mutant("a tree may inflate to any size", "cats_jax/storage/reading.py:inflated_lines",
        "total > MAX_INFLATED", "total < 0", "tests/storage/test_reading.py -k inflating"),
    Mutant("a sliding window has a token more", "cats_jax/models/huggingface/attention.py:sliding",
        "from_here > window", "from_here > window + 1",
        "tests/models/test_architectures.py -k last_tokens"),
    Mutant("a server that ignores n is asked again",
        "cats_jax/models/serving/http_engine.py:HTTPSampler._read", "len(choices) == 1 < body['n']",
        "len(choices) == 0 < body['n']", "tests/models/test_http_engine.py -k first_reply"),
    Mutant("a server of vLLM takes penalties from the model's files",
        "cats_jax/models/serving/http_engine.py:_completion", "NO_EFFECT", "{}",
        "tests/models/test_http_engine.py -k in_order_with_what"),
    Mutant("the samples of a prompt on SGLang share a seed",
        "cats_jax/models/serving/sglang_engine.py:SGLangSampler._body", "seed >> 1",
        "seeds[0] >> 1", "tests/models/test_sglang.py -k own_seed"),
    Mutant("log-probabilities of another temperature are read",
        "cats_jax/models/serving/sglang_engine.py:SGLangSampler._body",
        "request.temperature not in (0, 1)", "False", "tests/models/test_sglang.py -k left_out"),
    Mutant("calls in progress are left out of the limit on costs",
        "cats_jax/models/serving/spending.py:Spending._fits", "self.spent + sum(self._held)",
        "self.spent", "tests/models/test_chat.py -k calls_in_progress"),
    Mutant("a turn that the endpoint repeats is sampled text",
        "cats_jax/models/serving/chat.py:ChatPolicy._rest", "t[len(begun):]", "t",
        "tests/models/test_chat.py -k steps_continue"),
    Mutant("an endpoint that counts the tokens of one sample is asked for several",
        "cats_jax/models/serving/chat.py:ChatPolicy._probe_n",
        "reply.completion > _CUT", "True",
        "tests/models/test_chat.py -k charged_as_the_server"),
    Mutant("a new answer in the words of a turn repeats the turn",
        "cats_jax/models/serving/chat.py:ChatPolicy._probe",
        "short.samples[0][0].startswith(_BEGUN)", "True",
        "tests/models/test_chat.py -k whole_answers_only"),
    Mutant("an answer that the endpoint cut is whole",
        "cats_jax/models/serving/chat.py:_sampled",
        "'end' if finish == 'stop' else 'length'", "'end'",
        "tests/models/test_chat.py -k whole_answers_only"),
    Mutant("the tokenizer's own end of text ends no answer",
        "cats_jax/models/huggingface/model.py:CausalModel.end_ids",
        "[self.tokenizer, self.config, self.text_config]", "[self.config, self.text_config]",
        "tests/models/test_policies.py -k all_tokens_that_the_model"),
    Mutant("a sample without log-probabilities has a probability of 1",
        "cats_jax/models/serving/vllm_engine.py:_sampled",
        "tuple(output.log_probs) if log_probs else None", "tuple(output.log_probs)",
        "tests/models/test_engine_settings.py -k seeds_of_the_samples"),
    Mutant("a recipe may leave out the log-probabilities that a strategy reads",
        "cats_jax/evaluation/cells.py:check_log_probs", "strategy.needs_log_probs or by_likelihood",
        "by_likelihood", "tests/evaluation/test_selective_prm_calls.py -k without_log_prob"),
    Mutant("a recipe may leave out the log-probabilities that a calibration reads",
        "cats_jax/evaluation/cells.py:check_log_probs", "strategy.needs_log_probs or by_likelihood",
        "strategy.needs_log_probs",
        "tests/evaluation/test_selective_prm_calls.py -k without_log_prob"),
    Mutant("a PRM that the calibration trusts little is asked, too",
        "search/cats/search.py:_make_asks.asks",
        "(found[:, best] < threshold) & (found[:, weight] >= min_prm_weight)",
        "found[:, best] < threshold", "tests/search/test_asking.py"),
    Mutant("a node that asked the PRM goes on as if it had not",
        "search/cats/search.py:_make_asks.asks", "found[:, scored] == 0.0",
        "found[:, scored] <= 1.0", "tests/search/test_asking.py"),
    Mutant("accepting a child without a score is a decision",
        "search/cats/search.py:_make_plan.plan", "is_open & ~childless & ~unscored",
        "is_open & ~childless", "tests/search/test_asking.py"),
    Mutant("a phase that samples nothing is not the last one of its step",
        "cats_jax/live/ticks.py:commit", "jnp.where(is_quiet, last, state.phase)",
        "jnp.where(is_quiet, state.phase, state.phase)",
        "tests/live/test_driver.py -k sample_nothing_are_skipped"),
    Mutant("options of XLA that the user sets are overridden",
        "cats_jax/live/core_program.py:compiler_options",
        "{name: value for name, value in _QUICK.items() if name not in flags}",
        "{name: value for name, value in _QUICK.items()}",
        "tests/live/test_core_program.py -k left_alone"),
    Mutant("an option of XLA that this JAX lacks ends the search",
        "cats_jax/live/core_program.py:compiler_options",
        "{name: value for name, value in wanted.items() if _is_known(name, value)}",
        "{name: value for name, value in wanted.items()}",
        "tests/live/test_core_program.py -k does_not_have"),
    Mutant("a large model on the CPU computes with one thread",
        "cats_jax/models/threads.py:default_threads",
        "1 if num_values(folder) < _SMALL else available_cpus()", "1",
        "tests/models/test_threads.py -k size_decides"),
    Mutant("the threads of the last model that was loaded are those of all",
        "cats_jax/models/huggingface/model.py:CausalModel.timed",
        "torch.get_num_threads() != self._num_threads", "self.seconds == 0.0",
        "tests/models/test_threads.py -k its_own_number"),
    Mutant("a greedy child is sampled again although its node has one",
        "cats_jax/live/pending_requests.py:pending_requests",
        "slot.greedy.get(parent) if step_request.temperature == 0.0 else None", "None",
        "tests/live/test_driver.py -k greedy_child_once"),
    Mutant("the PRM reads a text below a node each time that it is sampled",
        "search/costs.py:tick_tokens", "scored & ~repeats & ~_has_equal(tick, was_read)",
        "scored & ~repeats", "tests/search/test_costs.py -k loop"),
    Mutant("a child without a score does not take that of an equal text",
        "search/calibration.py:_scores_of_equal_texts", "jnp.any(same, axis=1)", "scored",
        "tests/search/test_calibration.py -k equal_text"),
    Mutant("adaptive consistency stops without looking at the second answer",
        "search/strategy/path_by_path.py:leader_stays",
        "jnp.max(jnp.where(leads, 0, votes), initial=0)", "0 * first",
        _loop("adaptive_consistency")),
    Mutant("a path is given up although there is no answer yet",
        "search/strategy/path_by_path.py:path_by_path.keep", "has_answer | ~is_last",
        "is_last | ~is_last", _loop("sequential_best_of_n")),
    Mutant("a path without an end counts on", "search/strategy/path_by_path.py:path_by_path.keep",
        "growing(state) & ~bad", "pool.valid & ~pool.done & ~bad", _loop("adaptive_consistency")),
    Mutant("a window agrees although one of its paths is lost",
        "search/strategy/early_stopping_consistency.py:_agrees",
        "~jnp.any(growing(state)) & whole", "~jnp.any(growing(state))",
        _loop("early_stopping_consistency")),
    Mutant("the last path of a search agrees with itself",
        "search/strategy/early_stopping_consistency.py:_agrees",
        "jnp.sum(ours, dtype=jnp.int32) == window",
        "jnp.sum(ours, dtype=jnp.int32) == _size(state, window)",
        "tests/search/test_path_by_path.py -k fewer_than_a_window"),
    Mutant("a single candidate is rolled out",
        "search/strategy/lookahead.py:lookahead.keep", "jnp.where(total > 1, lookahead, 0)",
        "jnp.where(total > 0, lookahead, 0)",
        "tests/search/test_beams.py -k within_the_usual_budget"),
    Mutant("earlier windows vote against the one that agrees",
        "search/strategy/early_stopping_consistency.py:early_stopping_consistency.keep_finished",
        "jnp.where(silent, 0.0, finished.weight)", "jnp.where(silent, 1.0, finished.weight)",
        "tests/search/test_path_by_path.py -k against_more_votes"),
    Mutant("speculative rejection ranks without the finished paths",
        "search/strategy/speculative_rejection.py:speculative_rejection.keep",
        "prune_all(state, aggregated, memory.ranked, lambda number: kept_of[number])",
        "prune_all(state, aggregated, memory.ranked & False, lambda number: kept_of[number])",
        "tests/search/test_path_by_path.py -k worse_half"),
    Mutant("the steps of a reference are looked for in the wrong slot",
        "search/strategy/particle_gibbs.py:_with_reference", "jnp.zeros_like(own.parent)",
        "own.parent + 1", _loop("particle_gibbs")),
    Mutant("the reference of particle Gibbs is a free particle, too",
        "search/strategy/particle_gibbs.py:particle_gibbs.plan",
        "state.width - count(memory.reference)", "state.width + 0 * count(memory.reference)",
        "tests/search/test_invariants.py -k gibbs_keeps"),
    Mutant("weights are tempered until the end", "search/strategy/particle_filtering.py:tempered",
        "(ratio < ess_threshold) & (progress < early_phase)", "ratio < ess_threshold",
        "tests/search/test_resampling.py -k tempered"),
    Mutant("a frontier keeps points below its hull",
        "cats_jax/reporting/frontier/mixtures.py:frontier_of", "hull.pop()", "break",
        "tests/reporting/test_frontier.py"),
    Mutant("a choice by difficulty does not pay for its pilot",
        "cats_jax/reporting/frontier/difficulty.py:ByDifficulty._column", "value == 'correct'",
        "True", "tests/reporting/test_frontier.py -k difficulty"),
    Mutant("a limit takes away an answer that the method has put aside",
        "cats_jax/live/slots.py:Slot.result", "self.answered is not None", "False",
        "tests/live/test_driver.py -k no_limit_takes"),
    Mutant("a step without a usable candidate fails a question that goes on",
        "cats_jax/live/slots.py:Slot.end", "nothing_valid and terminal", "nothing_valid",
        "tests/live/test_driver.py -k goes_on_after_a_step"),
    Mutant("an iterator of questions has no results", "cats_jax/live/arguments.py:check_questions",
        "not isinstance(questions, Collection)", "False",
        "tests/live/test_arguments.py -k wrong_questions"),
    Mutant("the seconds of a model that counts no tokens are lost",
        "cats_jax/protocols.py:shared_seconds", "[1] * len(usage)", "[0] * len(usage)",
        "tests/live/test_driver.py -k counts_no_tokens"),
    Mutant("a thread waits for itself", "cats_jax/models/serving/call_threads.py:CallThreads.close",
        "thread is not threading.current_thread()", "True",
        "tests/models/test_call_threads.py -k last_reference"),
    Mutant("what a model returns is not checked", "cats_jax/live/calls.py:_of_class",
        "isinstance(returned, wanted)", "wanted", "tests/live/test_arguments.py"),
    Mutant("a policy's samples are not counted", "cats_jax/live/contract.py:_fault_of_number",
        "_is_list(found) and len(found) == seeds", "_is_list(found)",
        "tests/live/test_contract.py -k policy_is_named"),
    Mutant("a controller is played from Python without its calibration",
        "cats_jax/live/method.py:SearchMethod.calibration",
        "given is None and (not self.strategy.needs_calibration)", "given is None",
        "tests/controllers/test_by_name.py -k without_a_calibration"),
    Mutant("a controller says nothing of models that it was not trained with",
        "cats_jax/live/method.py:Origin.warning", "kind == role.split()[0] and _same(model, each)",
        "True", "tests/controllers/test_by_name.py -k said_once"),
    Mutant("a strategy that indexes by a traced mask is not named",
        "search/strategy_contract.py:_naming.call",
        "(jax.errors.JAXTypeError, jax.errors.JAXIndexError)", "jax.errors.JAXTypeError",
        "tests/search/test_check_strategy.py -k boolean"),
    Mutant("a missing answer column does not name its key",
        "cats_jax/datasets/loading.py:_file_layout.check",
        "('question_column', 'answer_column', *named)", "('question_column',)",
        "tests/datasets/test_datasets.py -k names_the_key"),
    Mutant("a right step that was not kept does not lose the right path",
        "cats_jax/reporting/right_path.py:_loss", "c.id in right and c.kept", "c.id in right",
        "tests/reporting/test_right_path.py"),
    Mutant("ids are ordered as texts", "cats_jax/reporting/selection.py:_natural",
        "parts[place] = (len(digits), digits)", "pass",
        "tests/commands/test_show.py -k order_of_their_ids"),
    Mutant("the proposed command draws trees that do not differ",
        "cats_jax/commands/show.py:_command_of_trees", "differ is not None", "False",
        "tests/commands/test_show.py -k proposed"),
    Mutant("a dropped step that tied was dropped for its score",
        "cats_jax/reporting/right_path.py:_comparison", "best == min(scores)", "False",
        "tests/reporting/test_right_path.py -k without_a_lower"),
    Mutant("equal steps after other paths are one line",
        "cats_jax/reporting/equal_paths.py:first_equals", "firsts[candidate.parent]",
        "candidate.step", "tests/reporting/test_equal_paths.py"),
    Mutant("strategies differ with other PRMs",
        "cats_jax/reporting/selection.py:differing_rows.comparable",
        "one.prm == other.prm or None in (one.prm, other.prm)", "True",
        "tests/reporting/test_selection.py"),
    Mutant("equal steps of different nodes are drawn as siblings of another path",
        "cats_jax/reporting/draw.py:_Drawing._grow", "for node in nodes: ...",
        "for node in nodes[:1]: ...", 'tests/reporting/test_draw.py -k "lost_from or equal"'),
    Mutant("a text of a run may change the direction of writing",
        "cats_jax/reporting/plain_text.py:printable", "char.isprintable()", "char >= ' '",
        "tests/commands/test_show.py -k hostile"),
    Mutant("a question is charged for compilation", "cats_jax/live/accounting.py:Accounts.end_tick",
        "0.0 if compiled else core / len(slots)", "core / len(slots)",
        "tests/live/test_driver.py -k compilation"),
    Mutant("a strategy's function may stand for the strategy",
        "cats_jax/live/arguments.py:as_method", "isinstance(strategy, search.Strategy)",
        "isinstance(strategy, search.Strategy) or callable(strategy)",
        "tests/live/test_arguments.py"),
    Mutant("a label of a figure lies on a bar or a marker",
        "cats_jax/reporting/point_labels.py:_place",
        "not any((box.overlaps(other) for other in boxes))", "boxes",
        'tests/reporting/test_figures.py -k "no_text_lies or without_room"'),
    Mutant("a decision's own tick counts as spent",
        "cats_jax/reporting/action_figures.py:placed_decisions", "bisect.bisect_left",
        "bisect.bisect_right", "tests/reporting/test_figures.py -k earlier_ticks"),
    Mutant("a figure's file has its date", "cats_jax/reporting/figure_setup.py:_METADATA",
        "{'Creator': None, 'Producer': None, 'CreationDate': None}", "{}",
        "tests/reporting/test_figures.py -k the_same_each_time"),
    Mutant("models on one device do not add up", "cats_jax/models/footprint.py:misfit",
        "sum((model.least for model in plain))", "max((model.least for model in plain), default=0)",
        "tests/models/test_footprint.py -k add_up"),
    Mutant("a tied language-model head counts twice", "cats_jax/models/footprint.py:model_shape",
        "head is not None or ties_embeddings(whole)", "head is not None",
        "tests/models/test_footprint.py -k published_models"),
    Mutant("a grid keeps the models as the recipe was read",
        "cats_jax/evaluation/cells.py:resolved_cells",
        "None if cell.prm is None else prms[cell.prm.label]", "cell.prm",
        "tests/batch/test_api.py -k resolved_recipe"),
    Mutant("a call for a tree takes the first of several rows", "cats_jax/batch/results.py:_only",
        "len(rows) > 1", "False", "tests/batch/test_api.py -k which_tree"),
    Mutant("memory is checked after the policy is loaded",
        "cats_jax/evaluation/runners.py:LocalRunner.check_models",
        "check_models(self._models, recipe.policy, recipe.prms, work)",
        "check_models(self._models, None, (), work)",
        "tests/models/test_footprint.py -k refused_before"),
    Mutant("a worker takes others' batches while cells are left to begin",
        "cats_jax/evaluation/batch_queue.py:BatchQueue.take",
        "batch is None or (rank(batch) == 2 and (not helping))", "batch is None",
        "tests/evaluation/test_batch_queue.py -k keeps_to_its_cell"),
    Mutant("a helper forgets which paths it sampled",
        "cats_jax/evaluation/batch_queue.py:BatchQueue._owner",
        "known.update((self._homes[key] for key in keys if key in self._homes))", "pass",
        "tests/evaluation/test_batch_queue.py -k helper_keeps"),
    Mutant("the time of paths that cells share is counted in each",
        "cats_jax/evaluation/measure.py:_estimate",
        "recipe.budget is None and recipe.max_seconds is None", "False",
        "tests/evaluation/test_measure.py -k paid_once"),
    Mutant("layers write to the constant channel of made models",
        "benchmarks/gpu/made_models.py:_layer", "weight[0] = 0.0", "weight[1] = 0.0",
        "tests/benchmarks/test_check_gpu.py -k constant_channel"),
    Mutant("a row of the GPU check that failed is kept as measured",
        "benchmarks/gpu/report.py:Report.__init__", "'error' not in row", "row",
        "tests/benchmarks/test_check_gpu.py -k failed_row"),
    Mutant("a row of the GPU check runs on when the time is over",
        "benchmarks/gpu/report.py:_limited", "signal.setitimer(signal.ITIMER_REAL, seconds)",
        "signal.setitimer(signal.ITIMER_REAL, 0)",
        "tests/benchmarks/test_check_gpu.py -k longer_than_the_part"),
    Mutant("one example is not enough for Occam's bound", "theory/pac_bayes.py:occam_bound",
        "arguments.count('num_samples', num_samples, 1, 'at least one example is needed')",
        "arguments.count('num_samples', num_samples, 2, 'at least one example is needed')",
        "tests/theory/test_pac_bayes.py -k one_example_on"),
    Mutant("any standard deviation passes", "theory/misranking.py:misranking_bernstein",
        "spread <= np.nextafter(epsilon, np.inf)", "spread < np.inf",
        "tests/theory/test_misranking.py -k at_most_epsilon"),
    Mutant("a standard deviation one rounding above epsilon is refused",
        "theory/misranking.py:misranking_bernstein", "np.nextafter(epsilon, np.inf)", "epsilon",
        "tests/theory/test_misranking.py -k at_most_epsilon"),
    Mutant("two digits of the paper's table are turned round", "theory/paper.py:SPARSITY",
        "PrmSparsity('Math-Shepherd-PRM-7B', 7110000000.0, 0.029, 0.0196, 2.78)",
        "PrmSparsity('Math-Shepherd-PRM-7B', 7110000000.0, 0.029, 0.0196, 2.87)",
        'tests/theory/test_paper.py -k "recorded_one or printed_one"'),
    Mutant("a training split may hold test questions",
        "cats_jax/datasets/layout.py:to_question_set", "layout.check(row)", "pass",
        'tests/datasets/test_datasets.py -k "math12k or math500 or training"'),
    Mutant("half of a character is text", "cats_jax/storage/tables.py:_whole_texts",
        "_with_lone_surrogate(row)", "None",
        "tests/datasets/test_datasets.py -k named_by_file_and_line"),
    Mutant("a start that failed locks its folder", "cats_jax/storage/manifest.py:begin_folder",
        "filled", "True", "tests/runs/test_runs.py -k locked_by_no_manifest"),
    Mutant("rows of an earlier start count as work of this one",
        "cats_jax/commands/time_left.py:TimeLeft.seconds", "part.done - part.before", "part.done",
        "tests/evaluation/test_evaluate.py -k time_left"),
    Mutant("white space hides that a question was trained on",
        "cats_jax/datasets/digests.py:text_digest", "' '.join(text.split())", "text",
        "tests/training/test_training_split.py -k not_asked_what_it_was_taught"),
    Mutant("a controller trained off-line forgets what it was taught",
        "cats_jax/training/train.py:_learned_from", "list(taught.values())", "[]",
        "tests/training/test_training_split.py -k from_trajectories"),
    Mutant("the name of a row leaves a narrow table", "cats_jax/reporting/printing.py:fitting",
        "leaving is None or ranks[leaving] == 0", "leaving is None",
        'tests/reporting/test_sheets.py -k "columns_leave or whole"'),
    Mutant("a bracket of a label is an argument of LaTeX's line break",
        "cats_jax/reporting/sheet_files.py:_escape_latex", "escaped.replace('[', '{[}')", "escaped",
        "tests/reporting/test_sheets.py -k latex"),
    Mutant("rows of one key with other tokens are one row", "cats_jax/runs/merge.py:_check_same",
        "values[0] != values[1]", "values[0] != values[1] and name == 'answer'",
        "tests/runs/test_merge.py -k contradict"),
    Mutant("the tree of a merged row is looked for in the first folder",
        "cats_jax/runs/folder.py:RunFolder.tree", "self.tree_folders.get(row.key, self.folder)",
        "self.folder", "tests/runs/test_merge.py -k share_count_once"),
    Mutant("a configuration is evaluated on the questions it was chosen on",
        "cats_jax/reporting/compute_optimal.py:_choice",
        "[group.by_question()[q] for group, half in parts for q in half.judged_on]",
        "[group.by_question()[q] for group, half in parts for q in half.chosen_on]",
        "tests/reporting/test_compute_optimal.py -k plain_python"),
    Mutant("a mean over some of the paper's N stands beside the paper's",
        "cats_jax/reporting/paper_tables.py:_ablation",
        "None if missing else _mean_by_question(list(there.values()))",
        "None if not there else _mean_by_question(list(there.values()))",
        "tests/reporting/test_paper_tables.py -k not_whole"),
    Mutant("a seed that lacks questions counts in the interval over seeds",
        "cats_jax/reporting/groups.py:Group.accuracy_over_seeds", "found.keys() == questions",
        "found", "tests/evaluation/test_evaluate.py -k seeds"),
    Mutant("a step that occurs again is a sibling of itself", "cats_jax/scoring/quality.py:_paired",
        "agree & first", "first", "tests/scoring/test_prm_quality.py -k occurs_again"),
    Mutant("the bound on a PRM's risk counts steps, not questions",
        "cats_jax/scoring/quality.py:_prm_quality",
        "theory.holdout_bound(risk.value, num_samples=number, delta=_DELTA)",
        "theory.holdout_bound(risk.value, num_samples=question.size, delta=_DELTA)",
        "tests/scoring/test_prm_quality.py -k bounds_are_the_formulas"),
    Mutant("ProcessBench's first wrong step counts as right",
        "cats_jax/scoring/labelled.py:_processbench", "[1] * label + [0]", "[1] * (label + 1)",
        "tests/scoring/test_prm_quality_layouts.py -k processbench"),
    Mutant("an expansion's dtypes are not looked at", "search/shapes.py:_check_fields",
        "chex.assert_type(value, dtype, custom_message=f'{name}.{field}')", "pass",
        "tests/search/test_shapes.py -k named"),
    Mutant("an ablation's row has another discount than the paper's",
        "cats_jax/training/ablations.yaml", "cats.reward.discount=0.7", "cats.reward.discount=0.8",
        "tests/training/test_ablations.py -k paper"),
    Mutant("PPO clips on the wrong side", "learners/losses.py:clipped_loss", "jnp.minimum",
        "jnp.maximum", "tests/learners/test_losses.py -k clipped_loss"),
    Mutant("returns behind a branching are summed, not averaged",
        "learners/returns.py:path_returns.backwards", "sums / divisor[None, :]", "sums",
        "tests/learners/test_returns.py -k loop_over_the_tree"),
    Mutant("a search is its own baseline", "learners/returns.py:mean_of_others",
        "jnp.sum(by_question, axis=1, keepdims=True) - by_question",
        "jnp.sum(by_question, axis=1, keepdims=True)",
        "tests/learners/test_returns.py -k mean_of_others"),
    Mutant("random decisions cost nothing", "cats_jax/controllers/strategies.py:_cats_random",
        "_price(price)", "0.0", "tests/training/test_collect.py -k charged_the_price"),
    Mutant("a controller that sees the calibration is played without one",
        "cats_jax/evaluation/cells.py:grid", "strategy.needs_calibration", "strategy.calibrated",
        "tests/specs/test_calibrations.py -k sees_the_calibration"),
    Mutant("every CATS search is said to see the calibration",
        "search/cats/search.py:_sees",
        "name in features.names and name not in config.excluded_features", "name in features.names",
        "tests/specs/test_calibrations.py -k sees_the_calibration"),
    Mutant("a controller that sees likelihoods is played without them",
        "search/cats/search.py:cats",
        "not config.score_base or _sees(LIKELIHOOD_FEATURES, config, features)",
        "not config.score_base", "tests/live/test_driver.py -k without_log_probabilities"),
    Mutant("an old controller is said to see features that it was trained without",
        "cats_jax/controllers/checkpoint_migration.py:excluding_new_features", "not new",
        "new or not new", "tests/controllers/test_checkpoint.py"),
    Mutant("the questions held out of training are every fifth one",
        "cats_jax/training/questions.py:bank_questions", "np.random.default_rng(0).permutation",
        "np.arange", "tests/training/test_train.py -k held_out"),
    Mutant("a replay charges for copies of a greedy child",
        "cats_jax/evaluation/replay.py:_cost_recorder.record",
        "search.costs.tick_tokens(tick).sampled", "jnp.sum(expansion.num_tokens, dtype=jnp.int32)",
        "tests/evaluation/test_replay.py"),
    Mutant("controllers are trained without the calibration they will see",
        "cats_jax/training/train.py:check_calibration", "calibration is None", "calibration == ''",
        "tests/specs/test_calibrations.py -k training_on_a_bank"),
    Mutant("base children are not paid for", "learners/episodes.py:_in_decisions",
        "ticks.cost.at[:, -1].add(next_base)", "ticks.cost.at[:, -1].add(0 * next_base)",
        "tests/learners/test_returns.py -k counted_once"),
    Mutant("an epoch of PPO leaves out rows", "learners/ppo.py:PPO._step",
        "(index + 1) * rows.num_rows // self.num_minibatches",
        "start + rows.num_rows // self.num_minibatches",
        "tests/learners/test_updates.py -k clipped_update"),
    Mutant("an old checkpoint's A2C forgets Algorithm 1's order",
        "cats_jax/controllers/checkpoint_migration.py:from_format_2",
        "{'name': 'A2C', 'sequential': sequential, **normalize}",
        "{'name': 'A2C', 'sequential': False, **normalize}",
        "tests/controllers/test_checkpoint.py -k reads_format_2"),
    Mutant("siblings share a seed", "cats_jax/live/pending_requests.py:pending_requests",
        "row + offset", "row", "tests/live/test_driver.py -k seeds_differ"),
    Mutant("a dropped question leaves its caches", "cats_jax/live/driver.py:SearchBatch._free",
        "self._expander.keep_only(slot.tree.question, [])", "pass",
        "tests/live/test_growing_cohort.py -k come_later"),
    Mutant("a question with a call in progress is dropped at once",
        "cats_jax/live/driver.py:SearchBatch.drop",
        "[slot for slot in self._open() if slot not in away]", "self._open()",
        "tests/live/test_growing_cohort.py -k call_in_progress"),
    Mutant("samples follow the id of a request", "cats_jax/server/engine.py:Engine._fill_places",
        "searcher.job(ticket.question, SEED_NAME)", "searcher.job(ticket.question)",
        "tests/server/test_server.py -k lives_of_their_own"),
    Mutant("searches with and without a budget share a batch",
        "cats_jax/server/offer.py:Settings.batch", "self.budget is None", "True",
        "tests/server/test_batches.py"),
    Mutant("the search of a client that went away goes on", "cats_jax/server/app.py:_Web.chat",
        "functools.partial(self._engine.drop, ticket)", "lambda: None",
        "tests/server/test_server.py -k goes_away"),
    Mutant("any token opens the server", "cats_jax/server/app.py:_Guard._refusal",
        "kind.lower() == 'bearer' and right", "kind.lower() == 'bearer'",
        "tests/server/test_server.py -k token_is_asked"),
    Mutant("bytes of headers keep a connection for ever",
        "cats_jax/server/connections.py:Connection._end_if_silent", "not self._in_progress",
        "self.cycle is not None and (not self._in_progress)",
        "tests/server/test_connections.py -k seconds_for_its_request"),
    Mutant("silent connections keep others out",
        "cats_jax/server/connections.py:Connections.wait_for_client",
        "next((each for each in self._open if each.is_silent), connection)", "connection",
        "tests/server/test_connections.py -k make_room"),
    Mutant("a reply does not name what it ignores", "cats_jax/server/replies.py:details",
        "list(ignored)", "[]", "tests/server/test_server.py -k names_what_it_ignores"),
    Mutant("a broken score counts as zero", "cats_jax/live/contract.py:_is_score",
        "0.0 <= score <= 1.0", "not score > 1.0", "tests/live/test_driver.py -k bad_score"),
    Mutant("an outcome model is asked for unfinished answers",
        "search/interface.py:scoring_ends.of_ends", "jnp.zeros_like(ends)", "ends",
        "tests/live/test_outcome_search.py -k classifier_prefers"),
    Mutant("a rewrite has no room for its thought", "cats_jax/models/resolve.py:_with_prompts",
        "prompt_tokens + last + thought", "prompt_tokens + last",
        "tests/models/test_engine_settings.py -k gets_the_context"),
    Mutant("rows that share paths forget that the model is an outcome model",
        "cats_jax/live/proxies.py:Proxy.__getattr__",
        "self._model", "None",
        "tests/live/test_outcome_search.py -k shares_its_paths"),
    Mutant("best-of-N by the worst step passes for a reader of finished answers",
        "search/strategy/fixed.py:best_of_n", "path_score != 'last'", "False",
        'tests/live/test_outcome_search.py -k "is_refused and best_of_n"'),
    Mutant("a reward is read at the padding token that ends the chat",
        "cats_jax/models/prm/answer_encoder.py:AnswerEncoder._without_padding",
        "end > 1 and ids[end - 1] == self._padding", "False",
        'tests/models/test_outcome_models.py -k "own_classifier and llama"'),
    Mutant("blanks that the chat template cuts off an answer are read",
        "cats_jax/models/prm/answer_encoder.py:AnswerEncoder.chunks",
        "self._format.between.join(steps).lstrip(left).rstrip(right)",
        "self._format.between.join(steps)",
        'tests/models/test_outcome_models.py -k "own_classifier and mistral"'),
    Mutant("a verdict is read from the middle of a critique",
        "cats_jax/models/prm/verdict.py:WrittenVerdict.read",
        "critique.rstrip().rpartition('\\n')[2]",
        "critique.rstrip().partition('\\n')[0]", "tests/models/test_judge.py -k last_line"),
    Mutant("a step states its own verdict to a judge that repeats it",
        "cats_jax/models/prm/judge_text.py:_fenced", "f'{BAR} {line}'", "line",
        "tests/models/test_judge.py -k only_what_the_judge"),
    Mutant("a critique that was cut has a verdict",
        "cats_jax/models/judge.py:JudgeScorer._score_of", "sample.finish == 'end'", "sample.finish",
        "tests/models/test_judge.py -k count_as_zero"),
    Mutant("a question does not pay for what another search has left",
        "cats_jax/models/judge.py:JudgeScorer.keep_only", "self._paid.pop(question, None)", "pass",
        "tests/models/test_judge.py -k remembered"),
    Mutant("a reward is squashed by the sigmoid",
        "cats_jax/models/huggingface/reward_model.py:RewardModel.scores",
        "bounded if self._head.unbounded else _sigmoid", "_sigmoid",
        'tests/models/test_outcome_models.py -k "own_classifier and qwen"'),
    Mutant("the PRM is asked although a request is not scored",
        "cats_jax/live/new_candidates.py:NewCandidates.add",
        "asked.scored or (asked.score_ends and candidate.done)", "True",
        "tests/live/test_driver.py -k request_says_so"),
    Mutant("the price does not reach the strategy", "cats_jax/live/searcher.py:_context",
        "search.Context(price, *sparsity, values, prm_token_cost)",
        "search.Context(0.0, *sparsity, values, prm_token_cost)",
        "tests/live/test_driver.py -k price_and_rate"),
    Mutant("paths are shared whatever a strategy says of them",
        "cats_jax/evaluation/cells.py:pool_name",
        "not strategy.keeps_all_paths or strategy.width(256) != 256",
        "strategy.name not in ('majority', 'best_of_n', 'best_of_n_weighted')",
        "tests/evaluation/test_own_strategies.py -k shares_them"),
    Mutant("a strategy that ignores N runs for every N", "cats_jax/evaluation/cells.py:grid",
        "strategy.ignores_num_candidates", "strategy.name == 'greedy'",
        "tests/evaluation/test_own_strategies.py -k ignores_n"),
    Mutant("the thread that writes dies in silence", "cats_jax/runs/appender.py:Appender._run",
        "Exception", "OSError", "tests/runs/test_runs.py -k lost_in_silence"),
    Mutant("a replay's ceiling is its accuracy",
        "cats_jax/evaluation/replay.py:_search_blocks.block", "jnp.any(right, axis=1)", "correct",
        "tests/evaluation/test_replay.py -k tick_by_tick"),
    Mutant("every tick of a replay begins with the same draws", "search/bank/expansion.py:expand",
        "request.used + sibling", "sibling", "tests/search/test_bank.py -k go_on_with_the_draws"),
    Mutant("a lost block of a bank ends it", "cats_jax/bank/store.py:_num_blocks",
        "if missing: ...", "if False: ...", "tests/bank/test_bank.py -k lost_is_collected"),
    Mutant("a PRM is asked for paths whose beginning it can't read", "cats_jax/bank/score.py:score",
        "tree.readable(tree.nodes.parent[row], column)", "True",
        "tests/bank/test_stages.py -k not_asked_for"),
    Mutant("the policy stays in memory while its bank is scored",
        "cats_jax/bank/build.py:_Collection.finish", "self._grow(grader, ()); _release_models()",
        "self._grow(grader, ())", "tests/bank/test_stages.py -k one_model_is_in_memory"),
    Mutant("a recipe that lacks a PRM goes on with a bank",
        "cats_jax/bank/build.py:_with_added_prms", "after[:len(before)] != before",
        "not set(after) & set(before)", "tests/bank/test_stages.py -k prms_of_a_bank_stay"),
    Mutant("scores stay when their trees are sampled again", "cats_jax/bank/store.py:write_block",
        "path.unlink()", "pass", "tests/bank/test_stages.py -k trees_that_are_lost"),
    Mutant("ranks start at one", "search/ranking.py:segment_ranks",
        "reduce_rows(jnp.sum, (better | tie) & rival)",
        "reduce_rows(jnp.sum, (better | tie) & rival) + 1",
        'tests/search/test_parts.py -k "segment_ranks or retain or prune"'),
    Mutant("ranking ties go to the higher row", "search/ranking.py:segment_ranks",
        "rows[None, :] < rows[:, None]", "rows[None, :] > rows[:, None]",
        'tests/search/test_parts.py -k "segment_ranks or retain or prune"'),
    Mutant("one candidate over the limit", "search/allocation.py:allocate",
        "available - served_before", "available + 1 - served_before",
        "tests/search/test_parts.py -k allocate"),
    Mutant("allocation ties go to the higher slot", "search/allocation.py:allocate",
        "rows[None, :] < rows[:, None]", "rows[None, :] > rows[:, None]",
        "tests/search/test_parts.py -k allocate"),
    Mutant("a path without answer has a vote", "search/selection.py:weighted_vote",
        "valid & (answer >= 0)", "valid", "tests/search/test_parts.py -k votes"),
    Mutant("the cost is not normalised by N", "search/cats/reward.py:step_reward",
        "num_extra.astype(jnp.float32) / num_candidates.astype(jnp.float32)",
        "num_extra.astype(jnp.float32)", "tests/search/test_parts.py -k reward"),
    Mutant("zeros make products incomparable", "search/aggregations.py:log_product",
        "jnp.maximum(step_scores, smallest)", "step_scores",
        'tests/search/test_parts.py -k "products or tenth or gradient"'),
    Mutant("a negative wish takes from others", "search/allocation.py:allocate",
        "jnp.maximum(wanted, 0)", "wanted", "tests/search/test_parts.py -k allocate"),
    Mutant("paths without a child pass for kept", "search/strategy_contract.py:_watch",
        "jnp.all(granted | ~tick.before.frontier.valid)",
        "jnp.any(granted | ~tick.before.frontier.valid)",
        "tests/search/test_check_strategy.py -k child"),
    Mutant("a capacity below the size", "search/state.py:capacity_for", "capacity >= size",
        "2 * capacity >= size", "tests/search/test_parts.py -k capacity"),
    Mutant("the budget does not limit a step", "search/state.py:candidates_left",
        "jnp.minimum(state.num_candidates - state.used, state.budget - state.spent)",
        "state.num_candidates - state.used", _loop("beam")),
    Mutant("a later step repeats the draws of an earlier one", "search/step.py:plan",
        "wanted.used + strategy.earlier_draws(state)",
        "wanted.used + 0 * strategy.earlier_draws(state)",
        "tests/search/test_own_strategies.py -k keeps_the_contract"),
    Mutant("products that round to 0 have no vote", "search/aggregations.py:relative_scores",
        "aggregation.key is log_product", "False", _parts("underflow")),
    Mutant("finished paths take no place", "search/step.py:_end_step",
        "state.width - count(state.finished)", "state.width",
        "tests/search/test_loop.py -k keep_their_places"),
    Mutant("the last step is not sampled to its end", "search/interface.py:request",
        "state.max_depth - 1", "state.max_depth", _loop("beam")),
    Mutant("subtrees of unequal size", "search/step.py:_append_children",
        "rows * state.width // state.num_candidates", "rows % state.width", _loop("dvts")),
    Mutant("equal siblings compete with each other", "search/ranking.py:first_of_equal",
        "pool.valid & ~jnp.any(earlier, axis=1)", "pool.valid",
        "tests/search/test_beams.py -k distinct_steps"),
    Mutant("VG-Search does not score paths that end between two verifications",
        "search/strategy/vg_search.py:vg_search.plan",
        "request(state, number, sampling, scored=asks, score_ends=True)",
        "request(state, number, sampling, scored=asks)",
        "tests/search/test_beams.py -k between_two_verifications"),
    Mutant("a step that VG-Search has not verified counts with a score of 0",
        "search/strategy/vg_search.py:vg_search.keep", "with_newest_scores(pool, unseen, before)",
        "pool", _loop("vg_search")),
    Mutant("a rollout at the largest depth is not scored",
        "search/strategy/lookahead.py:lookahead.plan",
        "request(state, 1, greedy, scored=(left == 1) | at_end, score_ends=True)",
        "request(state, 1, greedy, scored=left == 1)",
        "tests/search/test_beams.py -k look_ahead_search_is"),
    Mutant("candidates wait on when the budget is spent",
        "search/strategy/lookahead.py:lookahead.keep",
        "~jnp.any(rolls) | (state.spent >= state.budget)", "~jnp.any(rolls)",
        "tests/search/test_beams.py -k spent_budget"),
    Mutant("a simulation without an answer leaves no trace in the tree",
        "search/strategy/global_mcts.py:_observe",
        "(under_way | is_new) & (at(goes_on, 1.0) == 0.0)", "at(pool.valid & pool.done, 1.0) > 0.0",
        _loop("global_mcts")),
    Mutant("a leaf is compared by its own visits alone", "search/strategy/global_mcts.py:choose",
        "visits[tree.paths.parent]", "visits",
        "tests/search/test_global_mcts.py -k whole_tree"),
    Mutant("a stopper pays for the paths before its decision, too", "learners/stopping.py:_episode",
        "stops_at + 1 - begun", "stops_at + 1", "tests/learners/test_stopping.py -k return_of"),
    Mutant("a search goes on after its stopper has ended it",
        "search/strategy/path_by_path.py:path_by_path.keep", "goes_on & ~stopped", "goes_on",
        _loop("learned_stopping")),
    Mutant("a node of LiteSearch at any depth gets the children of one at the root",
        "search/strategy/litesearch.py:num_children", "(enough // depth, 2 * (enough % depth))",
        "(enough, 0 * depth)", "tests/search/test_litesearch.py -k number_of_children"),
    Mutant("LiteSearch goes on although its best node is a solution",
        "search/strategy/litesearch.py:_keep", "tree.is_open | is_leaf", "tree.is_open",
        "tests/search/test_litesearch.py -k what_ends"),
    Mutant("a solution of LiteSearch must be better than the greedy one",
        "search/strategy/litesearch.py:_keep", "tree.greedy_value - _SLACK",
        "tree.greedy_value", "tests/search/test_litesearch.py -k what_ends"),
    Mutant("the discount is not zeroed at the end", "search/cats/transitions.py:_end",
        "nothing", "nothing + 1.0", _loop("cats_one_round")),
    Mutant("pending decisions stay in their slots", "search/cats/transitions.py:_inherit",
        "take(held, after.frontier.parent)", "held", _loop("cats_one_round")),
    Mutant("a closed node decides again", "search/cats/search.py:_make_plan.plan",
        "state.frontier.valid & state.memory.is_open", "state.frontier.valid",
        _loop("cats_three_rounds")),
    Mutant("a tick after the end changes the state", "search/step.py:commit",
        "select(active, after, state)", "after",
        'tests/search/test_invariants.py -k "after_the_end and beam"'),
    Mutant("paths that the end of the search cuts do not count as ended",
        "search/step.py:_end_step", "finishes | grows & is_terminal(stepped)", "finishes",
        _loop("beam")),
    Mutant("scores nobody asked for are used", "search/step.py:_append_children",
        "jnp.where(scored, child.score, 0.0)", "child.score",
        "tests/search/test_own_strategies.py -k not_scored"),
    Mutant("a batch whose searches have all ended goes on", "search/loop.py:play.step_unless_ended",
        "jnp.all(jax.vmap(is_terminal)(carry[0]))", "jnp.bool_(False)",
        'tests/search/test_play.py -k "expands_nothing and beam"'),
    Mutant("a batch ends with the first of its searches", "search/loop.py:play.step_unless_ended",
        "jnp.all", "jnp.any", 'tests/search/test_play.py -k "batch_is_its_searches and beam"'),
    Mutant("the guard against shadowing never runs", "cats_jax/__init__.py", "_check_neighbours()",
        "pass", "tests/repository/test_repository.py -k guard"),
    Mutant("a skipped test passes in CI", "tests/conftest.py:_NoSkips.pytest_sessionfinish",
        "session.exitstatus = pytest.ExitCode.TESTS_FAILED", "pass",
        "tests/repository/test_repository.py -k skip_fails_in_ci"),
    Mutant("a step's text can make special tokens",
        "cats_jax/models/prompts/chat_template.py:ChatTemplate.encode",
        "self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)",
        "self._tokenizer(text, add_special_tokens=False)",
        "tests/models/test_prm_format.py -k appended_tag"),
    Mutant("white space before a step reaches a PRM that reads turns",
        "cats_jax/models/prm/encoder.py:StepEncoder._step_text", "step.strip", "step.rstrip",
        "tests/models/test_prm_families.py -k white_space_around"),
    Mutant("one call that hangs ends the run",
        "cats_jax/models/serving/http_engine.py:ServerClient._post",
        "state.attempt_number >= _TRIES and failed_at[-1] - failed_at[0] >= self._patience",
        "state.attempt_number >= 1", "tests/models/test_http_engine.py -k hangs_longer"),
    Mutant("a refusal in a reply with status 200 is a broken reply",
        "cats_jax/models/serving/chat_endpoint.py:_error_in", "not 400 <= code < 600", "True",
        "tests/models/test_chat.py -k with_status_200"),
    Mutant("a replay of a step bank is certified",
        "cats_jax/reporting/certificate_premises.py:check_premises",
        "(manifest.get('models') or {}).get('bank') is not None", "False",
        "tests/reporting/test_certified_configurations.py -k can_not_certify"),
    Mutant("a stop is compared with the path that was sampled first",
        "theory/stopping.py:certify_stopping",
        "best if whole is None else arguments.answers('whole', whole) == 1", "best",
        "tests/theory/test_stopping.py -k verdicts_of_the_whole"),
    Mutant("a skipped round cuts the returns",
        "cats_jax/training/online_searches.py:_with_skipped",
        "still.replace(source=same, holds=found[-1].holds)", "still",
        "tests/training/test_online.py -k paper-reward-in-rounds"),
    Mutant("a missing tensor is overlooked", "cats_jax/models/stored_model.py:check_complete",
        "not foreign", "foreign", "tests/models/test_stored_model.py -k missing_tensor"),
    Mutant("a label's odds against itself", "cats_jax/models/serving/vllm_head.py:_log_odds",
        "index != label", "index == label", "tests/models/test_engine_overrides.py -k log_odds"),
    Mutant("what is computed again for lack of room is charged",
        "cats_jax/models/huggingface/scorer.py:HuggingFaceScorer._paths", "not each.computed",
        "each.slots is None", 'tests/models/test_kv_memory.py -k "score_and_no_usage and 130"'),
    Mutant("a call begins with any question, resident or not",
        "cats_jax/models/huggingface/prefix_cache.py:PrefixCache._parts",
        "num_missing(ends[i:i + 1])", "0", "tests/models/test_prefix_cache.py -k begins_with"),
    Mutant("a wave puts all other questions aside",
        "cats_jax/models/huggingface/prefix_cache.py:PrefixCache._make_room",
        "if self._room(wanted) >= wanted: return", "pass",
        "tests/models/test_prefix_cache.py -k only_as_many"),
    Mutant("a score's last bit depends on its place in the batch",
        "cats_jax/models/huggingface/reward_model.py:RewardModel.scores",
        "[_sigmoid(x) for x in (pair[:, 0] - pair[:, 1]).tolist()]",
        "(pair[:, 0] - pair[:, 1]).sigmoid().tolist()",
        "tests/models/test_huggingface.py -k last_bit"),
    Mutant("pieces of a sentencepiece model merge by id",
        "cats_jax/models/huggingface/tokenizer.py:_merge_by_score", "-score[''.join(pair)]", "0",
        "tests/real/test_tokenizers.py -k converted_sentencepiece"),
    Mutant("blank lines before a step are part of its text",
        "cats_jax/models/prompts/step_text.py:StepText._cut", "text = self._begin(text)", "pass",
        "tests/models/test_step_text.py"),
    Mutant("what a closing token says behind the separator is lost",
        "cats_jax/models/prompts/step_text.py:StepText.rest",
        "closing is not None and closing[1] > 0", "closing is None",
        "tests/models/test_step_text.py -k real_text"),
    Mutant("a sample that an engine has stopped too early does not go on",
        "cats_jax/models/serving/step_samples.py:_drawn",
        "if not sampled.stopped or len(ids) >= request.max_tokens: finish = 'length'",
        "finish = 'length'", "tests/models/test_engine_generator.py -k same_steps"),
    Mutant("the value head's last bits depend on the batch",
        "cats_jax/models/huggingface/reward_model.py:_BackboneWithHead.forward",
        "torch.stack([(hidden * row).sum(-1) for row in self.last.weight.unbind()], -1)",
        "torch.nn.functional.linear(hidden, self.last.weight)",
        'tests/models/test_prm_families.py -k "keep_their_contract and skywork"'),
    Mutant("an adapter's rank is taken for its root", "cats_jax/models/adapter.py:Adapter._part",
        "math.sqrt(rank) if self._config.get('use_rslora') else rank", "rank",
        "tests/models/test_adapter.py -k single_layers"),
    Mutant("a torn copy of a merged model is read", "cats_jax/models/merged_folder.py:_is_whole",
        "(folder / name).stat().st_size == size", "(folder / name).is_file() or size",
        "tests/models/test_adapter.py -k torn_one"),
    Mutant("weights are compared with a rounded threshold",
        "cats_jax/models/prm/sparsity.py:_num_small", "np.float64(THRESHOLD)", "THRESHOLD",
        "tests/models/test_prm_sparsity.py -k stored_bits"),
    Mutant("convert runs what a pickle asks for", "cats_jax/models/prm/convert_worker.py:_load",
        "torch.load(file, map_location='cpu', mmap=True, weights_only=True)",
        "torch.load(file, map_location='cpu', mmap=True, weights_only=False)",
        "tests/models/test_convert.py -k malicious"),
    Mutant("convert has no limit on memory", "cats_jax/models/prm/convert_worker.py:_limit_memory",
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))", "pass",
        "tests/models/test_convert.py -k memory_is_limited"),
    Mutant("one broken score costs the whole file", "cats_jax/scoring/score_rows.py:_score",
        "len(tasks) == 1", "True", "tests/scoring/test_score.py -k its_own_row_only"),
    Mutant("the paper's bound is taken at n in place of n - 1", "theory/pac_bayes.py:_gap", "n - 1",
        "n", 'tests/theory/test_pac_bayes.py -k "test_figures or test_gap_bounds"'),
    Mutant("at a gap of 2 epsilon nothing can be mis-ranked", "theory/misranking.py:_on_support",
        "gap / 2 > epsilon", "gap / 2 >= epsilon",
        "tests/theory/test_misranking.py -k tie_at_two_epsilon"),
    Mutant("a negative denominator gives a number", "theory/budget.py:required_coverage",
        "bracket > 0", "bracket != 0", "tests/theory/test_budget.py -k negative_denominator"),
    Mutant("a certificate holds for another policy", "cats_jax/specs/certificates.py:broken_terms",
        "('policy', 'prm', 'controller')", "('prm', 'controller')",
        "tests/evaluation/test_guarantees.py -k known_by_their_files"),
    Mutant("a server compares a format that is not resolved", "cats_jax/server/offer.py:Offer.load",
        "resolve_format(self.recipe.policy)", "self.recipe.policy",
        "tests/evaluation/test_guarantees.py -k format_is_auto"),
    Mutant("a certificate holds for another tokenizer",
        "cats_jax/specs/certificates.py:_other_asking", "files.get(name) != others.get(name)",
        "name not in {*files, *others}",
        "tests/evaluation/test_guarantees.py -k tokenizers_formats"),
    Mutant("a certificate holds for other prompts of rewrites",
        "cats_jax/specs/certificates.py:terms", "f'rewriting {strategy}'", "'rewriting'",
        "tests/evaluation/test_guarantees.py -k prompts_of_rewrites"),
    Mutant("a certificate holds for other prompts of comparisons",
        "cats_jax/specs/certificates.py:terms", "f'comparison {strategy}'", "'comparison'",
        "tests/evaluation/test_guarantees.py -k prompts_of_rewrites"),
    Mutant("a server compares no prompts of rewrites", "cats_jax/server/offer.py:Offer.load",
        "asked_of(recipe) | asked_prompts(cells)", "asked_of(recipe)",
        "tests/evaluation/test_guarantees.py -k prompts_of_rewrites"),
    Mutant("a certified strategy is certified again by what chose it",
        "cats_jax/evaluation/evaluate.py:_spent", "text in recipe.chosen_on",
        "text in recipe.fitted_on", "tests/evaluation/test_guarantees.py -k certify_again"),
    Mutant("a failed search needs a tree", "cats_jax/reporting/selective_answers.py:_test",
        "row.tree is None and row.answer is not None", "row.tree is None",
        "tests/reporting/test_selective_answers.py -k failed_search"),
    Mutant("the speed of a machine is certified",
        "cats_jax/reporting/certificate_premises.py:check_premises",
        "(seconds := manifest['config'].get('max_seconds')) is not None",
        "(seconds := manifest['config'].get('max_seconds')) == 0",
        "tests/reporting/test_certified_configurations.py -k can_not_certify"),
    Mutant("a certificate says which server gets the question",
        "cats_jax/commands/solve_recipe.py:_certified_models", "key not in changed",
        "key not in model", "tests/commands/test_solve.py -k where_questions_go"),
    Mutant("a divergence pushes weights away from the prior",
        "studies/world/results/linear_heads.py:gibbs_bound",
        "by_risk * slope + (w - prior) / (deviation ** 2 * number * steep)",
        "by_risk * slope - (w - prior) / (deviation ** 2 * number * steep)",
        "tests/study/test_linear_heads.py -k least_over_means"),
    Mutant("a claim is settled at the level of one look", "theory/sequential.py:_first",
        "above >= needed", "above >= needed / 2", "tests/theory/test_sequential.py"),
    Mutant("questions are looked at as the file has them",
        "cats_jax/evaluation/until_certified.py:in_order", "sorted(questions, key=place)",
        "list(questions)", "tests/evaluation/test_until_certified.py -k order"),
    Mutant("a run that its results ended is certified by a fixed test",
        "cats_jax/reporting/certificate_premises.py:check_rows",
        "run.manifest.get('until_certified') is not None", "False",
        "tests/evaluation/test_until_certified.py -k another_claim"),
    Mutant("a merged run forgets what another run's calibration was fitted on",
        "cats_jax/runs/merge.py:_premises",
        "max(*counts, sum((text in known for text in found.get('texts', ()))))", "max(counts)",
        "tests/runs/test_merge.py -k premises"),
    Mutant("three bounds on costs have the level of one",
        "cats_jax/reporting/cost_bounds.py:_NUM_COSTS", "3", "1",
        "tests/reporting/test_cost_bounds.py -k limits_are"),
    Mutant("a rescored run is certified",
        "cats_jax/reporting/certificate_premises.py:check_premises",
        "(rescored := manifest['config'].get('rescored')) is not None", "(rescored := None)",
        "tests/reporting/test_certified_configurations.py -k can_not_certify"),
    Mutant("an answer below the certified threshold is given",
        "cats_jax/live/abstention.py:decided", "score >= threshold", "score <= threshold",
        "tests/reporting/test_selective_answers.py -k below_the_threshold"),
    Mutant("a threshold keeps the level of one that was not certified",
        "theory/testing.py:_fall_back", "carried = 0.0", "pass",
        "tests/reporting/test_selective_answers.py -k fallback"),
    Mutant("p_N that rounds to 1 certifies what it can't", "theory/budget.py:_PaperClaim.certifies",
        "possible & (any_of(self.p1, n) * bracket >= self.target * (1 - _ROUNDING))",
        "any_of(self.p1, n) * bracket >= self.target * (1 - _ROUNDING)",
        "tests/theory/test_budget.py -k budgets_at_the_ends"),
    Mutant("the margin bound goes on below gap = epsilon", "theory/accuracy.py:win_probability",
        "gap > epsilon", "gap >= 0", "tests/theory/test_accuracy.py -k paper_and_margin"),
    Mutant("a density passes for a probability", "theory/_arguments.py:nonnegative", "array >= 0",
        "array > -np.inf", "tests/theory/test_arguments.py -k neg_log_prior"),
    Mutant("no counterexample counts as a proof", "theory/checks/report.py:judge",
        "Verdict.HOLDS if proof else Verdict.OPEN", "Verdict.HOLDS",
        "tests/theory/test_checks.py -k verdict_is_what_was_found"),
    Mutant("sampling noise refutes a claim", "theory/checks/report.py:judge",
        "high[worst] < -_ROUNDING", "value[worst] < -_ROUNDING",
        "tests/theory/test_checks.py -k beyond_its_interval"),
    Mutant("epsilon's upper end is one order statistic too low",
        "theory/estimators/quantities.py:estimate_epsilon",
        "int(np.searchsorted(below, 1.0 - tail)) + 1", "int(np.searchsorted(below, 1.0 - tail))",
        "tests/theory/test_estimators.py -k epsilon_holds_for_any_law"),
    Mutant("a path with the same answer counts as a rival",
        "cats_jax/reporting/certificates.py:observed_gap", "not grader.equivalent(answer, best)",
        "answer != best", "tests/reporting/test_certificates.py -k lead_is_over_other_answers"),
    Mutant("epsilon is taken from the questions it certifies",
        "cats_jax/reporting/certificates.py:check_held_out", "if shared: ...", "if False: ...",
        "tests/reporting/test_certificates.py -k other_questions"),
    Mutant("epsilon is taken from another PRM of the same label",
        "cats_jax/reporting/certificates.py:check_held_out",
        "clashing_label(*both)", "None",
        "tests/reporting/test_certificates.py -k same_setting"),
    Mutant("a certificate's certificate loses its threshold",
        "cats_jax/specs/certificates.py:read_certificate",
        "[chosen['threshold'], earlier['threshold']]", "[chosen['threshold']]",
        "tests/evaluation/test_guarantees.py -k spent_questions"),
    Mutant("the pilot is free whatever is chosen",
        "cats_jax/reporting/frontier/difficulty.py:ByDifficulty._column",
        "max if shares[index] else operator.add", "max",
        "tests/reporting/test_frontier.py -k plain_python"),
    Mutant("a prompt may open a thought that no format knows",
        "cats_jax/models/huggingface/thoughts.py:check_closed",
        "end.endswith(opening.lower())", "False",
        "tests/models/test_thinking.py -k open_or_close"),
    Mutant("a heading with text below it is an answer",
        "cats_jax/grading/extraction.py:hash_answer",
        "value.startswith(('$', '\\\\(')) and _CASE.search(value) and text[match.end():].strip()",
        "False",
        "tests/grading/test_parts.py -k final_answers"),
    Mutant("a PRM's context cuts the paths of a search without a PRM",
        "cats_jax/bank/layout.py:without_prm", "jnp.where(refused & ~lacks_draws, 0.0, score)",
        "score", "tests/bank/test_stages.py -k column_is_added"),
    Mutant("steps that share a cache cost less than nothing",
        "cats_jax/bank/score.py:ScoredTree.set_score",
        "each.computed + each.cached - prompt", "each.computed",
        "tests/bank/test_stages.py -k cache_that_holds"),
    Mutant("at a limit the first answer wins", "cats_jax/live/comparisons.py:Comparisons.add",
        "self._by_known(compared)", "result",
        "tests/live/test_llama_berry.py -k at_a_limit"),
    Mutant("a number's base is ignored", "cats_jax/grading/plain_numbers.py:_based",
        "BasedNumber(match[1].strip('+') + (digits.lstrip('0') or '0'), base)",
        "BasedNumber(match[1].strip('+') + (digits.lstrip('0') or '0'), 0)",
        "tests/grading/test_parts.py -k plain_numbers"),
    Mutant("words behind a value never change it", "cats_jax/grading/units.py:_is_remark",
        "_NUMBER_WORDS.isdisjoint(map(str.lower, found))", "True",
        "tests/grading/test_grading.py -k labelled_pairs"),
    Mutant("a time is a ratio", "cats_jax/grading/comparison.py:_compare_one",
        "is_time(first) and is_time(second)", "False",
        "tests/grading/test_grading.py -k labelled_pairs"),
    Mutant("brackets do not count", "cats_jax/grading/structure.py:structure",
        "brackets[text[0] + text[-1]]", "'()'", "tests/grading/test_parts.py -k structures"),
    Mutant("numbers that intervals can't tell apart are equal",
        "cats_jax/grading/exact_numbers.py:is_zero",
        "number.upper * (degree - 1) + number.lower if degree > 1 else number.lower", "32.0",
        "tests/grading/test_grading.py -k labelled_pairs"),
    Mutant("numbers in a relation are compared by rounding",
        "cats_jax/grading/comparison.py:_close", "abs(a - b) <= _CLOSE * max(1.0, abs(a), abs(b))",
        "abs(a - b) < 0", "tests/grading/test_grading.py -k labelled_pairs"),
    Mutant("a thought ends with its step", "cats_jax/grading/thinking.py:outside_thinking",
        "parts, start = ([], 0)", "parts, start, closing = ([], 0, None)",
        "tests/grading/test_parts.py -k thinking"),
    Mutant("a comparison has no limit of CPU time", "cats_jax/grading/worker.py:main",
        "signal.setitimer(signal.ITIMER_PROF, seconds)", "signal.setitimer(signal.ITIMER_PROF, 0)",
        "tests/grading/test_grading.py -k error_of_its_pair"),
    Mutant("votes compare every two answers", "cats_jax/grading/math_grader.py:_Decider.__call__",
        "_APART * size", "1e+300 * size", "tests/grading/test_grading.py -k far_fewer"),
    Mutant("a data set's tolerance is forgotten", "cats_jax/grading/graders.py:grade_answer",
        "grader.grade_answer(answer, gold, tolerance)", "grader.grade_answer(answer, gold)",
        "tests/evaluation/test_evaluate.py -k tolerance_is_kept"),
    Mutant("a node without a valid child gives up",
        "search/cats/search.py:_make_plan.plan", "jnp.where(is_open, chosen.num_extra, 0)",
        "jnp.where(deciding, chosen.num_extra, 0)", "tests/live/test_driver.py -k greedy_child"),
    Mutant("a path that dies without a decision leaves no transition",
        "search/cats/transitions.py:_continue", "decided | dies", "decided",
        "tests/training/test_collect.py -k those_of_the_core"),
    Mutant("a candidate that the PRM can't read fails its question",
        "cats_jax/live/new_candidates.py:NewCandidates.write", "candidate.invalid is not None",
        "False", 'tests/live/test_driver.py -k "fifteen_paths or dropped_alone"'),
    Mutant("paths that a PRM could not read are a basis for another PRM",
        "cats_jax/evaluation/shared_paths.py:SharedPaths.share.end",
        "result.status in ('answered', 'no_answer') and (not result.ledger.prm_refused)",
        "result.status in ('answered', 'no_answer')",
        "tests/evaluation/test_shared_paths.py -k one_prm_cannot"),
    Mutant("a folder without rows keeps the paths of another run",
        "cats_jax/runs/folder.py:RunWriter._repair", "if not kept: ...", "if False: ...",
        "tests/evaluation/test_shared_paths.py -k folder_without_rows"),
    Mutant("rows come to the disk before the paths that they share",
        "cats_jax/runs/appender.py:Appender._write", "durable.sync(self._folder / PATHS)", "None",
        "tests/evaluation/test_shared_paths.py -k before_the_rows"),
    Mutant("the name of a new file of paths is not on the disk",
        "cats_jax/evaluation/paths_file.py:PathsFile.__init__",
        "durable.sync_folder(path.parent)", "None",
        "tests/evaluation/test_shared_paths.py -k before_the_rows"),
    Mutant("fewer paths than a row reads are taken from the store",
        "cats_jax/evaluation/paths_file.py:PathsFile.load", "found is None or found[0] < paths",
        "found is None", "tests/evaluation/test_stored_paths.py -k samples_are_read"),
    Mutant("rows whose search would differ are rescored", "cats_jax/evaluation/rescore.py:_why_not",
        "change.of_scores and (not strategy.keeps_all_paths)",
        "False and (not strategy.keeps_all_paths)",
        'tests/evaluation/test_rescore.py -k "aggregation and last"'),
    Mutant("an engine's context has no room for the first step",
        "cats_jax/models/resolve.py:_with_prompts", "max_depth - 1", "max_depth - 2",
        "tests/models/test_engine_settings.py -k context_that_the_run_needs"),
    Mutant("every engine is put on the first GPU",
        "cats_jax/models/serving/vllm_engine.py:engine_arguments", "gpu_numbers(settings)",
        "range(settings.tensor_parallel_size or 1)",
        "tests/models/test_engine_settings.py -k over_several_gpus"),
    Mutant("the manifest does not say which backend auto took",
        "cats_jax/evaluation/cells.py:resolved_recipe",
        "dataclasses.replace(recipe, policy=policy, prms=prms)",
        "dataclasses.replace(recipe, prms=prms)",
        "tests/models/test_engine_settings.py -k what_was_taken"),
    Mutant("an iteration that a kill cut short keeps its line of the curves",
        "cats_jax/training/online_state.py:TrainingProgress.__init__",
        "_lines(folder / CURVES)[:self.iteration]", "_lines(folder / CURVES)",
        "tests/training/test_online.py -k goes_on_as_if"),
    Mutant("on-line, all searches of a batch have the key of the first",
        "cats_jax/training/online_searches.py:OnlineSearches._asked", "data[row]", "data[0]",
        'tests/training/test_online.py -k "in_the_graph and paper and not gae"'),
    Mutant("a question is learned from although one of its searches failed",
        "cats_jax/training/online_searches.py:OnlineSearches._played",
        "any((each.status == 'failed' for each in group))", "result.status == 'failed'",
        "tests/training/test_online.py -k takes_its_question_along"),
    Mutant("the page's policy lets any inline script run",
        "cats_jax/page/assets.py:content_security_policy",
        "' '.join((_digest(script) for script in assets.scripts))", '"\'unsafe-inline\'"',
        "tests/page/test_page.py -k policy"),
    Mutant("trees of a merged page are those of the first folder",
        "cats_jax/page/build.py:write_page", "run.tree(row)", "runs[0].tree(row)",
        "tests/page/test_page.py -k own_folder"),
    Mutant("data of a page are plain text", "cats_jax/page/blocks.py:_element",
        'f\'<script type="{BLOCK_TYPE}" id="{name}">{packed}</script>\\n\'',
        'f\'<script type="{BLOCK_TYPE}" id="{name}">{text}</script>\\n\'',
        "tests/page/test_page.py -k markup"),
    Mutant("an equal column of a tree loses its first value", "cats_jax/page/trees.py:_column",
        "column[0] if len(column) > 1 and all((x == column[0] for x in column)) else column",
        "0 if len(column) > 1 and all((x == column[0] for x in column)) else column",
        "tests/page/test_page.py -k read_back"),
)
# fmt: on


class BrokenListError(Exception):
    """The list of mutants does not fit the tree."""


def main(texts: Sequence[str]) -> int:
    """Try every mutant that is meant, print a line for each, return the exit code."""
    console = rich.console.Console(highlight=False)
    meant = [
        mutant
        for mutant in MUTANTS
        if not texts or any(text in f"{mutant.name} {mutant.where}" for text in texts)
    ]
    if not meant:
        console.print(f"[red]error:[/] no mutant has {' or '.join(texts)} in its name or file")
        return 2
    survivors = 0
    try:
        for mutant in meant:  # all texts first: a wrong one should not cost a test run
            mutated_text(mutant)
        with _Trees(min(os.cpu_count() or 1, len(meant))) as trees:
            for _ in trees.each(trees.expect_pass, _unmutated(meant)):
                pass
            console.print("the tests pass unmutated")
            for mutant, caught in zip(meant, trees.each(trees.is_caught, meant), strict=True):
                survivors += not caught
                result = "[green]caught[/]" if caught else "[bold red]SURVIVED[/]"
                console.print(f"{result} {mutant.name} ({mutant.where})", soft_wrap=True)
    except BrokenListError as error:
        console.print("[red]error:[/]", rich.markup.escape(str(error)))
        return 2
    console.print(f"{len(meant) - survivors} of {len(meant)} mutants caught")
    return 1 if survivors else 0


def mutated_text(mutant: Mutant) -> str:
    """The file of a mutant after its edit; BrokenListError if it does not fit."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    if not mutant.file.endswith(".py"):
        _check_once(mutant, text.count(mutant.original))
        return text.replace(mutant.original, mutant.mutated)
    tree = ast.parse(text)
    scope: ast.AST = tree
    for name in filter(None, mutant.where.partition(":")[2].split(".")):
        found = (node for node in ast.walk(scope) if _name(node) == name and node is not scope)
        if (scope := next(found, scope)) is tree:
            raise BrokenListError(f"mutant {mutant.name!r}: {mutant.where} does not exist")
    old, new = ast.parse(mutant.original).body, ast.parse(mutant.mutated).body
    if all(len(each) == 1 and isinstance(each[0], ast.Expr) for each in (old, new)):
        old, new = ([each[0].value] for each in (old, new))  # type: ignore[attr-defined]
    places = list(_places(scope, old))
    _check_once(mutant, len(places))
    node, field, start = places[0]
    value = getattr(node, field)
    if not isinstance(value, list):
        setattr(node, field, new[0])
    else:
        value[start : start + len(old)] = [_with_body(each, value[start]) for each in new]
    return ast.unparse(tree)


def _check_once(mutant: Mutant, count: int) -> None:
    if count != 1:
        raise BrokenListError(
            f"mutant {mutant.name!r}: {mutant.original!r} occurs {count} times in {mutant.where}, "
            "not once"
        )


def _name(node: ast.AST) -> str | None:
    """The name that a definition or an assignment of one name gives."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return getattr(node, "name", None) or getattr(target, "id", None)


def _places(scope: ast.AST, old: Sequence[ast.AST]) -> Iterator[tuple[ast.AST, str, int]]:
    """Nodes, their fields, and the places in a list where nodes equal to `old` are."""
    for node in ast.walk(scope):
        for field, value in ast.iter_fields(node):
            items = value if isinstance(value, list) else [value]
            for start in range(len(items) - len(old) + 1):
                if all(map(_equal, old, items[start : start + len(old)])):
                    yield node, field, start


def _equal(old: ast.AST, node: Any) -> bool:
    return type(old) is type(node) and ast.dump(_with_body(old, node)) == ast.dump(node)


def _with_body(pattern: Any, node: Any) -> Any:
    """A statement with the body of another one if its own is `...`."""
    if not isinstance(pattern, ast.If | ast.For) or ast.unparse(pattern.body) != "...":
        return pattern
    filled = copy.copy(pattern)
    filled.body, filled.orelse = node.body, node.orelse
    return filled


def _unmutated(mutants: Sequence[Mutant]) -> list[str]:
    """Arguments of pytest that together select every test of the mutants, in few runs."""
    plain = sorted({each.tests for each in mutants if " -k " not in each.tests})
    words: dict[str, set[str]] = {}
    for each in mutants:
        file, _, word = each.tests.partition(" -k ")
        if word:
            words.setdefault(file, set()).add(word.strip('"'))
    runs = [" ".join(plain[start : start + 20]) for start in range(0, len(plain), 20)]
    return runs + [f"{file} -k '{' or '.join(sorted(each))}'" for file, each in words.items()]


class _Trees:
    """Copies of the working tree, one for each process of pytest that runs at a time."""

    def __init__(self, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pool = concurrent.futures.ThreadPoolExecutor(count)
        self._free: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for number in range(count):
            self._free.put(_copy_tree(pathlib.Path(self._folder.name) / str(number)))
        self._times = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results in the order of the items, several at a time."""
        return self._pool.map(function, items)

    def expect_pass(self, tests: str) -> None:
        """Raise BrokenListError if some of the tests fail in the tree as it is."""
        run = self._run(tests, None)
        if run.returncode != 0:
            raise BrokenListError(f"{tests} do not pass unmutated:\n{run.stdout[-2000:]}")

    def is_caught(self, mutant: Mutant) -> bool:
        """Whether a test fails after the edit."""
        run = self._run(mutant.tests, mutant)
        # 1: tests ran and some failed. Anything else (no such test, interrupted) proves nothing.
        if run.returncode not in (0, 1):
            raise BrokenListError(
                f"mutant {mutant.name!r}: pytest ended with {run.returncode}:\n{run.stdout[-2000:]}"
            )
        return run.returncode == 1

    def _run(self, tests: str, mutant: Mutant | None) -> subprocess.CompletedProcess[str]:
        tree = self._free.get()
        try:
            if mutant is None:
                return _pytest(tree, tests)
            edited = tree / mutant.file
            edited.write_text(mutated_text(mutant), encoding="utf-8")
            # Stored bytecode belongs to a time and a size in bytes, which two edits may share.
            os.utime(edited, (time := next(self._times), time))
            try:
                return _pytest(tree, tests)
            finally:
                shutil.copy2(ROOT / mutant.file, edited)
        finally:
            self._free.put(tree)


def _copy_tree(tree: pathlib.Path) -> pathlib.Path:
    by_products = shutil.ignore_patterns(".venv*", ".git", "__pycache__", "_build", ".*_cache")

    def ignore(directory: str, names: list[str]) -> set[str]:
        # Packages are called runs too.
        runs = {"runs"} if pathlib.Path(directory) == ROOT else set()
        return by_products(directory, names) | runs

    return pathlib.Path(shutil.copytree(ROOT, tree, ignore=ignore))


def _pytest(tree: pathlib.Path, tests: str) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH: the copy must win over the working tree, which is installed editable.
    # Derandomised, so that a mutant is caught today because it was caught yesterday.
    env = {
        # Beside the tree, which its copy is not.
        "CATS_JAX_SHARED": str(ROOT.parent / "shared"),
        **os.environ,
        "PYTHONPATH": str(tree),
        "CI": "true",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", *shlex.split(tests)],
        cwd=tree,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
