"""GGUF files of the Hub: key-values and tensor directories by range requests, nothing else."""

from collections.abc import Iterable
from pathlib import Path

from headcount.model.errors import HeadcountError

from .at_once import at_once, patiently
from .found import FoundModel
from .gguf import GgufFile, parse_gguf
from .gguf_checkpoint import gguf_source, models_of, siblings_of
from .hub_requests import HubRepo
from .ranged_file import RangedFile

_LISTED = 12


def read_hub_gguf(repo: HubRepo, files: Iterable[str], file: str | None) -> FoundModel:
    """The model of `file`, or the only one of the repository. Raises HeadcountError."""
    files = frozenset(files)
    if file is None:
        file = only_model(repo.name, files)
    elif file not in files:
        raise HeadcountError(
            f"{repo.name}: this Hub repository has no {file}; it has {_some(files)}"
        )
    first = _read(repo, file)
    folder = file.rpartition("/")[0]
    place = f"{folder}/" if folder else ""
    names = siblings_of(Path(file), first)
    present = [n for n in names if f"{place}{n}" in files and f"{place}{n}" != file]
    others = at_once(lambda name: _read(repo, f"{place}{name}"), present)
    found = dict(zip(present, others, strict=True))
    return gguf_source(
        Path(repo.name, file),
        {**dict.fromkeys(names), **found, Path(file).name: first},
        kind="hub",
        revision=repo.revision,
    )


def only_model(name: str, files: Iterable[str]) -> str:
    """The first file of the only GGUF model among `files`; projectors and importance matrices do
    not count beside it. Raises HeadcountError for several."""
    models = models_of(files)
    if len(models) == 1:
        return models[0]
    raise HeadcountError(
        f"{name}: holds {len(models)} GGUF models: name one, such as {name}/{models[0]}"
        f" ({_some(models)})"
    )


def _some(files: Iterable[str]) -> str:
    names = sorted(name for name in files if name.endswith(".gguf"))
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED] or ["no .gguf"]) + (f" and {more} more" if more > 0 else "")


def _read(repo: HubRepo, file: str) -> GgufFile:
    path = Path(repo.name, file)
    remote = RangedFile(
        lambda start, stop: patiently(lambda: repo.fetch(file, start, stop)), str(path)
    )
    return parse_gguf(remote, path, remote.size)
