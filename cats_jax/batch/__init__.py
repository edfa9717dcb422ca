"""Runs of recipes: read, plan, run, report. The commands and the Python API share this code."""
