"""What the user's SOURCE means: a folder, or a model of the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headcount.audit.source.target import is_hub_id


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFolder:
    """Where a model lies as safetensors, and how reports and records name it."""

    path: Path
    name: str | None


@contextmanager
def source_folder(source: str, *, whole: bool, allow_pickle: bool) -> Iterator[SourceFolder]:
    """The folder that `source` names, for as long as the context lasts.

    `whole`: with its weights, not only for a plan. Raises HeadcountError.
    """
    if is_hub_id(source):
        from .hub_source import hub_source

        with hub_source(source, whole=whole) as folder:
            yield folder
        return
    yield SourceFolder(path=Path(source).expanduser(), name=None)
