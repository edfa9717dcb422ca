"""Policies as data: prompts, step separators and stop rules of published language models."""
