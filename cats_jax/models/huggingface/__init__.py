"""The Hugging Face bridge: `HuggingFaceGenerator` (policies) and `HuggingFaceScorer` (PRMs)."""

from .generator import HuggingFaceGenerator
from .scorer import HuggingFaceScorer

__all__ = ["HuggingFaceGenerator", "HuggingFaceScorer"]
