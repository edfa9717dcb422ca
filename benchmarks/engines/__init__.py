"""Helpers of the benchmarks on serving engines."""
