"""Bounds, budgets and misranking: the paper's theory, checked and corrected."""

__all__: list[str] = []
