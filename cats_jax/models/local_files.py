"""How transformers may read a model folder: from the disk alone, and without running its code.

A model folder can bring Python files and name them in the `auto_map` of its configuration.
transformers asks on the terminal whether it may run them unless it is told, so every
`from_pretrained` of the product is told.
"""

from __future__ import annotations

LOCAL_FILES = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of every `from_pretrained` of an `Auto` class of transformers."""


def reason_of(error: Exception) -> str:
    """Why transformers can't read a folder, in one line.

    Its own message on a folder with Python code advises `trust_remote_code=True`, which no caller
    here can set.
    """
    message = str(error).strip()
    if "trust_remote_code" in message:
        return (
            "it needs Python code from the folder itself (auto_map), which is never run: take a "
            "model type that transformers implements"
        )
    return message.splitlines()[0] if message else type(error).__name__
