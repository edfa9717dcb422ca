"""Inside vLLM: a causal model's backbone under a PRM's own head.

vLLM loads this module through its plugin mechanism (the entry point in pyproject.toml), in each of
its processes. vLLM's own class for Qwen2.5-Math-PRM reads every tag of a path, which turns the
prefix cache off. Here a request says whether the last token or all computed tokens are read, and
either way a path's prefix comes from the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREFIX, SUFFIX = "CatsJax", "ForSequenceClassification"
"""Prefix and suffix of the architectures that `register` adds, around names such as "Qwen2"."""

HEAD_KEY = "cats_jax_head"
"""Key of the head in the model's configuration.

The value is {"layers": stored names, "label": index or null}, with "unbounded": true for rewards.
"""


class DeviceOf:
    """A method that vLLM adds to its workers (`worker_extension_cls`)."""

    device: Any

    def cats_jax_device(self) -> str:
        """The device that the worker computes on, as torch names it in the worker's process."""
        return str(self.device)


def register() -> None:
    """Register an architecture with a PRM's head for each causal architecture of vLLM."""
    from vllm import ModelRegistry  # pyright: ignore[reportMissingImports]

    for name in list(ModelRegistry.get_supported_archs()):
        if name.endswith("ForCausalLM"):
            headed = PREFIX + name.removesuffix("ForCausalLM") + SUFFIX
            ModelRegistry.register_model(headed, f"{__name__}:{headed}")


def __getattr__(name: str) -> Any:
    """The class of a registered architecture, made when vLLM asks for it."""
    if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vllm import ModelRegistry  # pyright: ignore[reportMissingImports]

    causal = name.removeprefix(PREFIX).removesuffix(SUFFIX) + "ForCausalLM"
    made = _under_head(ModelRegistry.models[causal].load_model_cls())
    made.__name__ = made.__qualname__ = name
    return made


def _under_head(causal: Any) -> Any:
    import torch
    from vllm.model_executor.models.adapters import (  # pyright: ignore[reportMissingImports]
        as_seq_cls_model,
    )

    from ..weights import stored_tensors

    class Headed(as_seq_cls_model(causal)):
        """The backbone as vLLM's adapter makes it, with another head."""

        def _init_pooler(self, vllm_config: Any, prefix: str = "") -> Any:
            config = vllm_config.model_config
            head = getattr(config.hf_config, HEAD_KEY)
            self._head_layers: list[str] = head["layers"]
            tensors = stored_tensors(config.model)
            self.score = torch.nn.ModuleList(
                torch.nn.Linear(
                    *tensors[f"{layer}.weight"].shape[::-1],
                    bias=f"{layer}.bias" in tensors,
                    dtype=config.head_dtype,
                )
                for layer in self._head_layers
            )
            return _pooler(config.pooler_config, head, self.score)

        def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
            own = {
                f"{layer}.{kind}": f"score.{index}.{kind}"
                for index, layer in enumerate(self._head_layers)
                for kind in ("weight", "bias")
            }
            parameters = dict(self.named_parameters())
            loaded = set()

            def of_backbone() -> Iterable[tuple[str, torch.Tensor]]:
                for name, values in weights:
                    if name in own:
                        parameters[own[name]].data.copy_(values)
                        loaded.add(own[name])
                    elif not name.startswith("lm_head."):
                        yield name, values

            return super().load_weights(of_backbone()) | loaded

    return Headed


def _pooler(config: Any, head: Mapping[str, Any], layers: Iterable[Any]) -> Any:
    """The pooler that reads a head's score from the last hidden states.

    `head` is the value of `HEAD_KEY`; ReLU stands between its linear `layers`.
    """
    from vllm.model_executor.layers.pooler import (  # pyright: ignore[reportMissingImports]
        DispatchPooler,
    )
    from vllm.model_executor.layers.pooler.activations import (  # pyright: ignore[reportMissingImports]
        LambdaPoolerActivation,
        PoolerClassify,
    )
    from vllm.model_executor.layers.pooler.seqwise import (  # pyright: ignore[reportMissingImports]
        pooler_for_classify,
    )
    from vllm.model_executor.layers.pooler.tokwise import (  # pyright: ignore[reportMissingImports]
        pooler_for_token_classify,
    )

    from ..prm.format import bounded

    def log_odds(hidden: Any) -> Any:
        *inner, last = layers
        for layer in inner:
            hidden = layer(hidden).relu()
        return _log_odds(last(hidden), head["label"])

    is_reward = head.get("unbounded", False)
    act_fn = LambdaPoolerActivation(bounded) if is_reward else PoolerClassify(num_labels=1)
    made: dict[str, Any] = {"classifier": log_odds, "act_fn": act_fn}
    return DispatchPooler(
        {
            "classify": pooler_for_classify(config, **made),
            "token_classify": pooler_for_token_classify(config, **made),
        }
    )


def _log_odds(outputs: Any, label: int | None) -> Any:
    """Log-odds of the score: the only output, or one label's against all the others'."""
    if label is None:
        return outputs
    others = [index for index in range(outputs.shape[-1]) if index != label]
    return outputs[:, label : label + 1] - outputs[:, others].logsumexp(-1, keepdim=True)
