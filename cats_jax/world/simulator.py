"""The shipped parameters of the in-graph simulator: a model of the embedded world."""

from __future__ import annotations

import json
import pathlib

from search import simulation

from . import ASSETS

SIMULATOR_FILE = ASSETS / "simulator.json"
"""The file with the parameters, written by `studies.world.models.fit_simulator`."""


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
