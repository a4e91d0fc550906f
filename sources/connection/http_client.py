"""A small HTTP client: GET with byte ranges, many at once, over connections that stay open.

Why not the session of huggingface_hub: importing it takes longer than reading two hundred headers,
it keeps no more than 20 connections open, and it retries for half a minute without a network.
Proxies (`HTTPS_PROXY`, `NO_PROXY`) and certificates (`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, or
certifi) are followed as there. A redirect to another host does not get the token.
"""

import http.client
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from headcount.model import limits
from headcount.model.errors import HeadcountError, short
from headcount.model.redaction import redacted

from .paced_reader import PacedResponse
from .proxy import find_proxy, login_to


class UnreachableError(HeadcountError):
    """No answer: no network, no such host, a time-out, or a server that is out of order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """`body` is at most as long as was asked for; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Threads share it. It keeps connections open until it is closed, as `with` does."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._proxies: dict[tuple[str, str], SplitResult | None] = {}
        self._closed = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for connections in self._idle.values():
            while connections:
                connections.pop().close()

    def get(self, url: str, headers: Mapping[str, str], limit: int) -> Response:
        """The answer to a GET of an http address, redirects followed, and no more than `limit`
        bytes of its body.

        Raises UnreachableError, and HeadcountError for settings that cannot be followed.
        """
        headers = {"Accept-Encoding": "identity", **headers}
        parts = urlsplit(url)
        for _ in range(limits.REDIRECTS.most + 1):
            try:
                answer = self._request(parts, headers, limit)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                raise UnreachableError(f"{_server(parts)}: {reason}") from error
            if answer.status not in (301, 302, 303, 307, 308):
                return _uncompressed(parts, answer)
            before, parts = parts, _redirected(parts, answer.headers.get("location", ""))
            if parts[:2] != before[:2]:
                headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
        raise UnreachableError(f"{_server(parts)}: redirects without end")

    def _request(self, parts: SplitResult, headers: Mapping[str, str], limit: int) -> Response:
        """One request; a connection that was idle may be dead, then a new one is tried."""
        place = (parts.scheme, parts.netloc)
        idle = self._idle.setdefault(place, [])
        if place not in self._proxies:  # looking takes half as long as a request
            self._proxies[place] = find_proxy(parts)
        proxy = self._proxies[place]
        try:
            connection = idle.pop()
        except IndexError:
            connection, fresh = _connect(parts, proxy), True
        else:
            fresh = False
        whole = proxy is not None and parts.scheme == "http"
        sent = {**headers, **login_to(proxy)} if whole and proxy is not None else headers
        try:
            answer, reusable = _exchange(connection, _target(parts, whole=whole), sent, limit)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if fresh or isinstance(error, TimeoutError):
                raise
            return self._request(parts, headers, limit)
        if reusable and not self._closed:
            idle.append(connection)
        else:
            connection.close()
        return answer


def _server(parts: SplitResult) -> str:
    """The server as messages name it: without the login that an address may hold."""
    return f"{parts.scheme}://{_place(parts)}"


def _place(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _redirected(parts: SplitResult, location: str) -> SplitResult:
    """Where `location` leads from `parts`, without a login. Raises UnreachableError."""
    try:
        new = urlsplit(urljoin(parts.geturl(), location))
        http_address = new.scheme in ("http", "https") and bool(new.hostname) and new.port != 0
    except ValueError:
        http_address = False
    if not location or not http_address:
        found = short(redacted(location)) if location else "nowhere"
        raise UnreachableError(f"{_server(parts)}: redirects to {found}, which is no http address")
    if (parts.scheme, new.scheme) == ("https", "http"):
        raise UnreachableError(f"{_server(parts)}: leads from https to http")
    return new._replace(netloc=_place(new))


def _uncompressed(parts: SplitResult, answer: Response) -> Response:
    """`answer`, which is never unpacked: a few bytes could become any number of them."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnreachableError(
            f"{_server(parts)}: answers in the encoding {short(encoding)}, which was not asked for"
        )
    return answer


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str], limit: int
) -> tuple[Response, bool]:
    connection.response_class = partial(PacedResponse, most_body=limit)  # type: ignore[assignment]
    connection.request("GET", target, headers=dict(headers))
    response = connection.getresponse()
    body = _read(response, limit)
    found = {name.lower(): value for name, value in response.getheaders()}
    return Response(status=response.status, headers=found, body=body), response.isclosed()


def _target(parts: SplitResult, *, whole: bool) -> str:
    """What a request line names: a path, or for a proxy the whole address."""
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return f"http://{parts.netloc}{path}" if whole else path


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Raises ConnectionError for a body that ends before its announced length."""
    data = bytearray()
    while len(data) < limit:
        chunk = response.read(min(limit - len(data), 2**20))
        if not chunk:
            break
        data += chunk
    if len(data) < limit and response.length:
        raise ConnectionError(f"the answer ends {response.length:,} bytes before its end")
    if not response.isclosed() and response.length == 0:
        response.close()
    return bytes(data)


def _connect(parts: SplitResult, proxy: SplitResult | None) -> http.client.HTTPConnection:
    """An open connection to the server of `parts`, or to the proxy that leads there."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http address")
    via = parts if proxy is None else proxy
    assert via.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            via.hostname,
            via.port,
            timeout=limits.CONNECT_SECONDS.most,
            context=_certificates(),
        )
        if proxy is not None:
            connection.set_tunnel(parts.hostname, parts.port or 443, headers=login_to(proxy))
    else:
        connection = http.client.HTTPConnection(
            via.hostname, via.port, timeout=limits.CONNECT_SECONDS.most
        )
    connection.response_class = PacedResponse  # of a proxy that is asked to lead on
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    connection.sock.settimeout(limits.READ_SECONDS.most)
    return connection


@cache
def _certificates() -> ssl.SSLContext:
    """The authorities to trust: the user's bundle, certifi's, or the system's.

    Raises HeadcountError for a bundle that is none.
    """
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name):
            try:
                return ssl.create_default_context(cafile=os.environ[name])
            except OSError as error:
                raise HeadcountError(
                    f"{name}: {os.environ[name]}: cannot be read as certificates:"
                    f" {error.strerror or error}"
                ) from error
    try:
        certifi: Any = import_module("certifi")
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())
