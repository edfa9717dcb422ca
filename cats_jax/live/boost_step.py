"""BoostStep: a step is written with a similar step of a solved problem in the prompt.

Zhang et al.: "BoostStep: Boosting mathematical capability of Large Language Models via improved
single-step reasoning" (2025), arXiv:2501.03226, and `reasoning.py` in the authors' code,
beichenzbc/BoostStep at 8544d31. The policy first writes the step without an example (the first
try). The example step that is most like the first try, if its similarity reaches a threshold, goes
into the prompt with its whole problem. The policy then writes the step anew, without the first try.

`BoostStep` wraps a policy, so it works with every strategy and engine that samples single steps.
It differs from the authors' code:

- The authors sample greedily. Here the strategy sets the sampling of a step and its first try, and
  every candidate has a first try of its own.
- If no example is similar enough, the first try is the step. The authors' code samples again with
  the same prompt, which at temperature 0 gives the same step.
- The wording of the prompt is ours. The earlier steps stand in the policy's turn (the authors: in
  a user's message), and the options of a multiple-choice question are part of its text.
- Each step of an example has a line of its own.
- At the largest number of steps, the rest of the answer is one step without an example. There, and
  after a repeated step, the authors' code drops the steps and samples a whole answer.
- If the prompt with the example does not fit the policy's context, the first try is the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..errors import BadInputError
from ..protocols import Generation, StepGenerator, StepRequest, StepSample, facts_of, total_usage
from ..specs.example_steps import ExampleSteps, load_example_prompt
from .prompt_proxy import PromptProxy, as_question
from .seeds import stable_seed


class BoostStep(PromptProxy):
    """`StepGenerator` whose steps follow an example. A step is charged with its first try.

    Args:
        policy: policy that writes first tries and steps.
        examples: steps of solved problems.
        threshold: smallest similarity of an example, in [0, 1]; 0.7 in the authors' code.
        prompt: name or .yaml file of the prompt, see `specs.example_steps`.

    Raises:
        BadInputError: the threshold is out of range, or there is no such prompt.
    """

    def __init__(
        self,
        policy: StepGenerator,
        examples: ExampleSteps,
        threshold: float = 0.7,
        prompt: str = "key-step",
    ) -> None:
        super().__init__(policy)
        if not 0.0 <= threshold <= 1.0:
            raise BadInputError(f"threshold={threshold!r}: must be a number in [0, 1], such as 0.7")
        self._examples = examples
        self._threshold = threshold
        self._prompt = load_example_prompt(prompt)
        self._asked = self._unread = 0

    @property
    def note(self) -> str | None:
        """The policy's own note, and how many steps have no example for lack of room; or None."""
        own = facts_of(self._model).note
        if not self._unread:
            return own
        unread = (
            f"policy {self.name!r}: {self._unread} of {self._asked} steps with a similar example "
            "were written without it, because the policy can't read it or its context is too "
            "short: give shorter examples, or an engine a larger max_model_len"
        )
        return unread if own is None else f"{own}; {unread}"

    def generate(self, requests: Sequence[StepRequest]) -> Generation:
        """Sample every request; see `StepGenerator.generate`."""
        known = {request.question for request in requests}
        tries, inside = self.ask(requests, known)
        places: list[tuple[int, list[int]]] = []
        asked: list[StepRequest] = []
        for i, request in enumerate(requests):
            for example, of_samples in self._by_example(request, tries[i].samples).items():
                places.append((i, of_samples))
                asked.append(self._with_example(request, example, of_samples))
        steps, more = self.ask(asked, known)
        samples = [list(made.samples) for made in tries]
        each = [made.sample_usage and list(made.sample_usage) for made in tries]
        paid = [[made] for made in tries]
        for (i, of_samples), made in zip(places, steps, strict=True):
            paid[i].append(made)
            costs, total = made.sample_usage, each[i]
            each[i] = None if costs is None else total
            for place, (j, sample) in enumerate(zip(of_samples, made.samples, strict=True)):
                self._asked += 1
                self._unread += sample.finish == "context"
                if sample.finish != "context":
                    samples[i][j] = sample
                if total is not None and costs is not None:
                    total[j] = total_usage([total[j], costs[place]])
        known_costs = [total for total in each if total is not None]
        return Generation(
            samples,
            [total_usage([made.usage for made in parts]) for parts in paid],
            inside + more,
            sample_usage=known_costs if len(known_costs) == len(each) else None,
            seconds=[sum(made.seconds for made in parts) for parts in paid],
        )

    def _by_example(
        self, request: StepRequest, tries: Sequence[StepSample]
    ) -> dict[int, list[int]]:
        """The samples that get an example, by the number of the example step."""
        found: dict[int, list[int]] = {}
        for j, sample in enumerate([] if request.to_end else tries):
            number, similarity = self._examples.most_similar(sample.step.text)
            if similarity >= self._threshold and similarity > 0.0:
                found.setdefault(number, []).append(j)
        return found

    def _with_example(
        self, request: StepRequest, example: int, of_samples: Sequence[int]
    ) -> StepRequest:
        text = self._prompt.text(request.question.text, self._examples.text(example))
        seeds = tuple(stable_seed("example", request.seeds[j]) for j in of_samples)
        question = as_question(request.question, text)
        return dataclasses.replace(request, question=question, seeds=seeds)
