"""`python -m cats_jax` is the command `cats-jax`."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
