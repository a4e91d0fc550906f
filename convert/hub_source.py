"""A model of the Hub as a folder: what a conversion needs of it, and nothing else."""

import errno
import glob
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headcount.audit.auditing import audit_source
from headcount.model.errors import HeadcountError, InvalidWeightsError, WriteError
from headcount.running.passing_folder import temporary_folder
from headcount.sources.at_once import at_once
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.found import FoundModel
from headcount.sources.http_client import Client
from headcount.sources.hub import open_repo, read_hub
from headcount.sources.safetensors import FileHeader

from .plan.side_files import reason_by_name


@contextmanager
def hub_source(source: str, *, whole: bool) -> Iterator[tuple[Path, str]]:
    """The snapshot of `org/name[@revision]` in the Hub's cache, with what is missing downloaded,
    and its name with the commit.

    Config and headers are read and judged first. Not `whole`: a folder for plans, gone afterwards,
    whose weights are headers over nothing. Raises HeadcountError, and WriteError for a full disk.
    """
    found = read_hub(source)
    checkpoint = _weights(source, found)
    shards = [header.path.name for header in checkpoint.files]
    revision = source.partition("@")[2] or "main"
    snapshot = _download(found, revision, checkpoint, shards if whole else [])
    name = f"{found.id}@{snapshot.name}"
    if whole:
        yield snapshot, name
        return
    with temporary_folder("headcount-") as folder:
        for path in snapshot.iterdir():
            if path.is_file() and path.name not in shards:
                shutil.copyfile(path, folder / path.name)
        _write_headers(found, checkpoint, folder)
        yield folder, name


def _weights(source: str, found: FoundModel) -> Checkpoint:
    """The headers, after an audit without errors: nothing is downloaded in vain."""
    checkpoint = found.checkpoint
    if checkpoint is None or checkpoint.missing:
        raise InvalidWeightsError(
            f"{source}: no whole set of safetensors on the Hub: convert reads nothing else from"
            " there; download the model, and convert the folder"
        )
    errors = [f for f in audit_source(found).findings if f.severity == "error"]
    if errors:
        raise InvalidWeightsError(
            f"{source}: {errors[0].code} {errors[0].where}: {errors[0].message}; {errors[0].hint}"
        )
    return checkpoint


def _download(
    found: FoundModel, revision: str, checkpoint: Checkpoint, shards: Iterable[str]
) -> Path:
    """By huggingface_hub: files that are in its cache are not asked for again. Offline, the
    snapshot whose headers were read."""
    from huggingface_hub import HfApi, constants, snapshot_download

    if checkpoint.folder.is_dir():
        return checkpoint.folder
    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(found.id, revision=revision)
        names = [file.rfilename for file in info.siblings or ()]
        side_files = [name for name in names if "/" not in name and not reason_by_name(name)]
        index = [checkpoint.index.name] if checkpoint.index else []
        folder = snapshot_download(
            found.id,
            revision=revision,
            cache_dir=constants.HF_HUB_CACHE,
            endpoint=constants.ENDPOINT,
            allow_patterns=[glob.escape(name) for name in (*side_files, *index, *shards)],
        )
    except Exception as error:  # of huggingface_hub and of the HTTP library that its version has
        raise _failure(found, error) from error
    return Path(folder)


def _failure(found: FoundModel, error: Exception) -> HeadcountError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    message = f"{found.id}: the download failed ({reason}); whole files are kept: run it again"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return WriteError(message) if full else HeadcountError(message)


def _write_headers(found: FoundModel, checkpoint: Checkpoint, folder: Path) -> None:
    """Files of the right size with the right start, which take no space."""
    with Client() as client:
        repo = open_repo(found.id, found.revision or "main", client)

        def fetch(header: FileHeader) -> bytes:
            return repo.fetch(header.path.name, 0, header.data_start).data

        starts = at_once(fetch, checkpoint.files)
    for header, start in zip(checkpoint.files, starts, strict=True):
        with (folder / header.path.name).open("wb") as file:
            file.write(start)
            file.truncate(header.size)
