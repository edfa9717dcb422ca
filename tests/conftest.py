"""What every test runs under: types checked, JAX strict, and in CI no test skipped."""

import gc
import os
import pathlib
from collections.abc import Callable, Iterator

# Tests compile many small programs and run each briefly: compile fast, not well. Before jax.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import chex
import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

ROOT = pathlib.Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


def _function_modules() -> list[str]:
    """The modules whose annotations are checked: all but `types` and the packages themselves.

    Pytrees are left alone because unflattening calls their constructor with whatever a transform
    put into the leaves (tracers, shapes, batched arrays). The hook also takes everything below a
    name, so naming a package would take its `types` with it.
    """
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("search", "learners", "theory")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("types.py", "__init__.py")
    ]


# Before any import of the project: a module that is already loaded is never checked.
install_import_hook(_function_modules(), "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Golden runs depend on this one.
jax.config.update("jax_threefry_partitionable", True)

# Compilation makes the first example slow, so a deadline would only fail at random. In CI the
# same examples run every time: a failure there must be reproducible here.
hypothesis.settings.register_profile("local", deadline=None, max_examples=25)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.load_profile("ci" if IN_CI else "local")


@pytest.fixture
def key() -> jax.Array:
    """A typed random key, the same in every test."""
    return jax.random.key(0)


def pytest_collection_finish() -> None:
    """Let Python look for garbage rarely, and not among what all tests import.

    JAX makes objects by the thousand when it traces, and few of them are garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def _few_memory_maps() -> Iterator[None]:
    """Drop compiled programs before the process has more memory maps than Linux allows.

    Each program takes several, 65 530 is the default limit, and XLA ends the process beyond it.
    """
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        chex.clear_trace_counter()  # what a test may trace once was forgotten


_SHARED = pathlib.Path(os.environ.get("CATS_JAX_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Callable[[str], pathlib.Path]:
    """Reference material by its path in the folder `shared`; without it a test is skipped.

    Published data sets, the paper and its tables, real PRM scores. It is not part of this
    repository: `CATS_JAX_SHARED` names the folder. In CI a skip is a failure.
    """

    def find(name: str) -> pathlib.Path:
        path = _SHARED / name
        if not path.exists():
            pytest.skip(f"{path} is not there: set CATS_JAX_SHARED to the folder that has it")
        return path

    return find


@pytest.fixture(scope="session")
def real_data(shared: Callable[[str], pathlib.Path]) -> Callable[[str], pathlib.Path]:
    """Copies of published data sets by file name, as `shared`."""
    return lambda name: shared(f"data/{name}")


class _NoSkips:
    """Fails the session when a test not marked `gpu` was skipped.

    With xdist it works in the controlling process, which gets every worker's reports.
    """

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is reported as skipped too; it did run.
        if report.skipped and not hasattr(report, "wasxfail") and "gpu" not in report.keywords:
            self.skipped.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.section("skipped in CI, which counts as a failure", red=True)
            for line in self.skipped:
                terminalreporter.write_line(line)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""


def pytest_configure(config: pytest.Config) -> None:
    _keep_programs(config)
    in_worker = hasattr(config, "workerinput")
    if IN_CI and not in_worker:
        config.pluginmanager.register(_NoSkips(), "no-skips")


def _keep_programs(config: pytest.Config) -> None:
    """Keep what tests compile in pytest's cache folder, which `pytest --cache-clear` empties.

    The workers, and the fast and the slow tests, compile many programs in common. Without pytest's
    folder nothing is kept, because the user's own folder of programs is left alone.
    """
    cache = getattr(config, "cache", None)
    if cache is None or not _caches_are_written_whole():
        jax.config.update("jax_enable_compilation_cache", False)
        return
    jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _caches_are_written_whole() -> bool:
    """Make JAX put a whole file in place, so that no other worker reads half of one.

    The class is JAX's own affair. A release that has no such class keeps no programs.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:
        return False

    def put(self: LRUCache, key: str, value: bytes) -> None:
        path = self.path / f"{key}-cache"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(value)
            part.replace(path)

    LRUCache.put = put
    return True
