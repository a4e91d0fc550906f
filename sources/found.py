"""A model that was found: its config and headers, and where they are from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .catalogue import CatalogueEntry

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .identity import ReadFile

SourceKind = Literal["catalogue", "hub", "folder", "config", "file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundModel:
    """A model found: its config (None for lone weights), headers, and the catalogue's entry.

    `where` is how messages name the config; `id` how reports name the model. `gguf` are the
    key-values of a GGUF file, which are its config; `stored_as` names its element types.
    `config_file` is the config.json as it was read from a disk.
    """

    kind: SourceKind
    id: str
    where: str
    config: Mapping[str, Any] | None
    checkpoint: "Checkpoint | None" = None
    entry: CatalogueEntry | None = None
    revision: str | None = None
    gguf: Mapping[str, Any] | None = None
    stored_as: str | None = None
    config_file: "ReadFile | None" = None
