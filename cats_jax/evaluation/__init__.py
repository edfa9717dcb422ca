"""Evaluations: the cells of a recipe searched or replayed, graded, and recorded as rows."""
