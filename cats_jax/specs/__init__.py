"""Recipes as checked contents of YAML files, calibrations, and functions named in recipes."""
