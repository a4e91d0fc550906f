"""The JSON Schema (2020-12) of every command's document, by the command's name.

What a document holds is described once, in Python, strictly: an object has the keys that are named
here and no others, so that a key that is added, renamed or left out is seen.
"""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import HeadcountError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The command -> what its documents are.
TITLES: Mapping[str, str] = {
    "audit": "headcount audit: a model, or several",
    "diff": "headcount diff: what differs between two models",
    "plan": "headcount plan: a model's plan, or an overview with the plans of several",
    "reconcile": "headcount reconcile: a log, or several",
    "convert": "headcount convert: conversion.json, a plan, a sweep or a verification",
    "evaluate": "headcount evaluate: what was measured",
    "heads": "headcount heads: an atlas, a comparison, or what heads are worth",
    "uptrain": "headcount uptrain: what training did",
    "models": "headcount models: the catalogue",
    "families": "headcount families: the types that are known",
    "devices": "headcount devices: the accelerators that are known",
    "rules": "headcount rules: what audit looks for",
    "explain": "headcount explain: a topic with a model's numbers, or the topics",
}


def schema(command: str) -> dict[str, Any]:
    """The JSON Schema of a command's documents, as `headcount schema` prints it. Raises
    HeadcountError for a name that is none."""
    return schema_of(command)


def schema_of(command: str) -> dict[str, Any]:
    """The schema of a command's documents. Raises HeadcountError for a name that is none."""
    if command not in TITLES:
        raise HeadcountError(f"no schema is called {command!r}; there are {', '.join(TITLES)}")
    from .documents import DOCUMENTS
    from .heavy_documents import HEAVY_DOCUMENTS

    return {
        "$schema": DIALECT,
        "$id": f"urn:headcount:schema:{command}:1",
        "title": TITLES[command],
        **{**DOCUMENTS, **HEAVY_DOCUMENTS}[command],
    }
