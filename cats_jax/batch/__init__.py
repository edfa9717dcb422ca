"""A recipe's way to a run: read, plan, run, report. The commands and the Python API share it."""
