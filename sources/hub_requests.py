"""What is asked of the Hugging Face Hub, and what its refusals mean: one clear message each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from headcount.model.errors import HeadcountError, short

from .connection.http_client import Client, Response, UnreachableError


class FileMissingError(HeadcountError):
    """The repository is there and has no such file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Some bytes of a remote file, and the size of the whole file (None: not told)."""

    data: bytes
    size: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HubRepo:
    """One repository at one revision. `endpoint` has no login in it; `headers` hold that, or the
    token, if there is one."""

    name: str
    revision: str
    endpoint: str
    client: Client
    headers: Mapping[str, str] = field(repr=False)

    def fetch_info(self, limit: int) -> bytes:
        """What the Hub's API says of the repository, as JSON. Raises HeadcountError."""
        revision = quote(self.revision, safe="")
        url = f"{self.endpoint}/api/models/{self.name}/revision/{revision}"
        answer = self.client.get(url, self.headers, limit + 1)
        self._check(answer, "")
        if len(answer.body) > limit:
            raise HeadcountError(f"{self.name}: the Hub's answer is above {limit:,} bytes")
        return answer.body

    def fetch(self, file: str, start: int, stop: int) -> Piece:
        """Bytes [start, stop) of `file`, fewer where it ends before. Raises HeadcountError."""
        revision = quote(self.revision, safe="")
        url = f"{self.endpoint}/{self.name}/resolve/{revision}/{quote(file)}"
        headers = {**self.headers, "Range": f"bytes={start}-{stop - 1}"}
        answer = self.client.get(url, headers, stop - start)
        if answer.status == 416:  # nothing at `start`: an empty file
            return Piece(data=b"", size=_size(answer.headers))
        self._check(answer, file)
        if answer.status == 200 and start:
            raise HeadcountError(f"{self.name}/{file}: the server does not answer byte ranges")
        if answer.status == 206 and not _is_range(answer, start, stop):
            raise HeadcountError(
                f"{self.name}/{file}: the server answers with other bytes than {start:,} to"
                f" {stop - 1:,}: Content-Range is"
                f" {short(answer.headers.get('content-range', ''))}"
            )
        return Piece(data=answer.body, size=_size(answer.headers))

    def _check(self, answer: Response, file: str) -> None:
        """Raises HeadcountError for every status but 200 and 206."""
        status, code, name = answer.status, answer.headers.get("x-error-code", ""), self.name
        if status in (200, 206):
            return
        if code == "EntryNotFound":
            raise FileMissingError(f"{name}: this Hub repository has no {file}")
        if code == "RevisionNotFound":
            raise HeadcountError(f"{name}: the Hub has no revision {self.revision!r} of it")
        if code == "GatedRepo" or (status == 403 and code != "RepoNotFound"):
            raise HeadcountError(
                f"{name}: access is restricted: accept its terms on {self.endpoint}/{name}, then"
                " run `hf auth login` or set HF_TOKEN"
            )
        if code == "RepoNotFound" or status in (401, 404):
            raise HeadcountError(
                f"{name}: neither in the catalogue nor, as far as you may see, on the Hub: check"
                " the name; for a private model run `hf auth login` or set HF_TOKEN"
            )
        if status == 407:
            raise UnreachableError("the proxy wants another login (407): see http_proxy")
        if status == 429:
            when = _seconds(answer.headers)
            raise HeadcountError(f"{name}: the Hub limits your requests (429): try again {when}")
        raise UnreachableError(f"{self.endpoint}: answers with status {status}")


_COUNT = r"([0-9]{1,18})"


def _is_range(answer: Response, start: int, stop: int) -> bool:
    """Whether the body is what Content-Range says, and that lies in [start, stop)."""
    told = answer.headers.get("content-range", "")
    found = re.fullmatch(rf"bytes {_COUNT}-{_COUNT}/(?:{_COUNT}|\*)", told)
    if found is None:
        return False
    first, last = int(found[1]), int(found[2])
    inside = found[3] is None or last < int(found[3])
    return first == start and last < stop and inside and len(answer.body) == last + 1 - first


def _size(headers: Mapping[str, str]) -> int | None:
    """The size of the whole file from Content-Range, or from Content-Length of a whole answer."""
    told = headers.get("content-range")
    if told is not None:
        found = re.fullmatch(rf"bytes \S+/{_COUNT}", told)
    else:
        found = re.fullmatch(_COUNT, headers.get("content-length", ""))
    return int(found[1]) if found else None


def _seconds(headers: Mapping[str, str]) -> str:
    """When to try again, as the server says."""
    found = re.fullmatch(r"[0-9]{1,6}", headers.get("retry-after", ""))
    return f"in {found[0]} seconds" if found else "later"
