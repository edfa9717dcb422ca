"""Comparison of controllers with the frontier of all other strategies, at fixed budgets."""
