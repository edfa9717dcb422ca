"""Strategies built from a recipe, and the checkpoints of trained controllers."""
