"""Scores of process reward models on rows of text, and how well they match labels."""
