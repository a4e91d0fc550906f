"""How the Hub is reached: its address, the login or token, and huggingface_hub's settings.

Messages name the variable and never its content.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from headcount.model.errors import HeadcountError
from headcount.model.redaction import TOKEN_VARIABLES, remember_secret

from .connection.proxy import basic_login

_ENDPOINT = "HF_ENDPOINT"


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`url` without a login and without a slash at its end; `login` is the header that holds it."""

    url: str
    login: Mapping[str, str] = field(repr=False)


def hub_constants() -> ModuleType:
    """The settings that huggingface_hub has read from the environment. Raises HeadcountError."""
    if _ENDPOINT in os.environ:
        read_endpoint(os.environ[_ENDPOINT])
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise HeadcountError(
            f"a setting of huggingface_hub in the environment (HF_…) has no valid value: {error}"
        ) from error
    return constants


def read_endpoint(text: str) -> Endpoint:
    """The Hub's address, with a login that it may hold as a header of its own: the only one that
    is sent, as huggingface_hub does it. Raises HeadcountError."""
    try:
        parts = urlsplit(text.rstrip("/"))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", text):
        raise HeadcountError(
            f"{_ENDPOINT}: is no address of a Hub: give https://host[:port], with special"
            " characters of a login as %XX"
        )
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return Endpoint(url=url, login=basic_login("Authorization", parts))


def login(constants: ModuleType, endpoint: Endpoint) -> Mapping[str, str]:
    """The header that says who asks: of the endpoint's login, else of the token; empty for none.
    Raises HeadcountError for a token that cannot be sent."""
    if endpoint.login or constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return endpoint.login
    token = _token(constants.HF_TOKEN_PATH)
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token(path: str) -> str | None:
    """The token of HF_TOKEN or of `hf auth login`; huggingface_hub's own reader takes 0.3 s."""
    for name in TOKEN_VARIABLES:
        if os.environ.get(name):
            return _sendable(name, os.environ[name].strip())
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    remember_secret(token)
    return _sendable(path, token) or None


def _sendable(where: str, token: str) -> str:
    if re.fullmatch(r"[\x21-\x7e]*", token) is None:
        raise HeadcountError(
            f"{where}: holds a line break, a space or another character that no token has: set it"
            " to the token alone (https://huggingface.co/settings/tokens), or unset it"
        )
    return token
