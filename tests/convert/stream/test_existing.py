"""A target that exists already: done, resumed, replaced or refused; and the lock beside it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from conversions import contents, run
from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.process import this_process
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.stream.lock import TargetLock
from headcount.model.version import __version__

pytestmark = pytest.mark.needs_convert
Change = Callable[[Path, Path], Any]


@pytest.mark.usefixtures("unchanged")
def test_what_is_done_is_not_done_again(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "out", method="medoid")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = run(source, tmp_path / "out", method="medoid", workers=5)
    assert (first.done_before, again.done_before) == (False, True)
    assert again.document() == first.document()
    assert again.layers == first.layers
    assert times == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def touch(path: Path) -> None:
    later = time.time_ns() + 10**9
    os.utime(path, ns=(later, later))


def swap_for_an_older_one(path: Path) -> None:
    """Another file of the same header, which says that it was written long ago."""
    change_file(path)
    os.utime(path, ns=(0, 0))


def change_record(out: Path, **fields: Any) -> None:
    record = json.loads((out / "conversion.json").read_text())
    (out / "conversion.json").write_text(json.dumps({**record, **fields}))


def change_file(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda source, out: touch(source / "model.safetensors"), "was written or moved"),
        (lambda source, out: swap_for_an_older_one(source / "model.safetensors"), "moved there"),
        (lambda source, out: change_record(out, layers=[{}]), "conversion.json was changed"),
        (lambda source, out: change_record(out, layers=None), "conversion.json was changed"),
        (lambda source, out: change_file(out / "model.safetensors"), "was changed since"),
        (lambda source, out: (out / "tokenizer.json").unlink(), "is missing"),
        (lambda source, out: (out / "notes.txt").write_text("mine"), "notes.txt"),
        (lambda source, out: (out / "folder").mkdir(), "folder"),
        (lambda source, out: (out / "conversion.json").unlink(), "no output of headcount"),
        (lambda source, out: (out / "conversion.json").write_text("{}"), "no output of headcount"),
        (
            lambda source, out: (source / "vocab.txt").write_text("new"),
            "source's 'vocab.txt' is new",
        ),
        (lambda source, out: (source / "tokenizer.json").write_text("{}"), "json' is another"),
    ],
)
def test_another_content_is_never_taken_for_done(
    source: Path, tmp_path: Path, change: Change, words: str
) -> None:
    out = tmp_path / "out"
    run(source, out)
    change(source, out)
    before = contents(out)
    with pytest.raises(TargetError, match=words):
        run(source, out)
    assert contents(out) == before


def test_other_options_are_another_conversion(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    changes: dict[str, dict[str, Any]] = {
        "--kv-heads: 2 then, 1 now": {"kv": 1},
        "--method: mean then, first now": {"method": "first"},
        "--seed: 0 then, 3 now": {"seed": 3},
        "--max-shard-size: none then, 4096 now": {"max_shard_size": 4096},
        "--method: mean then, merge now; --dtype: none then, float16 now": {
            "method": "merge",
            "dtype": "float16",
        },
    }
    for told, options in changes.items():
        with pytest.raises(TargetError) as refused:
            run(source, tmp_path / "out", **options)
        ends = "): name another folder, or replace it with --overwrite"
        assert str(refused.value) == f"{tmp_path / 'out'}: holds another conversion ({told}{ends}"
    assert contents(tmp_path / "out") == before


def test_another_version_or_text_is_another_conversion(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(source, out)
    record = json.loads((out / "conversion.json").read_text())
    change_record(out, tool={**record["tool"], "version": "0.0.1"}, job="sha256:0")
    with pytest.raises(TargetError, match=rf"\(headcount: 0.0.1 then, {__version__} now\): name"):
        run(source, out)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "bos_token_id": 7}))
    with pytest.raises(TargetError, match=r"now; the source's config, or what"):
        run(source, out)
    change_record(out, request=7, side_files=None, source=[], ladder={}, job="sha256:0")
    with pytest.raises(TargetError, match=r"source: none then, "):
        run(source, out)


def test_overwrite_replaces_what_an_earlier_conversion_wrote(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "one", 1)
    wanted = contents(tmp_path / "one")
    (source / "README.md").unlink()  # then it goes from the output, too
    run(source, tmp_path / "out")
    report = run(source, tmp_path / "out", 1, overwrite=True)
    assert not report.done_before
    for name in ("README.source.md", "README.md", "conversion.json"):  # they tell of it
        del wanted[name]
    assert {**contents(tmp_path / "out"), **wanted} == contents(tmp_path / "out")
    assert contents(tmp_path / "out").keys() == {*wanted, "README.md", "conversion.json"}


@pytest.mark.parametrize("name", ["theirs.txt", "checkpoint-1/x", ".git/x"])
def test_overwrite_never_removes_what_is_not_ours(source: Path, tmp_path: Path, name: str) -> None:
    run(source, tmp_path / "out")
    path = tmp_path / "out" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("theirs")
    before = contents(tmp_path / "out")
    with pytest.raises(TargetError, match=name.split("/")[0]):
        run(source, tmp_path / "out", 1, overwrite=True)
    assert contents(tmp_path / "out") == before
    assert path.read_text() == "theirs"


def test_overwrite_never_removes_another_models_folder(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "out", symlinks=True)
    with pytest.raises(TargetError, match="no output of headcount"):
        run(source, tmp_path / "out", overwrite=True)


def test_the_manifest_lists_every_file(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "conversion.json").read_text())["manifest"]
    files = contents(tmp_path / "out")
    assert manifest.keys() == files.keys() - {"conversion.json"}
    for name, entry in manifest.items():
        digest = xxhash.xxh3_128(files[name]).hexdigest()
        assert entry == {"bytes": len(files[name]), "xxh3_128": digest}


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("method", ["mean", "medoid"])
def test_the_bytes_do_not_depend_on_the_workers(
    source: Path, sharded: Path, tmp_path: Path, workers: int, method: str
) -> None:
    for folder in (source, sharded):
        run(folder, tmp_path / f"{folder.name}-4", method=method, workers=4)
        run(folder, tmp_path / f"{folder.name}-n", method=method, workers=workers)
        wanted = contents(tmp_path / f"{folder.name}-4")
        assert contents(tmp_path / f"{folder.name}-n") == wanted


def test_a_living_rival_ends_a_run_at_once(source: Path, tmp_path: Path) -> None:
    with TargetLock(tmp_path / "out"):
        start = time.monotonic()
        with pytest.raises(TargetError, match=rf"process {os.getpid()} is writing it"):
            run(source, tmp_path / "out")
        assert time.monotonic() - start < 5
    run(source, tmp_path / "out")


@pytest.mark.parametrize("kind", ["dead", "reused", "empty", "garbage"])
def test_a_lock_of_a_dead_process_is_taken_over(source: Path, tmp_path: Path, kind: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    me = this_process()
    text = {
        "dead": json.dumps({"pid": ended.pid, "start": 1, "host": me.host}),
        "reused": json.dumps({"pid": me.pid, "start": me.start + 1, "host": me.host}),
        "empty": "",
        "garbage": "garbage",
    }
    if kind == "reused" and not me.start:
        pytest.skip("this system does not tell when a process started")
    (tmp_path / ".out.lock").write_text(text[kind])
    run(source, tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_lock_of_another_machine_is_respected(source: Path, tmp_path: Path) -> None:
    lock = tmp_path / ".out.lock"
    lock.write_text(json.dumps({"pid": 2**22 - 1, "start": 1, "host": "0" * 8}))
    with pytest.raises(TargetError, match=r"remove .*\.out\.lock"):
        run(source, tmp_path / "out")
    assert lock.exists()


def test_a_dry_run_on_a_finished_target_prints_the_plan(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    request = ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    assert plan_conversion(request).files


def test_two_attentions_in_a_layer_give_the_same_record_whatever_the_workers(
    tmp_path: Path,
) -> None:
    """The record tells which heads the self-attention kept, whichever thread chooses first."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 48, "vocab_size": 64, "max_position_embeddings": 32}
    heads = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
    layers = {"encoder_layers": 1, "decoder_layers": 3}
    model = BartForConditionalGeneration(BartConfig(**sizes, **heads, **layers))
    model.save_pretrained(tmp_path / "bart")
    run(tmp_path / "bart", tmp_path / "out-1", 2, method="medoid", workers=1)
    for workers in (2, 6, 6, 6):
        shutil.rmtree(tmp_path / "out-n", ignore_errors=True)
        run(tmp_path / "bart", tmp_path / "out-n", 2, method="medoid", workers=workers)
        assert contents(tmp_path / "out-n") == contents(tmp_path / "out-1")
