"""The Hugging Face bridge: `HuggingFaceGenerator` (policies) and `HuggingFaceScorer` (PRMs)."""

from .generator import HuggingFaceGenerator as HuggingFaceGenerator
from .scorer import HuggingFaceScorer as HuggingFaceScorer
