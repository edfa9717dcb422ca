"""Sphinx configuration; `make docs` builds with warnings as errors."""

import pathlib
import re
import shutil

import cats_jax

project = "cats-jax"
author = "the cats-jax authors"
copyright = author
release = version = cats_jax.__version__

# myst_nb reads Markdown as myst_parser does, and notebooks too.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "results/tables"]  # tables are included by the pages

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
# Notebooks are stored with their outputs.
nb_execution_mode = "off"

autodoc_member_order = "bysource"
# Shapes are read in the signature; the docstrings say meaning and units.
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
# "Attributes:" as a list of fields: as entries of their own they would repeat autodoc's.
napoleon_use_ivar = True

html_theme = "furo"
html_title = "cats-jax"
html_static_path = ["_static"]
html_css_files = ["cats_jax.css"]

# Sphinx reads pages below this folder only.
_HERE = pathlib.Path(__file__).resolve().parent
shutil.copytree(
    _HERE.parent / "notebooks",
    _HERE / "notebooks",
    ignore=shutil.ignore_patterns("*.py", "*.md", "__pycache__", ".*"),
    dirs_exist_ok=True,
)


def _as_restructured_text(app, what, name, obj, options, lines: list[str]) -> None:
    """Keep |x| of a formula and the plural `Name`s, which docutils reads otherwise."""
    # Leave out the values of a module's constants, such as tables of 99 actions.
    options.no_value = True
    lines[:] = [re.sub(r"(`\w+`)s\b", r"\1\\ s", line.replace("|", r"\|")) for line in lines]


def _without_long_defaults(app, what, name, obj, options, signature, returns) -> tuple:
    """Leave out the rows of an action table that is a default value."""
    short = re.sub(r"ActionTable\(rows=\(.*?\)\)\)", "ActionTable(...)", signature or "")
    return short or signature, returns


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _without_long_defaults)
    app.connect("autodoc-process-docstring", _as_restructured_text)
