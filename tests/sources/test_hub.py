"""The Hub, played by a server of our own: what is asked for, what is said when it fails."""

import json
import os
import socket
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path

import pytest
from huggingface_hub import constants

from checkpoints import LLAMA_CONFIG, header_bytes, llama_shapes, write_model, write_sharded
from headcount.model.errors import HeadcountError
from headcount.sources.at_once import at_once
from headcount.sources.checkpoint import read_checkpoint
from headcount.sources.connection.http_client import Client
from headcount.sources.hub import _commit, open_repo, read_hub
from hub_server import COMMIT, MOVED, Hub, serve
from lowered_limits import Lower
from shards import PARAMETERS, make_shards


def test_one_file_is_three_requests_and_its_header_is_read_as_from_disk(hub: Hub) -> None:
    folder = write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    source = read_hub("org/one")
    assert (source.kind, source.id, source.revision) == ("hub", "org/one", COMMIT)
    assert source.config == LLAMA_CONFIG
    assert source.checkpoint is not None
    here = read_checkpoint(folder / "model.safetensors")
    assert source.checkpoint.tensors == here.tensors
    assert sorted(request.rsplit("/", 1)[1] for request in hub.requests) == [
        *("config.json", "main", "model.safetensors"),
    ]


def test_settings_of_a_quantisation_beside_the_config_are_read(hub: Hub) -> None:
    folder = write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    written = {"quantization": {"quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(written), "utf-8")
    settings = {"quant_method": "modelopt", "quant_algo": "FP8"}
    assert read_hub("org/one").config == {**LLAMA_CONFIG, "quantization_config": settings}
    assert len(hub.requests) == 4


def test_shards_are_read_by_ranges_and_one_request_each(hub: Hub) -> None:
    make_shards(hub.folder / "org/big")
    source = read_hub("org/big@main")
    assert source.checkpoint is not None and len(source.checkpoint.files) == 191
    assert sum(t.elements for t in source.checkpoint.tensors.values()) == PARAMETERS
    assert len(hub.requests) == 191 + 3
    assert hub.sent < 2**20, "headers only, of files that claim 800 GB"
    assert not [r for r in hub.requests if r.startswith("HEAD")]


def test_two_hundred_answers_are_waited_for_at_once(hub: Hub) -> None:
    make_shards(hub.folder / "org/big")
    hub.latency = 0.2
    start = time.perf_counter()
    read_hub("org/big")
    assert time.perf_counter() - start < 191 * hub.latency / 5


def test_a_long_header_takes_a_second_request(hub: Hub) -> None:
    shapes = {f"a{'b' * 500}.{i}": (1,) for i in range(400)}
    write_model(hub.folder / "org/long", LLAMA_CONFIG, shapes)
    source = read_hub("org/long")
    assert source.checkpoint is not None and len(source.checkpoint.tensors) == 400
    assert len([r for r in hub.requests if r.endswith("model.safetensors")]) == 2


def test_a_server_without_ranges_is_not_downloaded_from(hub: Hub) -> None:
    write_sharded(hub.folder / "org/two", LLAMA_CONFIG, llama_shapes(), 2)
    hub.ranges = False
    assert read_hub("org/two").checkpoint is not None
    write_model(
        hub.folder / "org/long", LLAMA_CONFIG, {f"{'b' * 900}{i}": (1,) for i in range(400)}
    )
    with pytest.raises(HeadcountError, match="byte ranges"):
        read_hub("org/long")


def test_a_shard_that_is_not_there_is_missing(hub: Hub) -> None:
    folder = write_sharded(hub.folder / "org/two", LLAMA_CONFIG, llama_shapes(), 2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    checkpoint = read_hub("org/two").checkpoint
    assert checkpoint is not None and list(checkpoint.missing) == [
        "model-00002-of-00002.safetensors"
    ]


def test_a_broken_connection_is_tried_once_more(hub: Hub) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    source = read_hub("org/one")
    hub.failures = 1
    with pytest.raises(HeadcountError, match="status 503"):
        read_hub("org/one")
    assert source.checkpoint is not None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("org/none", "check the name"),
        ("org/gated", "hf auth login"),
        ("org/one@nowhere", "no revision 'nowhere'"),
        ("org/empty", "no config.json"),
        ("org/one two", "no valid Hub id"),
        ("org/quantised", "m.gguf: is not GGUF"),
        ("org/broken", r"org/broken/model.safetensors: not safetensors, or cut short"),
    ],
)
def test_each_refusal_has_its_message(hub: Hub, target: str, message: str) -> None:
    for name in ("one", "gated", "broken"):
        write_model(hub.folder / "org" / name, LLAMA_CONFIG, llama_shapes())
    (hub.folder / "org/broken/model.safetensors").write_bytes(b"\xff" * 7 + b"\0" + bytes(99))
    (hub.folder / "org/empty").mkdir()
    (hub.folder / "org/quantised").mkdir()
    (hub.folder / "org/quantised/m.gguf").write_bytes(b"")
    hub.gated = frozenset({"org/gated"})
    with pytest.raises(HeadcountError, match=message) as caught:
        read_hub(target)
    assert len(str(caught.value).splitlines()) == 1


def test_the_token_opens_a_gated_model(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(hub.folder / "org/gated", LLAMA_CONFIG, llama_shapes())
    hub.gated = frozenset({"org/gated"})
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert read_hub("org/gated").config == LLAMA_CONFIG
    monkeypatch.delenv("HF_TOKEN")
    Path(constants.HF_TOKEN_PATH).write_text("hf_good\n")
    assert read_hub("org/gated").config == LLAMA_CONFIG


def test_the_token_stays_with_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights lie on another host, to which the Hub sends on."""
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    with serve(Hub(folder=hub.folder)) as storage:
        hub.elsewhere = storage.url
        assert read_hub("org/one").checkpoint is not None
        assert set(hub.tokens) == {"Bearer hf_good"}
        assert storage.tokens == [None]


def test_redirects_end(hub: Hub) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    hub.elsewhere = hub.url
    with pytest.raises(HeadcountError, match="without end"):
        read_hub("org/one")


def test_a_proxy_is_asked(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    monkeypatch.setenv("http_proxy", hub.url)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    assert read_hub("org/one").checkpoint is not None
    assert all("http://hub.invalid/" in request for request in hub.requests)


def test_the_command_asks_the_endpoint_of_the_environment(hub: Hub, tmp_path: Path) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    code = "from headcount.cli import audit_main; audit_main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "org/one@main"],
        env=os.environ
        | {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
        | {"TRANSFORMERS_OFFLINE": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("org/one (llama, ")
    assert len(hub.requests) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"hub"}, "nothing is written"


def cache(name: str, commit: str = "a" * 40, shards: int = 2) -> Path:
    """A snapshot as huggingface_hub keeps it, but for the links into blobs."""
    model = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text(commit)
    return write_sharded(model / "snapshots" / commit, LLAMA_CONFIG, llama_shapes(), shards)


def test_offline_the_cached_snapshot_is_read(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    cache("org/kept")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    source = read_hub("org/kept")
    assert source.checkpoint is not None and len(source.checkpoint.files) == 2
    assert (source.revision, hub.requests) == ("a" * 40, [])
    assert read_hub(f"org/kept@{'a' * 40}").config == LLAMA_CONFIG
    for other in ("org/kept@other", "org/other"):
        with pytest.raises(HeadcountError, match="HF_HUB_OFFLINE"):
            read_hub(other)


def test_a_cached_snapshot_has_the_settings_beside_its_config(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"quant_algo": "NVFP4"}
    beside = cache("org/kept") / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": settings}))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config = read_hub("org/kept").config or {}
    assert config["quantization_config"] == {"quant_method": "modelopt", **settings}


def test_a_snapshot_in_part_gives_its_config(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache("org/kept") / "model-00001-of-00002.safetensors").unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert read_hub("org/kept").checkpoint is None
    assert "not cached" in capsys.readouterr().err


def unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_without_a_network_one_message_comes_at_once(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", unused_address())
    start = time.perf_counter()
    with pytest.raises(HeadcountError, match=r"out of reach.*refused.*local folder"):
        read_hub("org/one")
    assert time.perf_counter() - start < 3
    cache("org/kept")
    assert read_hub("org/kept").checkpoint is not None


def test_a_hub_that_does_not_answer_is_given_up(hub: Hub, lower: Lower) -> None:
    lower("FIRST_SECONDS", 0.2)
    hub.latency = 0.5
    with pytest.raises(HeadcountError, match="no answer"):
        read_hub("org/one")
    time.sleep(0.6)  # the thread that was left behind ends


def test_bytes_behind_the_tensors_are_noticed_from_afar(hub: Hub) -> None:
    folder = write_model(hub.folder / "org/one", LLAMA_CONFIG, {})
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    (folder / "model.safetensors").write_bytes(header_bytes({"a": entry}) + bytes(9))
    with pytest.raises(HeadcountError, match="no tensor"):
        read_hub("org/one")


def test_an_index_is_not_trusted(hub: Hub) -> None:
    folder = write_sharded(hub.folder / "org/two", LLAMA_CONFIG, llama_shapes(), 2)
    index = {"weight_map": {"a": "../../other/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(HeadcountError, match="plain file name"):
        read_hub("org/two")
    assert not [r for r in hub.requests if "other" in r]


def test_all_files_are_of_the_commit_that_the_first_answer_names(hub: Hub, tmp_path: Path) -> None:
    """The branch moves to a larger model while the first answer is read."""
    config = {**LLAMA_CONFIG, "vocab_size": 2 * LLAMA_CONFIG["vocab_size"]}
    write_sharded(hub.folder / "org/two", LLAMA_CONFIG, llama_shapes(), 2)
    hub.moves_to = tmp_path / "later"
    write_sharded(hub.moves_to / "org/two", config, llama_shapes(config), 3)
    source = read_hub("org/two")
    assert (source.revision, source.config) == (COMMIT, LLAMA_CONFIG)
    assert source.checkpoint is not None and len(source.checkpoint.files) == 2
    assert sum("main" in request for request in hub.requests) == 1
    moved = read_hub("org/two")
    assert (moved.revision, moved.config) == (MOVED, config)


@pytest.mark.parametrize("sha", [None, 7, "main", "5" * 39, "5" * 41, "G" * 40, "5" * 39 + "\n"])
def test_an_answer_without_a_commit_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, sha: object
) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    hub.branch = sha  # type: ignore[assignment]
    with pytest.raises(HeadcountError, match=r"names no commit .*give the folder"):
        read_hub("org/one")
    assert len(hub.requests) == 1


def test_another_commit_than_the_one_asked_for_is_refused(hub: Hub) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    with pytest.raises(HeadcountError, match=f"answers with commit {MOVED}, not {COMMIT}"):
        _commit({"sha": MOVED}, open_repo("org/one", COMMIT, Client()))


def test_a_login_in_the_endpoint_is_sent_and_not_the_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    address = hub.url.replace("//", "//user:p%40ss@")
    monkeypatch.setattr(constants, "ENDPOINT", f"{address}/")
    assert read_hub("org/one").checkpoint is not None
    assert set(hub.tokens) == {f"Basic {b64encode(b'user:p@ss').decode()}"}


@pytest.mark.parametrize("token", ["hf_a\nb", "hf_a b", "hf_é", "hf_\x7f", "a\r\nX-Injected: 1"])
def test_a_token_that_cannot_be_sent_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HeadcountError, match=r"^HF_TOKEN: holds a line break") as caught:
        read_hub("org/one")
    assert token not in str(caught.value) and hub.requests == []
    monkeypatch.delenv("HF_TOKEN")
    Path(constants.HF_TOKEN_PATH).write_text(token, encoding="utf-8")
    with pytest.raises(HeadcountError, match=r"/token: holds a line break"):
        read_hub("org/one")


def test_a_token_from_a_file_is_kept_out_of_messages(hub: Hub) -> None:
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    Path(constants.HF_TOKEN_PATH).write_text("token-in-a-file-of-a-test\n")
    assert read_hub("org/one").checkpoint is not None
    assert str(HeadcountError("x token-in-a-file-of-a-test y")) == "x *** y"


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "ftp://h", "http://", "http://[::1", "https://u:a/b@h", "https://h:0"),
        *("https://h:99999", "https://h?a=b", "https://h#a", "https://h h", "https://h\n"),
    ],
)
def test_an_endpoint_that_is_no_address_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", text)
    with pytest.raises(HeadcountError, match="HF_ENDPOINT: is no address of a Hub"):
        read_hub("org/one")


def test_one_connection_waits_for_a_silent_hub(hub: Hub, lower: Lower) -> None:
    """One that was idle may be dead, and then another is tried; not when it waits in vain."""
    write_model(hub.folder / "org/one", LLAMA_CONFIG, llama_shapes())
    hub.latency = 0.4
    with Client() as client:
        repo = open_repo("org/one", COMMIT, client)
        at_once(lambda _: repo.fetch("config.json", 0, 9), range(3))
        lower("READ_SECONDS", 0.1)
        with pytest.raises(HeadcountError, match="timed out"):
            repo.fetch("config.json", 0, 9)
    time.sleep(0.4)
    assert len(hub.requests) == 3 + 1
