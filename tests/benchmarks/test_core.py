"""The scripts of `make bench` start, and the benchmark of the core runs."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ["--candidates", "4", "--repeats", "1", "--compilations", "1", "--python-questions", "1"]
POSITIONAL = re.compile(r"add_argument\(\s*[\"'][^-\"']")


def test_make_bench_runs_scripts_that_need_no_argument():
    done = subprocess.run(
        ["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    scripts = re.findall(r"benchmarks/\w+\.py", done.stdout)
    assert "benchmarks/core.py" in scripts
    assert [name for name in scripts if POSITIONAL.search((ROOT / name).read_text())] == []


@pytest.mark.slow
def test_the_benchmark_of_the_core_runs():
    done = subprocess.run(
        [sys.executable, "benchmarks/core.py", *SMALL],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = re.findall(r"^│ (cats|beam) +│ 4 ", done.stdout, re.MULTILINE)
    assert table == ["cats", "beam"] * 2, done.stdout
