"""A small HTTP client: GET with byte ranges, many at once, over connections that stay open.

Why not the session of huggingface_hub: importing it takes longer than reading two hundred headers,
it keeps no more than 20 connections open, and it retries for half a minute without a network.
Proxies (`HTTPS_PROXY`, `NO_PROXY`) and certificates (`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, or
certifi) are followed as there. A redirect to another host does not get the token.
"""

import http.client
import os
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from headcount.model import limits
from headcount.model.errors import HeadcountError


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
        """The answer to a GET, redirects followed, and no more than `limit` bytes of its body.

        Raises UnreachableError.
        """
        headers = {"Accept-Encoding": "identity", **headers}
        for _ in range(limits.REDIRECTS.most + 1):
            parts = urlsplit(url)
            try:
                answer = self._request(parts, headers, limit)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
                raise UnreachableError(f"{parts.scheme}://{parts.netloc}: {reason}") from error
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            url = urljoin(url, answer.headers.get("location", ""))
            if urlsplit(url)[:2] != parts[:2]:
                headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
            if (parts.scheme, urlsplit(url).scheme) == ("https", "http"):
                raise UnreachableError(f"{parts.netloc}: leads from https to http")
        raise UnreachableError(f"{parts.scheme}://{parts.netloc}: redirects without end")

    def _request(self, parts: SplitResult, headers: Mapping[str, str], limit: int) -> Response:
        """One request; a connection that was idle may be dead, then a new one is tried."""
        place = (parts.scheme, parts.netloc)
        idle = self._idle.setdefault(place, [])
        if place not in self._proxies:  # looking takes half as long as a request
            self._proxies[place] = _find_proxy(parts)
        proxy = self._proxies[place]
        try:
            connection = idle.pop()
        except IndexError:
            connection, fresh = _connect(parts, proxy), True
        else:
            fresh = False
        try:
            whole = proxy is not None and parts.scheme == "http"
            answer, reusable = _exchange(connection, _target(parts, whole=whole), headers, limit)
        except (OSError, http.client.HTTPException):
            connection.close()
            if fresh:
                raise
            return self._request(parts, headers, limit)
        if reusable and not self._closed:
            idle.append(connection)
        else:
            connection.close()
        return answer


def _exchange(
    connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str], limit: int
) -> tuple[Response, bool]:
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
    data = bytearray()
    while len(data) < limit:
        chunk = response.read(min(limit - len(data), 2**20))
        if not chunk:
            break
        data += chunk
    if not response.isclosed() and response.length == 0:
        response.close()
    return bytes(data)


def _connect(parts: SplitResult, proxy: SplitResult | None) -> http.client.HTTPConnection:
    """An open connection to the server of `parts`, or to the proxy that leads there."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an http address: {parts.geturl()!r}")
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
            connection.set_tunnel(parts.hostname, parts.port or 443, headers=_login(proxy))
    else:
        connection = http.client.HTTPConnection(
            via.hostname, via.port, timeout=limits.CONNECT_SECONDS.most
        )
    connection.connect()
    connection.sock.settimeout(limits.READ_SECONDS.most)
    return connection


def _find_proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy of the environment or, on Windows and macOS, of the system; None: there is none."""
    from_system = sys.platform in ("win32", "darwin")
    if not from_system and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # so that most need not wait for urllib.request, a large import
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    found = urlsplit(address if "://" in address else f"http://{address}")
    if found.scheme != "http" or not found.hostname:
        raise ValueError(f"proxy {address!r} is not supported: give an http:// proxy")
    return found


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    from base64 import b64encode
    from urllib.parse import unquote

    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


@cache
def _certificates() -> ssl.SSLContext:
    """The authorities to trust: the user's bundle, certifi's, or the system's."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if os.environ.get(name):
            return ssl.create_default_context(cafile=os.environ[name])
    try:
        certifi: Any = import_module("certifi")
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())
