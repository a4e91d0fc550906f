"""Secrets taken out of text before anybody sees it: tokens, passwords in addresses, signatures.

An error of a library may quote a header, an address or a setting. What is a secret is known in two
ways: by its value, wherever it stands (the token, the passwords in addresses of the environment),
and by its place (before the `@` of any address, in a query, behind `Authorization`).
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

MASK = "***"
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_SHORTEST = 3  # shorter values are words of any text: they are masked by their place alone
_DISTINCT = 8  # so long a value is looked for inside of words, too

_PLACES = (
    (r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#'\"<>]*@", rf"\1{MASK}@"),
    (r"(?i)\b(https?://[^\s?#'\"<>]+)\?[^\s'\"<>]+", rf"\1?{MASK}"),
    (
        r"(?i)\b(x-(?:amz|goog)-[a-z-]+=|(?:access_)?token=|sig(?:nature)?=)[^&\s'\"<>]+",
        rf"\1{MASK}",
    ),
    (r"(?i)(authorization\W{1,6}(?:b['\"])?(?:basic|bearer|digest)\s+)[^\s'\",]+", rf"\1{MASK}"),
    (r"(?i)(\bbearer\s+)[^\s'\",]{8,}", rf"\1{MASK}"),
    (r"\bhf_[A-Za-z0-9]{20,}", f"hf_{MASK}"),
)

# Secrets that were read from files; those of the environment are looked up when they are needed.
_from_files: set[str] = set()


def remember_secret(secret: str) -> None:
    """Keeps `secret`, which no variable of the environment holds, out of what is shown."""
    _from_files.add(secret)


def redacted(text: str) -> str:
    """`text` without the secrets of this process."""
    return redact(text, secrets_of(os.environ) | _from_files)


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """The tokens in `environ`, and the logins in its addresses."""
    found = {environ[name] for name in TOKEN_VARIABLES if name in environ}
    for name, value in environ.items():
        if "@" in value:
            found.update(_logins(name, value))
    return frozenset(found)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` for a program that needs no network: without the variables that hold a secret."""
    return {name: value for name, value in environ.items() if not secrets_of({name: value})}


def _logins(name: str, value: str) -> Iterator[str]:
    """`user:password` and the password of an address, as they are written there."""
    address = name.upper() == "HF_ENDPOINT" or name.lower().endswith("_proxy")
    scheme, there, rest = value.partition("://")
    if not there and not address:
        return
    rest = rest if there else scheme
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    # A password may hold the characters that end an address: what is before the last @ is meant.
    for login in {authority.rpartition("@")[0], rest.rpartition("@")[0] if address else ""}:
        yield login
        yield login.partition(":")[2]


def redact(text: str, secrets: frozenset[str]) -> str:
    """`text` with a mask for each of `secrets`, in any spelling that a program would give it, and
    for what stands where secrets do."""
    pattern = _pattern(secrets)
    if pattern is not None:
        text = pattern.sub(MASK, text)
    for place, mask in _PLACES:
        text = re.sub(place, mask, text)
    return text


@lru_cache(maxsize=8)
def _pattern(secrets: frozenset[str]) -> "re.Pattern[str] | None":
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
    if not forms:
        return None
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile("|".join(map(_searched, longest_first)), re.IGNORECASE)


def _searched(form: str) -> str:
    """The expression for one spelling; of a long one also its beginning, where a text was cut."""
    whole = re.escape(form)
    if len(form) < _DISTINCT:
        return rf"(?<![^\W_]){whole}(?![^\W_])"
    return rf"{whole}|{re.escape(form[:_DISTINCT])}[^\s…]*…"


def _forms(secret: str) -> Iterator[str]:
    """The secret as it is, each line of it, and both as Python, addresses and base64 write them."""
    from json import dumps
    from urllib.parse import quote, quote_plus, unquote

    for whole in {secret.strip(), unquote(secret).strip()}:
        for text in {whole, *(line.strip() for line in whole.splitlines())}:
            data = text.encode("utf-8", "surrogateescape")
            yield text
            yield repr(text)[1:-1]
            yield repr(data)[2:-1]
            yield ascii(text)[1:-1]
            yield dumps(text)[1:-1]
            yield quote(text, safe="", errors="replace")
            yield quote(text, errors="replace")
            yield quote_plus(text, errors="replace")
            yield from _in_base64(data)


def _in_base64(data: bytes) -> Iterator[str]:
    """The characters that `data` alone decides, wherever in a longer text it begins."""
    from base64 import b64encode

    if len(data) < _SHORTEST:
        return
    for before in range(3):
        coded = b64encode(bytes(before) + data).decode()
        inside = coded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield inside
        yield inside.translate({ord("+"): "-", ord("/"): "_"})
