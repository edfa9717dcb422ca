"""Policies and process reward models: loading them, and running them on transformers or vLLM."""
