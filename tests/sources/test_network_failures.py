"""What a network can do to an audit: each kind of failure is one line, soon, and without a secret.

The server tells back what it was sent, in its reason phrase, a header and its body, as a debugging
proxy does.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from checkpoints import LLAMA_CONFIG
from headcount.cli import main
from headcount.sources.connection.http_client import Client, UnreachableError
from lowered_limits import Lower

TOKEN = "hf_" + "TokenOfATest" * 3
ENDPOINT_PASSWORD = "endpoint/pass word@1"
PROXY_PASSWORD = "proxy+pass:word&2"
SIGNATURE = "0123456789abcdef" * 4
SECRETS = (TOKEN, ENDPOINT_PASSWORD, PROXY_PASSWORD, SIGNATURE)
COMMIT = "c" * 40

Answer = Iterable[bytes]


def forms(secret: str) -> set[str]:
    plain = {secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1]}
    logins = {f"{user}:{secret}".encode() for user in ("euser", "puser")}
    return plain | {b64encode(data).decode().rstrip("=") for data in (secret.encode(), *logins)}


def http(status: str, body: bytes = b"", /, length: int | None = None, **headers: str) -> bytes:
    told = {"Content-Length": str(len(body) if length is None else length), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in told.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1") + body


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


def told_back(request: str) -> str:
    """The logins of a request, as they are and decoded."""
    found = []
    for line in request.split("\r\n"):
        if "uthorization: " in line:
            value = line.partition(": ")[2]
            found.append(value)
            if value.startswith("Basic "):
                found.append(b64decode(value.removeprefix("Basic ")).decode())
    return " ".join(found)


def refused(status: str, code: str = "", **headers: str) -> Callable[[str], Answer]:
    def answer(request: str) -> Answer:
        said = told_back(request)
        yield http(
            f"{status} not for {said}", said.encode(), X_Error_Code=code, X_Said=said, **headers
        )

    return answer


def said(body: str, /, **headers: str) -> Callable[[str], Answer]:
    """A whole answer; `{}` in it is what the client sent of its logins."""

    def answer(request: str) -> Answer:
        yield http("200 OK", body.replace("{}", told_back(request)).encode(), **headers)

    return answer


def sent(*pieces: bytes, forever: bytes = b"", wait: float = 0.0) -> Callable[[str], Answer]:
    """Raw bytes, then `forever` again and again, each after a `wait` in seconds."""

    def answer(request: str) -> Answer:
        yield from pieces
        until = time.monotonic() + 20
        while forever and time.monotonic() < until:
            time.sleep(wait)
            yield forever

    return answer


def silent(request: str) -> Answer:
    time.sleep(1.5)
    return ()


def moved(location: str) -> Callable[[str], Answer]:
    return refused("302 Found", Location=location)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`answer` stands in the place of a good one to the request that has `at` in it; `words` are in
    the message. `settings` are variables of the environment; `asks`: a server is reached at all."""

    words: str
    answer: Callable[[str], Answer] = silent
    at: str = "/api/"
    settings: dict[str, str] = field(default_factory=dict)
    asks: bool = True


WEIGHTS = "model.safetensors"
_SLOW = head("200 OK", "Content-Length: 1000")
_CHUNKED = head("200 OK", "Transfer-Encoding: chunked")
_DIRECT = {"no_proxy": "*", "HF_ENDPOINT": "http://127.0.0.1:{port}"}
KINDS: dict[str, Kind] = {
    # Nothing, or no HTTP.
    "closed at once": Kind(words="closed connection", answer=sent()),
    "silence": Kind(words="timed out"),
    "no HTTP": Kind(words="SSH-2.0", answer=sent(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")),
    "bytes": Kind(words="out of reach", answer=sent(b"\xff\x00\x80" * 99 + b"\r\n\r\n")),
    "a status of words": Kind(words="HTTP/1.1 OK", answer=sent(b"HTTP/1.1 OK fine\r\n\r\n")),
    "a long status line": Kind(words="status line", answer=sent(b"HTTP/1.1 200 " + b"a" * 10**6)),
    "a status line in drops": Kind(
        words="too slowly", answer=sent(b"HTTP/1.1 200 ", forever=b"a", wait=0.05)
    ),
    # Headers.
    "ten thousand headers": Kind(
        words="100 headers", answer=sent(head("200 OK", *[f"X-{i}: {i}" for i in range(10_000)]))
    ),
    "a header without end": Kind(
        words="header line", answer=sent(b"HTTP/1.1 200 OK\r\nX: ", forever=b"a" * 2**16)
    ),
    "headers in drops": Kind(
        words="too slowly", answer=sent(b"HTTP/1.1 200 OK\r\n", forever=b"X: 1\r\n", wait=0.05)
    ),
    "go on, go on": Kind(
        words="sends more than", answer=sent(forever=b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)
    ),
    "a negative length": Kind(
        words="not JSON", answer=sent(head("200 OK", "Content-Length: -5"), b"{")
    ),
    # Bodies.
    "a byte at a time": Kind(words="too slowly", answer=sent(_SLOW, forever=b"a", wait=0.05)),
    "shorter than announced": Kind(words="991 bytes before", answer=sent(_SLOW, b"a" * 9)),
    "chunks without end": Kind(
        words="above 65,536 bytes",
        answer=sent(_CHUNKED, forever=b"1000\r\n" + b"a" * 4096 + b"\r\n"),
    ),
    "chunks of no size": Kind(words="IncompleteRead", answer=sent(_CHUNKED, b"zz\r\n{}\r\n")),
    "a chunk cut short": Kind(words="IncompleteRead", answer=sent(_CHUNKED, b"ff\r\n{")),
    "trailers without end": Kind(
        words="sends more than", answer=sent(_CHUNKED, b"0\r\n", forever=b"X: 1\r\n" * 9000)
    ),
    "a bomb of gzip": Kind(
        words="encoding 'gzip'", answer=said("\x1f\x8b", Content_Encoding="gzip")
    ),
    "an encoding of its own": Kind(
        words="encoding", answer=said("{}", Content_Encoding="x-{}" + "y" * 999)
    ),
    "a long answer": Kind(words="above 65,536 bytes", answer=said("[" * 10**6)),
    "an empty answer": Kind(words="not JSON", answer=said("")),
    "no JSON": Kind(words="not JSON", answer=said("{} is who you are")),
    "a list": Kind(words="JSON object", answer=said('["{}"]')),
    "other bytes": Kind(
        words="not UTF-8", answer=lambda request: [http("200 OK", b"\xff\xfe{\0}\0")]
    ),
    "depth": Kind(words="nested too deeply", answer=said("[" * 60_000)),
    "a key twice": Kind(words="stands twice", answer=said('{"{}": 1, "{}": 2}')),
    "a login page": Kind(words="HTML page", answer=said("<!DOCTYPE html><p>Hello {}")),
    "no commit": Kind(words="names no commit", answer=said('{"siblings": []}')),
    "a short commit": Kind(words="names no commit", answer=said('{"sha": "abc"}')),
    "a commit of ours": Kind(words="names no commit", answer=said('{"sha": "{}"}')),
    "no files": Kind(words="no config.json", answer=said(f'{{"sha": "{COMMIT}", "siblings": 7}}')),
    # Refusals.
    "401": Kind(words="hf auth login", answer=refused("401")),
    "403": Kind(words="access is restricted", answer=refused("403", "GatedRepo")),
    "404": Kind(words="check the name", answer=refused("404", "RepoNotFound")),
    "no revision": Kind(words="no revision", answer=refused("404", "RevisionNotFound")),
    "407": Kind(words="wants another login", answer=refused("407")),
    "429": Kind(words="again in 17 seconds", answer=refused("429", Retry_After="17")),
    "429, some time": Kind(words="again later", answer=refused("429", Retry_After="9" * 5000)),
    "500": Kind(words="status 500", answer=refused("500")),
    "503": Kind(words="status 503", answer=refused("503", Retry_After="17")),
    "204": Kind(words="status 204", answer=refused("204")),
    # Redirects.
    "round in circles": Kind(words="without end", answer=moved("?again")),
    "to half an address": Kind(words="no http address", answer=moved("http://[::1")),
    "to nowhere": Kind(words="redirects to nowhere", answer=moved("")),
    "to a file": Kind(words="no http address", answer=moved("file:///etc/passwd")),
    "to two slashes": Kind(words="without end", answer=moved("//")),
    "to another scheme": Kind(words="no http address", answer=moved("ftp://127.0.0.1/")),
    "to a port that is none": Kind(words="no http address", answer=moved("http://a:99999/")),
    "to a login": Kind(
        words="no http address", answer=moved(f"gopher://euser:{quote(ENDPOINT_PASSWORD)}@h/")
    ),
    "to a signature": Kind(
        words="no http address", answer=moved(f"ftp://h/f?X-Amz-Signature={SIGNATURE}&a=b")
    ),
    "to a signature, in vain": Kind(
        words="refused", answer=moved(f"http://[::1]:1/?sig={SIGNATURE}"), settings=_DIRECT
    ),
    "to a zone": Kind(
        words="out of reach", answer=moved("http://[fe80::1%25none]:1/"), settings=_DIRECT
    ),
    "to a long name": Kind(
        words="out of reach", answer=moved(f"http://{'a' * 300}/"), settings=_DIRECT
    ),
    "to a space": Kind(words="control characters", answer=moved("/a b")),
    # The files behind the first answer.
    "no config": Kind(words="no config.json", at="config", answer=refused("404", "EntryNotFound")),
    "a gated config": Kind(words="restricted", at="config", answer=refused("401", "GatedRepo")),
    "a page for a config": Kind(words="HTML", at="config", answer=said("<html>{}")),
    "a config in drops": Kind(
        words="too slowly", at="config", answer=sent(_SLOW, forever=b" ", wait=0.05)
    ),
    "a redirected config": Kind(
        words="no http address", at="config", answer=moved("data:,{}"), settings={}
    ),
    "weights out of order": Kind(words="status 502", at=WEIGHTS, answer=refused("502")),
    "no weights": Kind(words="no model.safe", at=WEIGHTS, answer=refused("404", "EntryNotFound")),
    "weights of no size": Kind(
        words="size of the file", at=WEIGHTS, answer=sent(head("200 OK", "X: 1"), b"a" * 99)
    ),
    "weights that are text": Kind(words="safetensors", at=WEIGHTS, answer=said("{} " * 99)),
    "an empty file": Kind(
        words="model.safetensors", at=WEIGHTS, answer=refused("416", Content_Range="bytes */0")
    ),
    "a range that is not there": Kind(
        words="model.safetensors", at=WEIGHTS, answer=refused("416", Content_Range="bytes */99")
    ),
    **{
        f"the range {told[:20]!r}": Kind(
            words="other bytes",
            at=WEIGHTS,
            answer=lambda request, told=told: [http("206 OK", b"abcdefgh", Content_Range=told)],
        )
        for told in (
            *("", "bytes 8-15/99", "bytes 0-6/99", "bytes 0-7/4", "bytes 7-0/99"),
            *(f"bytes 0-7/{'9' * 5000}", "bytes ²-7/99", "lines 0-7/99"),
        )
    },
    # Settings.
    "a token with a line break": Kind(
        words="HF_TOKEN: holds",
        settings={"HF_TOKEN": f"{TOKEN}\n{TOKEN}", "HF_ENDPOINT": "http://hub.invalid"},
        asks=False,
    ),
    "an endpoint that is cut": Kind(
        words="HF_ENDPOINT", settings={"HF_ENDPOINT": f"http://euser:{TOKEN}@[::1"}, asks=False
    ),
    "an endpoint with a raw slash": Kind(
        words="HF_ENDPOINT",
        settings={"HF_ENDPOINT": f"http://euser:{ENDPOINT_PASSWORD}@h"},
        asks=False,
    ),
    "an endpoint by ftp": Kind(
        words="HF_ENDPOINT", settings={"HF_ENDPOINT": f"ftp://euser:{TOKEN}@h"}, asks=False
    ),
    "a proxy of another kind": Kind(
        words="http_proxy", settings={"http_proxy": f"socks5://puser:{TOKEN}@h:1"}, asks=False
    ),
    "a proxy with a raw slash": Kind(
        words="http_proxy", settings={"http_proxy": "puser:endpoint/pass word@1@h:1"}, asks=False
    ),
    "nobody listens": Kind(
        words="refused", settings={"http_proxy": f"http://puser:{TOKEN}@127.0.0.1:1"}, asks=False
    ),
    "no certificates": Kind(
        words="SSL_CERT_FILE",
        settings={"SSL_CERT_FILE": "/nowhere", "HF_ENDPOINT": "https://127.0.0.1"},
        asks=False,
    ),
    "a tunnel that is refused": Kind(
        words="407", at="CONNECT", answer=refused("407"), settings={"HF_ENDPOINT": "https://hub"}
    ),
    "a tunnel to nowhere": Kind(
        words="502", at="CONNECT", answer=refused("502"), settings={"HF_ENDPOINT": "https://hub"}
    ),
    "a tunnel without TLS": Kind(
        words="SSL", at="CONNECT", answer=said("{}"), settings={"HF_ENDPOINT": "https://hub"}
    ),
    "a tunnel of headers": Kind(
        words="out of reach",
        at="CONNECT",
        answer=sent(b"HTTP/1.1 200 OK\r\n", forever=b"X: 1\r\n" * 9000),
        settings={"HF_ENDPOINT": "https://hub"},
    ),
}


@dataclass(kw_only=True)
class Server:
    """A Hub, or the proxy before it, in which one answer is as `kind` has it."""

    kind: Kind
    port: int = 0
    requests: list[str] = field(default_factory=list)

    def answer(self, request: str) -> Answer:
        line = request.partition("\r\n")[0]
        if self.kind.at in line:
            return self.kind.answer(request)
        if "/api/" in line:
            files = [{"rfilename": name} for name in ("config.json", WEIGHTS)]
            return said(f'{{"sha": "{COMMIT}", "siblings": {files}}}'.replace("'", '"'))(request)
        body = b'{"model_type": "llama"}'
        told = f"bytes 0-{len(body) - 1}/{len(body)}"
        return [http("206 Partial Content", body, Content_Range=told)]


@contextmanager
def serve(kind: Kind) -> Iterator[Server]:
    server, listener = Server(kind=kind), socket.create_server(("127.0.0.1", 0), backlog=64)
    server.port = listener.getsockname()[1]

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=speak, args=(server, connection), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def speak(server: Server, connection: socket.socket) -> None:
    with connection, suppress(OSError):
        request = b""
        while b"\r\n\r\n" not in request:
            piece = connection.recv(2**16)
            if not piece:
                return
            request += piece
        server.requests.append(request.decode("latin-1"))
        for piece in server.answer(server.requests[-1]):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(2**16)  # so that what was sent is not lost with the connection


def environment(server: Server, login: bool) -> dict[str, str]:
    """All three secrets; the endpoint is reached through the proxy, with its login or the token."""
    user = f"euser:{quote(ENDPOINT_PASSWORD, safe='')}@" if login else ""
    proxy = f"http://puser:{quote(PROXY_PASSWORD, safe='')}@127.0.0.1:{server.port}"
    return {
        "HF_TOKEN": TOKEN,
        "HF_ENDPOINT": f"http://{user}hub.invalid",
        **{"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "", "SSL_CERT_FILE": ""},
        "MIRROR": f"https://euser:{quote(ENDPOINT_PASSWORD, safe='')}@elsewhere.invalid",
    }


@pytest.fixture(autouse=True)
def alone(
    monkeypatch: pytest.MonkeyPatch, lower: Lower, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing in a cache, no proxy, and a first answer of no more than 64 KiB."""
    lower("INDEX_BYTES", 2**16)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path_factory.getbasetemp() / "none"))
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def hurry(lower: Lower, words: str) -> None:
    """Tenths of seconds for what is to fail by a limit of time; the others may take theirs."""
    if words == "timed out":
        lower("READ_SECONDS", 0.3)
    if words == "too slowly":
        lower("SLOW_SECONDS", 0.3)


@pytest.mark.parametrize(
    ("login", "debug"),
    [
        pytest.param(False, False, id="token"),
        pytest.param(True, True, id="login, debug"),
        pytest.param(True, False, id="login", marks=pytest.mark.slow),
        pytest.param(False, True, id="token, debug", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_a_failure_is_one_line_without_a_secret(
    monkeypatch: pytest.MonkeyPatch, lower: Lower, name: str, login: bool, debug: bool
) -> None:
    kind = KINDS[name]
    hurry(lower, kind.words)
    with serve(kind) as server:
        for variable, value in {**environment(server, login), **kind.settings}.items():
            monkeypatch.setenv(variable, value.replace("{port}", str(server.port)))
        monkeypatch.setattr(constants, "ENDPOINT", os.environ["HF_ENDPOINT"])
        began = time.monotonic()
        result = CliRunner().invoke(main, [*(["--debug"] if debug else []), "audit", "org/model"])
    assert time.monotonic() - began < 7
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert ("Traceback" in result.stderr) == debug
    message = result.stderr[result.stderr.index("\nError: ") if debug else 0 :]
    assert kind.words in message
    assert message.strip().count("\n") <= 1  # behind the line that says who is asked
    shown = (result.stdout_bytes + result.stderr_bytes).decode()
    assert not [form for secret in SECRETS for form in forms(secret) if form in shown]
    if kind.asks:
        asked = " ".join(map(told_back, server.requests))
        direct = "no_proxy" in kind.settings
        assert (PROXY_PASSWORD in asked) != direct
        if kind.at != "CONNECT":
            named = login and not direct
            assert (ENDPOINT_PASSWORD if named else f"Bearer {TOKEN}") in asked


def test_there_are_more_than_fifty_kinds() -> None:
    assert len(KINDS) > 50


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("name", ["a key twice", "to a login"])
def test_a_process_tells_no_more(tmp_path: Path, name: str, debug: bool) -> None:
    kind = KINDS[name]
    with serve(kind) as server:
        done = subprocess.run(
            [sys.executable, "-m", "headcount", *(["--debug"] if debug else []), "audit", "org/m"],
            env={**os.environ, **environment(server, True), **kind.settings}
            | {"HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)},
            capture_output=True,
        )
    shown = (done.stdout + done.stderr).decode()
    assert (done.returncode, kind.words in shown, "Traceback" in shown) == (2, True, debug)
    assert not [form for secret in SECRETS for form in forms(secret) if form in shown]


def test_the_cached_snapshot_is_used_without_a_word_of_the_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = KINDS["503"]
    snapshot = tmp_path / "models--org--model/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs/main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with serve(kind) as server:
        for variable, value in environment(server, True).items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(constants, "ENDPOINT", os.environ["HF_ENDPOINT"])
        result = CliRunner().invoke(main, ["audit", "org/model"])
    assert (result.exit_code, "using the cached snapshot" in result.stderr) == (0, True)
    assert not [form for secret in SECRETS for form in forms(secret) if form in result.output]


def test_what_is_left_of_a_slow_hub_is_bounded(lower: Lower) -> None:
    """Fast enough a byte at a time, but without an end: the whole answer has its time, too."""
    lower("SLOWEST", 1)
    lower("ANSWER_SECONDS", 0.5)
    kind = Kind(words="", at="/", answer=sent(_SLOW, forever=b"a", wait=0.02))
    began = time.monotonic()
    with serve(kind) as server, Client() as client, pytest.raises(UnreachableError, match="slowly"):
        client.get(f"http://127.0.0.1:{server.port}/", {}, 1000)
    assert 0.4 < time.monotonic() - began < 3
