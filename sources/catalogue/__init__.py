"""Well-known models: their real configs, counts and sources; no network is needed."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model.errors import UnknownModelError

_FOLDER = Path(__file__).parent


class CatalogueRow(NamedTuple):
    """A model in lists: enough to find it, and where its full entry begins in models.jsonl."""

    id: str
    aliases: tuple[str, ...]
    model_type: str | None
    parameters: int | None
    offset: int

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, *self.aliases)


class CatalogueEntry(NamedTuple):
    """`built_parameters` is what transformers builds, None for remote code; `published_parameters`
    what the model's page counts. `notes` say why they differ, `sources` where the config is from.
    """

    id: str
    aliases: tuple[str, ...]
    config: dict[str, Any]
    built_parameters: int | None
    built_as: str | None
    published_parameters: int | None
    published_source: str | None
    remote_code: bool
    confidence: str
    notes: tuple[str, ...]
    sources: tuple[str, ...]


@lru_cache
def _index() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((_FOLDER / "index.json").read_bytes())
    return rows


@lru_cache
def catalogue() -> tuple[CatalogueRow, ...]:
    """All models, by id."""
    return tuple(_row(row) for row in _index())


def _row(row: dict[str, Any]) -> CatalogueRow:
    return CatalogueRow(**{**row, "aliases": tuple(row["aliases"])})


def find_row(name: str) -> CatalogueRow | None:
    """The model with this id or alias, whatever the case."""
    wanted = name.casefold()
    for row in _index():
        if any(known.casefold() == wanted for known in (row["id"], *row["aliases"])):
            return _row(row)
    return None


def read_entry(row: CatalogueRow) -> CatalogueEntry:
    """The whole entry of a row."""
    with (_FOLDER / "models.jsonl").open("rb") as file:
        file.seek(row.offset)
        values = json.loads(file.readline())
    for name in ("aliases", "notes", "sources"):
        values[name] = tuple(values[name])
    return CatalogueEntry(**values)


def search_catalogue(text: str) -> tuple[CatalogueRow, ...]:
    """The models whose id, alias or model_type holds every word of `text`."""
    words = text.casefold().split()
    return tuple(
        row
        for row in catalogue()
        if all(w in " ".join((*row.names, row.model_type or "")).casefold() for w in words)
    )


def unknown_model(name: str) -> UnknownModelError:
    """The error for a name nobody knows, with the nearest ones."""
    from difflib import get_close_matches

    known = {alias.casefold(): alias for row in catalogue() for alias in row.names}
    near = [known[match] for match in get_close_matches(name.casefold(), known, n=4, cutoff=0.6)]
    hint = f"; nearest are {', '.join(near)}" if near else ""
    return UnknownModelError(
        f"{name!r} is no model of the catalogue, no file or folder, and no org/name of the Hub"
        f"{hint}. `headcount models` lists the catalogue"
    )
