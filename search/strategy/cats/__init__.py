"""Compute-aware tree search: its configuration, controller interface, features, actions, reward."""
