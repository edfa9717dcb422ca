"""Models that wrap other models and pass on the calls that they do not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ..protocols import ModelFacts, Path, Question, StepGenerator, StepScorer

Model = TypeVar("Model", bound=StepGenerator | StepScorer)
Policy = TypeVar("Policy", bound=StepGenerator)
Prm = TypeVar("Prm", bound=StepScorer)


class Proxy(Generic[Model]):
    """A model that calls another one, `_model`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.num_parameters = model.num_parameters

    def __getattr__(self, name: str) -> Any:
        """A fact of the model, see `ModelFacts`.

        Raises:
            AttributeError: `name` is no fact. A copy that has no `_model` yet has no other names.
        """
        if name not in ModelFacts._fields:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._model, name, ModelFacts._field_defaults[name])

    def keep_only(self, question: Question, paths: Sequence[Path]) -> None:
        """Free a question's cached state except prefixes of `paths`; without paths, all of it."""
        self._model.keep_only(question, paths)


class GeneratorProxy(Proxy[Policy]):
    """A policy that calls another one, `_model`; a subclass defines `generate`."""

    def check_question(self, question: Question) -> None:
        """Check the question by the other policy; see `StepGenerator.check_question`."""
        self._model.check_question(question)


class ScorerProxy(Proxy[Prm]):
    """A PRM that calls another one, `_model`; a subclass defines `score`."""

    def __init__(self, model: Prm) -> None:
        super().__init__(model)
        self.sparsity_total = model.sparsity_total
        self.sparsity_last_layer = model.sparsity_last_layer


def innermost(policy: StepGenerator) -> StepGenerator:
    """The policy that the proxies of a policy call; the policy itself without a proxy."""
    while isinstance(policy, GeneratorProxy):
        policy = policy._model
    return policy
