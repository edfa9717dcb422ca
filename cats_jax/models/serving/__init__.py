"""Policies and process reward models on serving engines: vLLM, or a server over HTTP."""
