"""Compute-aware tree search: its configuration, policy interface, features, actions, reward."""
