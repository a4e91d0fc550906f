"""Secrets in text: found by their value in any spelling, and by their place."""

import json
import os
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.model.errors import HeadcountError
from headcount.model.redaction import redact, redacted, secrets_of, without_secrets

SECRET = "pass/word+é~\n?>second line"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        repr(SECRET),
        repr(SECRET.encode()),
        json.dumps(SECRET),
        ascii(SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        b64encode(SECRET.encode()).decode(),
        *(b64encode(b"x" * n + b":" + SECRET.encode() + b"y").decode() for n in range(4)),
        urlsafe_b64encode(b"user:" + SECRET.encode()).decode(),
        SECRET.partition("\n")[0],
        SECRET.partition("\n")[2],
        f"cut {SECRET[:9]}…",
    ],
)
def test_every_spelling_is_found(shown: str) -> None:
    text = redact(f"before={shown} after", frozenset({SECRET}))
    assert "***" in text and text.startswith("before=") and text.endswith((" after", "…"))
    assert not [part for part in ("pass", "word", "second", "line") if part in text]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET https://u:p@h:8/a@b failed", "GET https://***@h:8/a@b failed"),
        ("socks5h://tok@h, x", "socks5h://***@h, x"),
        ("at 'https://h/f?a=b&X-Amz-Signature=0f' x", "at 'https://h/f?***' x"),
        ("/f?X-Amz-Signature=0f&e=1", "/f?X-Amz-Signature=***&e=1"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': 'Bearer ***'}"),
        ("proxy-authorization: Basic dTpw\r\n", "proxy-authorization: Basic ***\r\n"),
        (f"token hf_{'a1' * 17} is", "token hf_*** is"),
        ("https://h/f#part and org/name@main, a@b.c", "https://h/f#part and org/name@main, a@b.c"),
    ],
)
def test_places_of_secrets_are_masked(text: str, left: str) -> None:
    assert redact(text, frozenset()) == left


def test_the_environment_is_searched_for_logins() -> None:
    environ = {
        "HF_TOKEN": "hf_x",
        "HF_ENDPOINT": "https://euser:e%40pw@h/p",
        "https_proxy": "puser:p@raw/pw@h:1",  # no scheme, characters that end an address
        "PIP_INDEX_URL": "https://iuser:ipw@h/simple",
        "TOKEN_ONLY": "https://only@h",
        "MAIL": "me@h",
        "PATH": "/bin",
    }
    assert secrets_of(environ) - {""} == {
        *("hf_x", "euser:e%40pw", "e%40pw", "puser:p@raw/pw", "p@raw/pw", "puser:p"),
        *("p", "iuser:ipw", "ipw", "only"),
    }
    assert set(without_secrets(environ)) == {"MAIL", "PATH"}
    shown = redact("e@pw, only, ipw and word", secrets_of(environ))
    assert shown == "***, ***, *** and word"


def test_a_short_secret_masks_no_part_of_a_word() -> None:
    assert redact("bypass pass, p", frozenset({"pass", "p"})) == "bypass ***, p"


@given(st.text(max_size=80), st.frozensets(st.text(max_size=12), max_size=3))
def test_any_text_and_any_secrets(text: str, secrets: frozenset[str]) -> None:
    shown = redact(text, secrets)
    assert not [s for s in secrets if len(s) >= 8 and s.strip() == s and s in shown]


def test_errors_of_ours_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-token-of-a-test")
    assert str(HeadcountError("x a-token-of-a-test y")) == "x *** y"
    assert redacted("https://u:p@h") == "https://***@h"


@pytest.mark.parametrize(
    "does",
    [
        "raise ValueError(token)",
        "import threading; t = threading.Thread(target=int, args=(token,)); t.start(); t.join()",
        "import warnings; warnings.warn(token)",
        "C = type('C', (), {'__del__': lambda self: int(token)}); C()",
        "import logging\nwith redacted_logs():\n  logging.warning('to %s', token)",
        "import logging\nwith redacted_logs():\n  try: int(token)\n"
        "  except ValueError: logging.exception('no')",
    ],
)
def test_what_python_writes_by_itself_is_redacted(does: str) -> None:
    """Errors that nobody catches, in threads and finalizers; warnings and logs of libraries."""
    code = (
        "import os\nfrom headcount.model.redacted_output import redact_hooks, redacted_logs\n"
        f"redact_hooks()\ntoken = os.environ['HF_TOKEN']\n{does}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_TOKEN": "a-token-of-a-test"},
        capture_output=True,
        text=True,
    )
    assert "***" in done.stderr
    assert "a-token-of-a-test" not in done.stdout + done.stderr
