"""A stand-in for the Hub: serves folders as repositories, answers ranges, waits, and counts."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pytest

COMMIT, MOVED = "5" * 40, "6" * 40


@dataclass(kw_only=True)
class Hub:
    """`folder` holds org/name folders. Each answer takes `latency` seconds; `gated` names need the
    token `hf_good`; `ranges=False` plays a server that ignores the Range header. Once the first
    answer is sent, the branch moves to the commit `MOVED`, whose folders are in `moves_to`. Whole
    files of weights come a byte each `drip` seconds."""

    folder: Path
    moves_to: Path | None = None
    branch: str = COMMIT
    drip: float = 0.0
    latency: float = 0.0
    gated: frozenset[str] = frozenset()
    ranges: bool = True
    failures: int = 0  # so many answers are 503
    counts: dict[str, dict[str, int]] = field(default_factory=dict)  # parameters by dtype, by name
    elsewhere: str = ""  # a server to which files of weights are redirected
    tokens: list[str | None] = field(default_factory=list)
    url: str = ""
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Runs the server in a thread; `hub.url` is its address."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub = self.hub
        with hub.lock:
            hub.requests.append(f"{self.command} {self.path}")
            hub.tokens.append(self.headers.get("Authorization"))
            fails = hub.failures > 0
            hub.failures -= fails
        time.sleep(hub.latency)
        parts = unquote(urlsplit(self.path).path).split("/")  # a proxy gets the whole address
        if fails:
            self._refuse(503, "")
        elif hub.elsewhere and self.path.endswith(".safetensors"):
            self._send(302, {"Location": hub.elsewhere + self.path}, b"", 0, body)
        elif parts[1:3] == ["api", "models"] and len(parts) == 5:
            self._info("/".join(parts[3:5]), "main", body)
        elif len(parts) < 6:  # what huggingface_hub asks about itself
            self._refuse(404, "")
        elif parts[1:3] == ["api", "models"]:
            answer = self._tree if parts[5] == "tree" else self._info
            answer("/".join(parts[3:5]), parts[6], body)
        else:
            self._file("/".join(parts[1:3]), parts[4], "/".join(parts[5:]), body)

    def _known(self, repo: str, revision: str) -> bool:
        if not (self.hub.folder / repo).is_dir():
            self._refuse(401, "RepoNotFound")
            return False
        if revision not in ("main", COMMIT, MOVED):
            self._refuse(404, "RevisionNotFound")
            return False
        return True

    def _commit(self, revision: str) -> str:
        return self.hub.branch if revision == "main" else revision

    def _root(self, repo: str, revision: str) -> Path:
        moved = self.hub.moves_to if self._commit(revision) == MOVED else None
        return (moved or self.hub.folder) / repo

    def _info(self, repo: str, revision: str, body: bool) -> None:
        if self._known(repo, revision):
            root = self._root(repo, revision)
            names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
            commit = self._commit(revision)
            siblings = [{"rfilename": n} for n in names]
            info: dict[str, object] = {"id": repo, "sha": commit, "siblings": siblings}
            if counts := self.hub.counts.get(repo):
                info["safetensors"] = {"parameters": counts, "total": sum(counts.values())}
            data = json.dumps(info).encode()
            self.hub.branch = MOVED if self.hub.moves_to else COMMIT
            self._send(200, {"Content-Type": "application/json"}, data, len(data), body)

    def _tree(self, repo: str, revision: str, body: bool) -> None:
        if self._known(repo, revision):
            paths = sorted(self._root(repo, revision).iterdir())
            files = [
                {"type": "file", "path": p.name, "size": p.stat().st_size, "oid": "0" * 40}
                for p in paths
            ]
            data = json.dumps(files).encode()
            self._send(200, {"Content-Type": "application/json"}, data, len(data), body)

    def _file(self, repo: str, revision: str, name: str, body: bool) -> None:
        if not self._known(repo, revision):
            return
        if repo in self.hub.gated and self.headers.get("Authorization") != "Bearer hf_good":
            self._refuse(401, "GatedRepo")
            return
        path = self._root(repo, revision) / name
        if not path.is_file():
            self._refuse(404, "EntryNotFound")
            return
        size = path.stat().st_size
        wanted = self.headers.get("Range") if self.hub.ranges else None
        start, stop = 0, size
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            start, stop = int(first), min(size, int(last) + 1)
            if start >= size:
                self._send(416, {"Content-Range": f"bytes */{size}"}, b"", 0, body)
                return
        headers = {"X-Repo-Commit": self._commit(revision), "ETag": f'"{path.name}-{size}"'}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(min(stop - start, 2**24)) if body else b""
        if self.hub.drip and body and not wanted and name.endswith(".safetensors"):
            self._drip(headers, data)
            return
        self._send(206 if wanted else 200, headers, data, stop - start, body)

    def _drip(self, headers: dict[str, str], data: bytes) -> None:
        self._send(200, headers, b"", len(data), True)
        try:
            for i in range(len(data)):
                self.wfile.write(data[i : i + 1])
                time.sleep(self.hub.drip)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, {"X-Error-Code": code}, b"", 0, True)

    def _send(
        self, status: int, headers: dict[str, str], data: bytes, length: int, body: bool
    ) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if body:
                self.wfile.write(data)
                with self.hub.lock:
                    self.hub.sent += len(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def in_place_of_the_hub(
    folder: Path, cache: Path, monkeypatch: "pytest.MonkeyPatch"
) -> Iterator[Hub]:
    """What is asked of the Hub within is answered from `folder`, and kept in `cache`."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with serve(Hub(folder=folder)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache.with_name("token")))
        yield server
