"""A model of the Hub as a folder: what a conversion needs of it, and nothing else."""

import errno
import glob
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headcount.audit.auditing import audit_source
from headcount.model.errors import HeadcountError, InvalidWeightsError, WriteError
from headcount.model.redacted_output import redacted_logs
from headcount.model.redaction import redacted
from headcount.sources.at_once import at_once
from headcount.sources.checkpoint import ADAPTER_CONFIG, Checkpoint
from headcount.sources.connection.http_client import Client
from headcount.sources.found import FoundModel
from headcount.sources.hub import list_files, open_repo, read_hub
from headcount.sources.hub_cache import ref_file
from headcount.sources.hub_settings import hub_constants
from headcount.sources.json_file import open_bytes
from headcount.sources.safetensors import FileHeader

from .paced_download import paced_downloads
from .plan.errors import CannotConvertError
from .plan.side_files import reason_by_name
from .temporary_folder import temporary_folder

Judge = Callable[[Path, str], object]


@contextmanager
def hub_source(
    source: str, *, whole: bool, judge: Judge | None = None
) -> Iterator[tuple[Path, str]]:
    """The snapshot of `org/name[@revision]` in the Hub's cache, with what is missing downloaded,
    and its name with the commit.

    Config and headers are read and judged first. Not `whole`: a folder for plans, gone afterwards,
    whose weights are headers over nothing. `judge` is given such a folder, and may refuse it,
    before weights are downloaded. Raises HeadcountError, and WriteError for a full disk.
    """
    found = read_hub(source)
    checkpoint = _weights(source, found)
    shards = [header.path.name for header in checkpoint.files]
    if checkpoint.folder.is_dir():  # offline: the snapshot whose headers were read
        snapshot = checkpoint.folder
    else:
        snapshot = _download(found, checkpoint, shards if whole and judge is None else [])
        _name_commit(snapshot, source.partition("@")[2] or "main")
    name = f"{found.id}@{snapshot.name}"
    if not whole:
        with _headers_alone(found, checkpoint, snapshot) as folder, _called(folder, source):
            yield folder, name
        return
    if judge is not None:
        with _headers_alone(found, checkpoint, snapshot) as folder, _called(folder, source):
            judge(folder, name)
        if not checkpoint.folder.is_dir():
            snapshot = _download(found, checkpoint, shards)
    yield snapshot, name


@contextmanager
def _headers_alone(found: FoundModel, checkpoint: Checkpoint, snapshot: Path) -> Iterator[Path]:
    """The files of a snapshot, and in place of the weights their headers over nothing."""
    shards = {header.path.name for header in checkpoint.files}
    with temporary_folder("plan") as folder:
        for path in snapshot.iterdir():
            if path.is_file() and path.name not in shards:
                shutil.copyfile(path, folder / path.name)
        _write_headers(found, checkpoint, folder)
        yield folder


@contextmanager
def _called(folder: Path, source: str) -> Iterator[None]:
    """What is refused is told of as the user named it, not as a folder that is gone."""
    try:
        yield
    except HeadcountError as error:
        error.args = tuple(str(part).replace(str(folder), source) for part in error.args)
        raise


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


def _download(found: FoundModel, checkpoint: Checkpoint, shards: Iterable[str]) -> Path:
    """By huggingface_hub, from the commit whose headers were read: files that are in its cache are
    not asked for again. The endpoint's login goes as a header, since addresses are logged."""
    from huggingface_hub import snapshot_download

    with Client() as client:
        repo = open_repo(found.id, _commit(found), client)
        names = list_files(repo)
    if ADAPTER_CONFIG in names:
        raise CannotConvertError(
            f"{found.id}: {ADAPTER_CONFIG} is an adapter beside the model, which transformers with"
            " peft loads on top: download the model, and convert the folder with --merge-adapter,"
            " or without the adapter's files"
        )
    side_files = [n for n in names if "/" not in n and not reason_by_name(n)]
    index = [checkpoint.index.name] if checkpoint.index else []
    try:
        with redacted_logs(), paced_downloads():
            folder = snapshot_download(
                found.id,
                revision=repo.revision,
                cache_dir=hub_constants().HF_HUB_CACHE,
                endpoint=repo.endpoint,
                token=False,
                headers={name.lower(): value for name, value in repo.headers.items()},
                allow_patterns=[glob.escape(name) for name in (*side_files, *index, *shards)],
            )
    except Exception as error:  # of huggingface_hub and of the HTTP library that its version has
        raise _failure(found, error) from error
    return Path(folder)


def _commit(found: FoundModel) -> str:
    assert found.revision is not None, "a model of the Hub has one"
    return found.revision


def _name_commit(snapshot: Path, revision: str) -> None:
    """Writes down, as huggingface_hub does, that `revision` is this commit, to find it offline."""
    ref = ref_file(snapshot.parent.parent, revision)
    if ref is None or revision == snapshot.name:
        return
    with suppress(OSError):  # a cache that cannot be written to: the model is there all the same
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(snapshot.name, encoding="utf-8")


def _failure(found: FoundModel, error: Exception) -> HeadcountError:
    reason = redacted(str(error)).strip().partition("\n")[0] or type(error).__name__
    message = f"{found.id}: the download failed ({reason}); whole files are kept: run it again"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return WriteError(message) if full else HeadcountError(message)


def _write_headers(found: FoundModel, checkpoint: Checkpoint, folder: Path) -> None:
    """Files of the right size with the right start, which take no space."""
    with Client() as client:
        repo = open_repo(found.id, _commit(found), client)

        def read_start(header: FileHeader) -> bytes:
            if not header.path.is_file():
                return repo.fetch(header.path.name, 0, header.data_start).data
            with open_bytes(header.path) as file:
                return file.read(header.data_start)

        starts = at_once(read_start, checkpoint.files)
    for header, start in zip(checkpoint.files, starts, strict=True):
        with (folder / header.path.name).open("wb") as file:
            file.write(start)
            file.truncate(header.size)
