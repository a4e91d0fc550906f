"""A short way to write JSON Schema, for documents that hold what is named and nothing else."""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

ANY: Schema = {}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}  # of things, tokens or bytes
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NOTHING: Schema = {"type": "null"}
VERSION: Schema = {"const": 1}
OPEN: Schema = {"type": "object"}  # an object whose keys are not promised


def obj(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these keys and no others; those of `optional` may be left out."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
        "additionalProperties": False,
    }


def by_name(value: Schema) -> Schema:
    """An object whose keys are names of what it is about: of files, terms, layers."""
    return {"type": "object", "additionalProperties": value}


def many(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def word(*words: str) -> Schema:
    """One of these texts."""
    return {"enum": [*words]}


def maybe(schema: Schema) -> Schema:
    """That, or null for what is not known or does not apply."""
    return {"anyOf": [schema, NOTHING]}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas]}


def said(schema: Schema, description: str) -> Schema:
    """With a sentence for its reader."""
    return {**schema, "description": description}


def fields(schema: Schema, *names: str) -> dict[str, Schema]:
    """Many keys of one kind."""
    return dict.fromkeys(names, schema)
