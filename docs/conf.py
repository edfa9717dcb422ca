"""Sphinx configuration; `make docs` builds with warnings as errors."""

import cats_jax

project = "cats-jax"
author = "the cats-jax authors"
copyright = author
release = version = cats_jax.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "results/tables"]  # tables are included by the pages

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
# Shapes are read in the signature; the docstrings say meaning and units.
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
# "Attributes:" as a list of fields: as entries of their own they would repeat autodoc's.
napoleon_use_ivar = True

html_theme = "furo"
html_title = "cats-jax"


def _escape_bars(app, what, name, obj, options, lines: list[str]) -> None:
    """Keep |x| in a docstring what it means in a formula; docutils takes it for a substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _escape_bars)
