"""Well-known models: their real configs, counts and sources; no network is needed."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model.errors import UnknownModelError

_FOLDER = Path(__file__).parent
# A type of llama.cpp at the end of a name: of a file, or behind a colon, as Ollama has it.
_TYPE = r"(?:I?Q\d_(?:[01]|K_[SML]|K|XXS|XS|[SM]|NL)|BF16|F16)"
_QUANTISED = re.compile(rf"(?:-GGUF)?[-.:_/]({_TYPE})(?:\.gguf)?$", re.IGNORECASE)


class CatalogueRow(NamedTuple):
    """A model in lists: enough to find it, and where its full entry begins in models.jsonl.

    `checkpoints` are other models that its config describes, but for what they change.
    """

    id: str
    aliases: tuple[str, ...]
    checkpoints: tuple[str, ...]
    model_type: str | None
    parameters: int | None
    offset: int

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, *self.aliases, *self.checkpoints)

    def checkpoint(self, name: str) -> str | None:
        """The one of `checkpoints` that `name` means; None where it means the model itself."""
        return next((known for known in self.checkpoints if _means(name, known)), None)


class CatalogueEntry(NamedTuple):
    """`built_parameters` is what transformers builds, None for remote code; `published_parameters`
    what the model's page counts. `notes` say why they differ, `sources` where the config is from.

    `config_of` is the model whose config this one is shown by, None for its own; `changes` are the
    keys in which its own config differs, None where that was not at hand.
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
    config_of: str | None = None
    changes: dict[str, Any] | None = None

    @property
    def stands_in(self) -> str | None:
        """That another model's config was read for this one, whose own is not at hand."""
        if self.config_of is None or self.changes is not None:
            return None
        return (
            f"The catalogue lacks the config of {self.id}: that of {self.config_of} was read,"
            " whose dtype and maximum length may be others."
        )


@lru_cache
def _index() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((_FOLDER / "index.json").read_bytes())
    return rows


@lru_cache
def catalogue() -> tuple[CatalogueRow, ...]:
    """All models, by id."""
    return tuple(_row(row) for row in _index())


def _row(row: dict[str, Any]) -> CatalogueRow:
    names = {name: tuple(row[name]) for name in ("aliases", "checkpoints")}
    return CatalogueRow(**{**row, **names})


def _means(name: str, known: str) -> bool:
    """Whatever the case, and with or without the organisation in front."""
    wanted, full = name.casefold(), known.casefold()
    return wanted == full or ("/" not in wanted and wanted == full.rpartition("/")[2])


def find_row(name: str) -> CatalogueRow | None:
    """The model of this id, alias or checkpoint, whatever the case; of an id or checkpoint the
    organisation may be left out."""
    for row in _index():
        if any(_means(name, known) for known in (row["id"], *row["aliases"], *row["checkpoints"])):
            return _row(row)
    return None


def read_entry(row: CatalogueRow, name: str | None = None) -> CatalogueEntry:
    """The whole entry of a row; as one of its checkpoints where `name` means one."""
    with (_FOLDER / "models.jsonl").open("rb") as file:
        file.seek(row.offset)
        values = json.loads(file.readline())
    for key in ("aliases", "notes", "sources"):
        values[key] = tuple(values[key])
    checkpoints = values.pop("checkpoints")
    entry = CatalogueEntry(**values)
    meant = None if name is None else row.checkpoint(name)
    return entry if meant is None else _as_checkpoint(entry, meant, checkpoints[meant])


def _as_checkpoint(entry: CatalogueEntry, name: str, own: dict[str, Any] | None) -> CatalogueEntry:
    """`entry` as the model `name`, of whose config only `own` is known: what it changes, and where
    that is from."""
    if own is None:
        return entry._replace(id=name, config_of=entry.id)
    return entry._replace(
        id=name,
        config_of=entry.id,
        config={**entry.config, **own["changes"]},
        changes=own["changes"],
        sources=(*entry.sources, own["source"]),
    )


def search_catalogue(text: str) -> tuple[CatalogueRow, ...]:
    """The models whose id, alias or model_type holds every word of `text`: first those with a name
    that begins with the first of them."""
    words = text.casefold().split()
    found = (
        row
        for row in catalogue()
        if all(w in " ".join((*row.names, row.model_type or "")).casefold() for w in words)
    )

    return tuple(sorted(found, key=lambda row: _how_far(row, words[:1])))


def _how_far(row: CatalogueRow, begins: Sequence[str]) -> int:
    """0 where a name begins with the word, 1 where it does behind the organisation, else 2."""
    names = [name.casefold() for name in row.names]
    if all(any(name.startswith(word) for name in names) for word in begins):
        return 0
    own = [name.rpartition("/")[2] for name in names]
    return 1 if all(any(name.startswith(word) for name in own) for word in begins) else 2


def nearest(name: str) -> tuple[str, ...]:
    """The names of the catalogue that are most like `name`, without organisations: four at most,
    those that begin with it first."""
    from difflib import get_close_matches  # slow to import, and only errors want it

    names = (name for row in catalogue() for name in row.names)
    known = {short.casefold(): short for name in names for short in (name, name.rpartition("/")[2])}
    wanted = name.casefold()
    begun = sorted((n for n in known if wanted and n.startswith(wanted)), key=len)
    close = get_close_matches(wanted, known, n=4, cutoff=0.6)
    return tuple(known[match] for match in dict.fromkeys((*begun[:2], *close)))[:4]


def quantised_hint(name: str) -> str:
    """What to type instead of a quantised file's name that is not there, such as
    Qwen2.5-32B-Q4_K_M.gguf or qwen2.5-32b:q4_k_m; empty where no model of the catalogue is meant,
    or no type."""
    found = _QUANTISED.search(name)
    if found is None:
        return ""
    words = name[: found.start()].rpartition("/")[2].split("-")
    for count in range(len(words), 0, -1):  # what is behind the size, such as Instruct, may go
        row = find_row("-".join(words[:count]))
        if row is not None:
            known, dtype = min(row.aliases or (row.id,), key=len), found[1].lower()
            return f"; `headcount plan {known} --dtype {dtype}` plans {row.id} in that type"
    return ""


def unknown_model(name: str) -> UnknownModelError:
    """The error for a name nobody knows, with the nearest ones."""
    near = nearest(name)
    hint = f"; nearest are {', '.join(near)}" if near else ""
    return UnknownModelError(
        f"{name!r} is no model of the catalogue, no file or folder, and no org/name of the Hub"
        f"{quantised_hint(name) or hint}. `headcount models` lists the catalogue"
    )
