"""The shipped parameters of the in-graph simulator: a model of the embedded world."""

from __future__ import annotations

import json
import pathlib

from search import simulation

from . import ASSETS

SIMULATOR_FILE = ASSETS / "simulator.json"
"""The file with the parameters, written by `studies.world.models.fit_simulator`."""

_DIGITS = 5  # significant digits, far more than the samples determine


def load_simulator(path: pathlib.Path = SIMULATOR_FILE) -> simulation.SimulatorParams:
    """Parameters for `search.simulation.reset`; PRMs and levels in the order of `simulator_names`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a file of simulator parameters.
    """
    return simulation.from_dict(_read(path)["parameters"])


def simulator_names(path: pathlib.Path = SIMULATOR_FILE) -> dict[str, list]:
    """Names along the axes of the parameters: ``{"prms": [names], "levels": [1..5]}``."""
    return _read(path)["axes"]


def save_simulator(
    path: pathlib.Path, params: simulation.SimulatorParams, axes: dict[str, list], source: dict
) -> None:
    """Write rounded parameters with the meaning of their axes and their origin.

    Args:
        path: file to write, overwritten if it exists.
        params: parameters of the simulator.
        axes: names of the axes, see `simulator_names`.
        source: origin of the parameters, any JSON values.
    """
    content = {
        "format": 2,
        "source": source,
        "axes": axes,
        "parameters": _rounded(simulation.to_dict(params)),
    }
    # One line per parameter: the file is small, and a diff between two fits is readable.
    lines = [f'"{name}": {json.dumps(content[name])}' for name in ("format", "source", "axes")]
    rows = [f'"{name}": {json.dumps(v)}' for name, v in content["parameters"].items()]
    lines.append('"parameters": {\n' + ",\n".join(rows) + "\n}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _read(path: pathlib.Path) -> dict:
    if not path.is_file():
        raise FileNotFoundError(
            f"no simulator parameters at {path}; fit them in the repository with: "
            "python -m studies.world.models.fit_simulator"
        )
    content = json.loads(path.read_text())
    if not isinstance(content, dict) or content.get("format") != 2:
        raise ValueError(f"{path} is not a file of simulator parameters, format 2")
    return content


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
