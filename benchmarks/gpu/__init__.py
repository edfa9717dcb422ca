"""The parts of `benchmarks/check_gpu.py`; each is a module with a function `run(report)`."""
