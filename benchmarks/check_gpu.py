"""What a GPU changes: speed of core, training and bridges, memory, and equal results.

    make check-gpu PART=core [OUT=runs/gpu]
    python benchmarks/check_gpu.py core float32 --out runs/gpu [--minutes 7] [--rehearse]

Nothing needs to be installed but torch, transformers, JAX, flax, optax and chex; nothing is
downloaded: the models are made on the spot, see `gpu/made_models.py`. Each part writes
`OUT/PART.json` and its table in `OUT/report.md` as soon as a row is measured, small rows first. A
row that takes more than `--row-seconds` is left out. The same command again measures what is
missing or has failed. `--rehearse` runs the same code with tiny shapes on
the CPU; its figures mean nothing.

Exit codes: 0 all rows are there, 1 a row failed or was left out, 2 the part can't run here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import sys

_BENCHMARKS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(_BENCHMARKS.parent), str(_BENCHMARKS)]

from gpu.report import NoGPUError, OtherMachineError, Report, describe_machine  # noqa: E402

PARTS = {
    "core": ("gpu.core", ()),
    "training": ("gpu.training", ()),
    "bridge-0.5b": ("gpu.bridge", ("0.5b",)),
    "bridge-1.5b": ("gpu.bridge", ("1.5b",)),
    "bridge-7b": ("gpu.bridge", ("7b",)),
    "float32": ("gpu.float32", ()),
    "search": ("gpu.searches", ()),
}
"""Module and further arguments of each part."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/gpu"))
    parser.add_argument(
        "--minutes", type=float, default=7.0, help="of a part; what is not measured is left out"
    )
    parser.add_argument(
        "--row-seconds",
        type=float,
        default=20.0,
        help="of a row; one that takes longer is left out",
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on the CPU")
    parser.add_argument("--commit", help="commit of the files, where git can't tell")
    options = parser.parse_args()
    _set_environment(options.rehearse)
    bad = False
    for part in options.parts:
        module, arguments = PARTS[part]
        try:
            if not options.rehearse:
                _check_gpu()
            machine = describe_machine(rehearse=options.rehearse, commit=options.commit)
            report = Report(
                options.out,
                part,
                machine,
                60 * options.minutes,
                rehearse=options.rehearse,
                row_seconds=options.row_seconds,
            )
            importlib.import_module(module).run(report, *arguments)
        except ModuleNotFoundError as error:
            return _refuse(f"part {part} needs the package {error.name!r}, which is not installed")
        except (OtherMachineError, NoGPUError) as error:
            return _refuse(str(error))
        report.write()
        bad = bad or bool(report.failed or report.left_out)
        for what, names in (("failed", report.failed), ("left out", report.left_out)):
            if names:
                print(f"{part}: {what}: {'; '.join(names)}: give the same command again")
        if report.left_out:
            print(f"{part}: --row-seconds and --minutes leave more time for what was left out")
    print(f"{options.out / 'report.md'}")
    return int(bad)


def _check_gpu() -> None:
    """Raises NoGPUError unless torch sees a GPU; JAX is asked by the parts that use it there."""
    import torch

    if not torch.cuda.is_available():
        raise NoGPUError(
            f"torch {torch.__version__} sees no CUDA device: run this on a machine with a GPU, or "
            "with --rehearse (make: REHEARSE=1) for tiny shapes on the CPU"
        )


def _set_environment(rehearse: bool) -> None:
    """What torch and JAX read when they are imported."""
    os.environ["JAX_PLATFORMS"] = "cpu" if rehearse else "cuda,cpu"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not rehearse:
        # JAX is not to take the memory that torch measures.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _refuse(reason: str) -> int:
    print(f"check_gpu: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
