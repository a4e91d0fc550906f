"""A model of the Hub, played by a server of our own: downloaded once, and only what is needed."""

import errno
import io
import json
import logging
import os
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

from conversions import contents, run
from headcount.cli import main
from headcount.sources.hub_cache import ref_file
from hub_server import COMMIT, Hub, in_place_of_the_hub
from lowered_limits import Lower

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


@pytest.fixture
def hub(sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """org/model: the sharded Llama, with a tokenizer and what a repository has besides."""
    folder = Path(shutil.copytree(sharded, tmp_path / "hub" / "org" / "model"))
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    for name in ("pytorch_model.bin", "model.gguf", "modeling_x.py", ".gitattributes"):
        (folder / name).write_text(f"content of {name}")
    with in_place_of_the_hub(tmp_path / "hub", tmp_path / "cache", monkeypatch) as server:
        yield server


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments), "--kv-heads", "2"])


def downloaded(hub: Hub) -> set[str]:
    """Names of the files whose content was asked for as a whole."""
    return {r.rsplit("/", 1)[1] for r in hub.requests if r.startswith("GET") and "/resolve/" in r}


def test_a_hub_model_is_downloaded_and_converted(hub: Hub, sharded: Path, tmp_path: Path) -> None:
    result = convert("org/model", tmp_path / "out")
    assert result.exit_code == 0, result.output
    run(sharded, tmp_path / "local")
    ours, local = contents(tmp_path / "out"), contents(tmp_path / "local")
    record = json.loads(ours.pop("conversion.json"))
    assert record["source"]["name"] == f"org/model@{COMMIT}"
    assert json.loads(ours.pop("tokenizer.json"))
    assert b"base_model: org/model" in ours.pop("README.md")
    assert ours == {
        name: data for name, data in local.items() if name not in ("conversion.json", "README.md")
    }
    assert not downloaded(hub) & {"pytorch_model.bin", "model.gguf", "modeling_x.py"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_what_is_in_the_cache_is_not_downloaded_again(hub: Hub, tmp_path: Path) -> None:
    assert convert("org/model", tmp_path / "one").exit_code == 0
    sent = hub.sent
    assert convert(f"org/model@{COMMIT}", tmp_path / "two").exit_code == 0
    again = hub.sent - sent
    assert again < sent / 2  # config and headers, which are judged first
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_offline_the_cache_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert convert("org/model", tmp_path / "one").exit_code == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    requests = len(hub.requests)
    result = convert("org/model", tmp_path / "two")
    assert result.exit_code == 0, result.stderr
    assert len(hub.requests) == requests
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    result = convert("org/other", tmp_path / "three")
    assert (result.exit_code, "out of reach" in result.stderr) == (2, True)


def test_a_dry_run_downloads_no_weights(hub: Hub, tmp_path: Path) -> None:
    result = convert("org/model", tmp_path / "out", "--dry-run", "--format", "json")
    assert result.exit_code == 0, result.stderr
    weights = sum(path.stat().st_size for path in hub.folder.glob("org/model/*.safetensors"))
    assert hub.sent < weights
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    planned = json.loads(result.stdout)
    assert convert("org/model", tmp_path / "out").exit_code == 0
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert {key: record[key] for key in ("source", "target", "files")} == {
        key: planned[key] for key in ("source", "target", "files")
    }
    assert convert("org/model", tmp_path / "out", "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kv-heads", "5"), "has 4 K/V heads; 5 would be more"),
        (("--kv-heads", "5", "--dry-run"), "has 4 K/V heads; 5 would be more"),
        (("--latent", "9999999"), "a latent of 9,999,999 saves nothing"),
        (("--sweep", "5"), "has 4 K/V heads; 5 would be more"),
    ],
)
def test_what_a_plan_refuses_is_refused_before_weights_are_downloaded(
    hub: Hub, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    sweep = options[0] == "--sweep"
    place = () if sweep else (str(tmp_path / "out"),)
    result = CliRunner().invoke(main, ["convert", "org/model", *place, *options])
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert "Error: org/model: llama: " in result.stderr and words in result.stderr
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_gated_model_needs_the_token(hub: Hub, tmp_path: Path) -> None:
    hub.gated = frozenset({"org/model"})
    result = convert("org/model", tmp_path / "out")
    assert result.exit_code == 2
    assert "hf auth login" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_token_opens_a_gated_model(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated = frozenset({"org/model"})
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert convert("org/model", tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("org/none", "neither in the catalogue nor"),
        ("org/model@nope", "no revision"),
        ("org/pickled", "no whole set of safetensors"),
        ("org/odd", "H"),
    ],
)
def test_what_cannot_be_converted_is_refused_before_the_download(
    hub: Hub, tmp_path: Path, name: str, words: str
) -> None:
    (hub.folder / "org/pickled").mkdir()
    for file in ("config.json", "pytorch_model.bin"):
        shutil.copy(hub.folder / "org/model" / file, hub.folder / "org/pickled" / file)
    odd = Path(shutil.copytree(hub.folder / "org/model", hub.folder / "org/odd"))
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 3}))
    result = convert(name, tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 3),
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), 2),
        (RuntimeError("a server that answers nonsense\nand more"), 2),
    ],
)
def test_a_download_that_fails_is_one_line(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    result = convert("org/model", tmp_path / "out")
    assert result.exit_code == code
    assert "the download failed" in result.stderr
    assert result.stderr.count("\n") == 2  # with the line that says who is asked
    assert not (tmp_path / "out").exists()


def test_what_is_downloaded_is_of_the_commit_whose_headers_were_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch moves after the first answer, to a repository without weights."""
    hub.moves_to = tmp_path / "later"
    (hub.moves_to / "org/model").mkdir(parents=True)
    (hub.moves_to / "org/model/config.json").write_text("{}")
    result = convert("org/model", tmp_path / "out")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out/conversion.json").read_text())
    assert record["source"]["name"] == f"org/model@{COMMIT}"
    assert sum("main" in request for request in hub.requests) == 1
    assert (tmp_path / "cache/models--org--model/refs/main").read_text() == COMMIT


def test_a_revision_is_no_path_out_of_the_cache(hub: Hub, tmp_path: Path) -> None:
    model = tmp_path / "cache/models--org--model"
    for revision in ("", "/etc/x", "../x", "a/../../x", "a//b", "C:x", "a\\..\\b", "."):
        assert ref_file(model, revision) is None
    assert ref_file(model, "refs/pr/1") == model / "refs/refs/pr/1"


def test_a_dry_run_offline_asks_for_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert convert("org/model", tmp_path / "one").exit_code == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    requests = len(hub.requests)
    result = convert("org/model", tmp_path / "two", "--dry-run")
    assert (result.exit_code, len(hub.requests)) == (0, requests), result.output


def test_a_download_with_logins_tells_none_of_them(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint's login goes along; what huggingface_hub logs and raises is without it."""
    monkeypatch.setenv("HF_TOKEN", "token-of-a-test")
    monkeypatch.setattr(constants, "ENDPOINT", hub.url.replace("//", "//user:secret%40word@"))
    assert convert("org/model", tmp_path / "one").exit_code == 0
    assert {token and token.split()[0] for token in hub.tokens} == {"Basic"}

    def fail(*arguments: object, **options: object) -> None:
        said = f"GET http://user:secret%40word@h/f?sig=signed of {options['headers']}"
        logging.getLogger("huggingface_hub").warning("retrying %s", said)
        raise RuntimeError(f"token-of-a-test {said}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    monkeypatch.setenv("HF_ENDPOINT", constants.ENDPOINT)
    with log_lines() as lines:
        result = CliRunner().invoke(
            main, ["--debug", "convert", "org/model", str(tmp_path / "two"), "--kv-heads", "2"]
        )
    assert (result.exit_code, "the download failed" in result.stderr) == (2, True)
    shown = result.output + lines.getvalue()
    assert "retrying GET http://***@h/f?*** of" in lines.getvalue()
    coded = b64encode(b"user:secret@word").decode()
    for secret in ("token-of-a-test", "secret%40word", "secret@word", "signed", coded):
        assert secret not in shown


def test_a_download_in_drops_is_given_up(hub: Hub, tmp_path: Path, lower: Lower) -> None:
    hub.drip = 0.02
    lower("SLOW_SECONDS", 0.3)
    began = time.monotonic()
    result = convert("org/model", tmp_path / "out")
    assert time.monotonic() - began < 10
    assert result.exit_code == 2
    assert "the download failed (it comes too slowly: " in result.stderr
    hub.drip = 0
    assert convert("org/model", tmp_path / "out").exit_code == 0


@contextmanager
def log_lines() -> Iterator[io.StringIO]:
    """What a handler at huggingface_hub's logger writes."""
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("huggingface_hub")
    logger.addHandler(handler)
    try:
        yield handler.stream
    finally:
        logger.removeHandler(handler)
