"""Comparison of controllers with the frontier of strategies without training, at fixed budgets."""
