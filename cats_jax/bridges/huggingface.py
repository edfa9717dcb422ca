"""The Hugging Face bridge: `HuggingFaceGenerator` (policies) and `HuggingFaceScorer` (PRMs)."""

from cats_jax.bridges.hf_generator import HuggingFaceGenerator
from cats_jax.bridges.hf_scorer import HuggingFaceScorer

__all__ = ["HuggingFaceGenerator", "HuggingFaceScorer"]
