"""The proxy that leads to a server, and the login it wants."""

import os
import sys
from urllib.parse import SplitResult, urlsplit

from headcount.model.errors import HeadcountError


def find_proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy of the environment or, on Windows and macOS, of the system; None: there is none.

    Raises HeadcountError, which does not quote the address: it may hold a password.
    """
    from_system = sys.platform in ("win32", "darwin")
    if not from_system and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # so that most need not wait for urllib.request, a large import
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    kind = parts.scheme if proxies.get(parts.scheme) else "all"
    address = proxies.get(kind)
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    try:
        found = urlsplit(address if "://" in address else f"http://{address}")
        usable = found.scheme == "http" and bool(found.hostname) and found.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise HeadcountError(
            f"{kind}_proxy: the proxy that is set there is not supported: give an http address with"
            " host and port; special characters of a user and password before the host as %XX"
        )
    return found


def login_to(proxy: SplitResult) -> dict[str, str]:
    """The header that a proxy with a login wants; empty for one without."""
    return basic_login("Proxy-Authorization", proxy)


def basic_login(header: str, address: SplitResult) -> dict[str, str]:
    """The user and password of `address` as an HTTP header; empty where it has none."""
    if address.username is None:
        return {}
    from base64 import b64encode
    from urllib.parse import unquote

    pair = f"{unquote(address.username)}:{unquote(address.password or '')}"
    return {header: f"Basic {b64encode(pair.encode('utf-8', 'surrogateescape')).decode()}"}
