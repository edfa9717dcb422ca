"""`cats-jax sparsity`: the share of small weights in a checkpoint."""

from __future__ import annotations

import pathlib
from typing import Annotated

import tyro


def sparsity(
    path: tyro.conf.Positional[pathlib.Path],
    *,
    prm_format: str = "auto",
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Share of weights with |w| < 1e-4, in all and in the last layer, from safetensors files.

    The last layer is the one that gives a PRM's score: its head, or the language-model head.

    Args:
        path: model folder, or a PRM of the embedded world.
        prm_format: format that names the head that is the last layer: its name, a .yaml file, or
            auto.
        as_json: print one JSON object in place of the table.
    """
    import json

    from rich.markup import escape
    from rich.table import Table

    from ..models.prm.family import AUTO, choose_format, prm_folder
    from ..models.prm.sparsity import checkpoint_sparsity
    from ..reporting.printing import show_table
    from .progress import ProgressBar
    from .terminal import make_console

    folder = prm_folder(path)
    read_out = None if prm_format == AUTO else choose_format(prm_format, folder).read_out
    with ProgressBar(make_console(stderr=True), f"reading {folder.name}", 1.0) as bar:
        found = checkpoint_sparsity(folder, read_out, progress=bar.show)
    rows = [("total", found.counts.sizes)]
    rows += [("last layer", found.read_out)] if found.read_out else []
    shares = {
        name: {
            "share": found.counts.share(names),
            "below": sum(found.counts.zeros[n] for n in names),
            "weights": sum(found.counts.sizes[n] for n in names),
            "tensors": list(names) if name == "last layer" else len(names),
        }
        for name, names in rows
    }
    notes = [f"no last layer: {found.unknown}; name it by --prm-format"] if found.unknown else []
    notes += [f"{name} is unused, and counted" for name in found.unused]
    notes += [
        f"{name} is a stored copy of the embedding, and not counted" for name in found.duplicates
    ]
    console = make_console()
    if as_json:
        result = {
            "path": str(path),
            "total": shares["total"],
            "last_layer": shares.get("last layer"),
        }
        print(json.dumps({**result, "notes": notes}))
        return 0
    table = Table("", "share", "below 1e-4", "weights", "tensors", title=escape(str(path)))
    for name, row in shares.items():
        tensors = row["tensors"] if isinstance(row["tensors"], int) else ", ".join(row["tensors"])
        figures = (f"{row['share']:.6g}", str(row["below"]), str(row["weights"]), str(tensors))
        table.add_row(name, *map(escape, figures))
    show_table(console, table)
    for note in notes:
        console.print(escape(note), soft_wrap=True)
    return 0
