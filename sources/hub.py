"""Models of the Hugging Face Hub: config.json and the headers of the weights, nothing else."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import (
    HeadcountError,
    InvalidConfigError,
    InvalidWeightsError,
    UnknownModelError,
    bounded,
    short,
)
from headcount.model.version import __version__

from .at_once import at_once, patiently, within
from .catalogue import quantised_hint
from .checkpoint import INDEX, SINGLE, Checkpoint, check_index, join_shards, single_file
from .connection.http_client import Client, UnreachableError
from .found import FoundModel
from .hub_cache import read_cached
from .hub_gguf import read_hub_gguf
from .hub_names import split_target
from .hub_requests import HubRepo
from .hub_settings import hub_constants, login, read_endpoint
from .json_file import parse_json
from .quantisation_file import settings_file, with_settings
from .safetensors import FileHeader, header_length, parse_header

# What a header takes: about so many bytes per tensor beside its name.
_ENTRY_BYTES = 110
_FIRST_BYTES = 2**17
_COMMIT = r"[0-9a-f]{40}"


def is_repository(name: str) -> bool:
    """Whether `name` is spelled as a repository of the Hub: org/name."""
    return re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", name, re.ASCII) is not None


def read_hub(target: str, meanwhile: Callable[[], None] | None = None) -> FoundModel:
    """`org/name[@revision]`: config.json and headers by range requests, from the cache offline.
    `org/name/FILE.gguf` is one GGUF model of a repository. `meanwhile` is called while the first
    answer is awaited.

    Raises HeadcountError when the Hub cannot be reached, or has no such model or file.
    """
    name, revision, file = split_target(target)
    if not is_repository(name):
        raise UnknownModelError(
            f"{target}: no such file or folder, and no valid Hub id (org/name[@revision])"
            f"{quantised_hint(target)}"
        )
    if hub_constants().HF_HUB_OFFLINE:
        return _from_cache(target, "HF_HUB_OFFLINE is set")
    print(f"Asking the Hugging Face Hub for {bounded(target)} …", file=sys.stderr)
    try:
        with Client() as client:
            repo = open_repo(name, revision or "main", client)
            return _read_online(repo, target, file, meanwhile)
    except UnreachableError as error:
        return _from_cache(target, str(error))


def _from_cache(target: str, reason: str) -> FoundModel:
    name, revision, file = split_target(target)
    cached = read_cached(name, revision or None, target, file)
    if cached is None:
        raise HeadcountError(
            f"{target}: not in the catalogue, not in the Hub cache, and the Hub is out of reach"
            f" ({reason}); give a local folder or a config.json instead"
        )
    print(
        f"The Hub is out of reach ({bounded(reason)}); using the cached snapshot.", file=sys.stderr
    )
    return cached


def open_repo(name: str, revision: str, client: Client) -> HubRepo:
    """Raises HeadcountError for an endpoint or a token that cannot be used."""
    constants = hub_constants()
    endpoint = read_endpoint(constants.ENDPOINT)
    return HubRepo(
        name=name,
        revision=revision,
        endpoint=endpoint.url,
        client=client,
        headers={"User-Agent": f"headcount/{__version__}", **login(constants, endpoint)},
    )


def _read_online(
    repo: HubRepo, target: str, file: str | None, meanwhile: Callable[[], None] | None
) -> FoundModel:
    """Three round trips: what is there; config and index; all shards. The second and third ask for
    the commit that the first answer names: a branch may move in between."""
    answer = within(
        limits.FIRST_SECONDS.most, lambda: repo.fetch_info(limits.INDEX_BYTES.most), meanwhile
    )
    info = parse_json(answer, f"{target}: the Hub's answer")
    files = _file_names(info)
    repo = replace(repo, revision=_commit(info, repo))
    reads: tuple[Callable[[], Any], ...] = (
        lambda: _read_whole_config(repo, files),
        lambda: _read_weights(repo, files),
    )
    if file is not None or ("config.json" not in files and any(map(_is_gguf, files))):
        return read_hub_gguf(repo, files, file)
    if "config.json" not in files:
        raise HeadcountError(f"{repo.name}: this Hub repository has no config.json")
    config, checkpoint = at_once(_call, reads)
    return FoundModel(
        kind="hub",
        id=repo.name,
        where=f"{target}: config.json",
        config=config,
        checkpoint=checkpoint,
        revision=repo.revision,
    )


def _commit(info: Mapping[str, Any], repo: HubRepo) -> str:
    """The commit that an answer describes. Raises HeadcountError."""
    commit, asked = info.get("sha"), repo.revision
    if not isinstance(commit, str) or re.fullmatch(_COMMIT, commit) is None:
        raise HeadcountError(
            f"{repo.name}: the Hub's answer names no commit (sha: {short(commit)}), so that its"
            " files could be of several: download the model, and give the folder"
        )
    if re.fullmatch(_COMMIT, asked) and commit != asked:
        raise HeadcountError(f"{repo.name}: the Hub answers with commit {commit}, not {asked}")
    return commit


def _is_gguf(file: str) -> bool:
    return file.endswith(".gguf")


def _call(read: Callable[[], Any]) -> Any:
    return read()


def list_files(repo: HubRepo) -> frozenset[str]:
    """The names of all files of `repo` at its revision. Raises HeadcountError."""
    return _file_names(
        parse_json(repo.fetch_info(limits.INDEX_BYTES.most), f"{repo.name}: the Hub's answer")
    )


def _file_names(info: dict[str, Any]) -> frozenset[str]:
    siblings = info.get("siblings")
    found = siblings if isinstance(siblings, list) else []
    names = (str(file.get("rfilename")) for file in found if isinstance(file, dict))
    # Halves of surrogate pairs, which JSON can hold, are in no file's name.
    return frozenset(name for name in names if not re.search(r"[\ud800-\udfff]", name))


def _read_whole_config(repo: HubRepo, files: frozenset[str]) -> dict[str, Any]:
    """config.json, with the settings of a quantisation that lie beside it."""
    read = partial(_read_json, repo)
    return with_settings(read("config.json"), settings_file(files), read)


def _read_json(repo: HubRepo, name: str) -> dict[str, Any]:
    limit = limits.JSON_BYTES
    piece = repo.fetch(name, 0, limit.most + 1)
    if len(piece.data) > limit.most:
        raise InvalidConfigError(limit.refusal(f"{repo.name}: {name}"))
    return parse_json(piece.data, f"{repo.name}: {name}", allow_non_finite=True)


def _read_weights(repo: HubRepo, files: frozenset[str]) -> Checkpoint | None:
    """The headers of the safetensors; None where the repository has none."""
    if SINGLE in files:
        return single_file(_fetch_header(repo, SINGLE, _FIRST_BYTES))
    if INDEX in files:
        return _read_shards(repo, files)
    others = sorted(name for name in files if name.endswith((".bin", ".pt", ".gguf")))
    for name in others[:1]:
        more = f"audit {repo.name}/{name}" if _is_gguf(name) else "download the file and audit it"
        print(
            f"{repo.name} has no safetensors, but {name}: only the config is read; for more"
            f" {more}.",
            file=sys.stderr,
        )
    return None


def _read_shards(repo: HubRepo, files: frozenset[str]) -> Checkpoint:
    path = Path(repo.name, INDEX)
    data = repo.fetch(INDEX, 0, limits.INDEX_BYTES.most + 1).data
    if len(data) > limits.INDEX_BYTES.most:
        raise InvalidWeightsError(limits.INDEX_BYTES.refusal(path))
    try:
        index = parse_json(data, str(path))
    except InvalidConfigError as error:
        raise InvalidWeightsError(str(error)) from error
    claims = check_index(path, index)
    expected: dict[str, int] = {}
    for name, shard in claims.weight_map.items():
        expected[shard] = expected.get(shard, 512) + len(name) + _ENTRY_BYTES
    present = sorted(shard for shard in expected if shard in files)
    headers = at_once(lambda shard: _fetch_header(repo, shard, expected[shard]), present)
    return join_shards(path, claims, headers)


def _fetch_header(repo: HubRepo, file: str, guess: int) -> FileHeader:
    """One request where the header fits into `guess` bytes, else two."""
    path = Path(repo.name, file)
    piece = patiently(lambda: repo.fetch(file, 0, guess))
    if piece.size is None:
        raise InvalidWeightsError(f"{path}: the server does not tell the size of the file")
    length = header_length(path, piece.data[:8], piece.size)
    raw = piece.data[8 : 8 + length]
    if len(raw) < length:
        rest = patiently(lambda: repo.fetch(file, 8 + len(raw), 8 + length))
        raw += rest.data
    if len(raw) < length:
        raise InvalidWeightsError(f"{path}: the server sent {len(raw):,} of {length:,} bytes")
    return parse_header(path, raw, piece.size)
