"""The JSON Schema of recipes for editors: `python -m cats_jax.specs.json_schema` writes it anew."""

from __future__ import annotations

import json
import pathlib

import pydantic

from .recipe import Recipe

PATH = pathlib.Path(__file__).with_name("recipe.schema.json")


def recipe_schema() -> str:
    """The schema as text. It has types and ranges, not the rules between keys."""
    schema = pydantic.TypeAdapter(Recipe).json_schema()
    # The name of a file is the default.
    schema["required"] = [key for key in schema["required"] if key != "name"]
    return json.dumps(schema, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(recipe_schema(), encoding="utf-8")
