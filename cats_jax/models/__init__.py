"""Policies and process reward models: found, read, and run on transformers or a server."""
