"""GGUF models of the Hub: named or found, whole or split, read by ranges and no further."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from checkpoints import LLAMA_CONFIG
from gguf_files import LLAMA, gguf_bytes, llama_tensors, write_gguf
from headcount.audit import audit_model
from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.sources.gguf_checkpoint import models_of, read_gguf_source
from headcount.sources.hub import read_hub
from headcount.sources.hub_names import is_file_of_hub, split_target
from headcount.sources.hub_requests import Piece
from headcount.sources.ranged_file import RangedFile
from hub_server import COMMIT, Hub
from lowered_limits import Lower


def repository(hub: Hub, name: str = "org/q") -> Path:
    folder = hub.folder / name
    folder.mkdir(parents=True)
    return folder


def split(folder: Path, count: int = 3, stem: str = "m", **more: Any) -> list[Path]:
    tensors = list(llama_tensors().items())
    paths = []
    for i in range(count):
        metadata = {**(LLAMA if i == 0 else {}), **more, "split.count": count, "split.no": i}
        path = folder / f"{stem}-{i + 1:05}-of-{count:05}.gguf"
        paths.append(write_gguf(path, metadata, dict(tensors[i::count])))
    return paths


def test_the_only_model_of_a_repository_is_found(hub: Hub) -> None:
    path = write_gguf(repository(hub) / "m.Q4_K_M.gguf")
    source = read_hub("org/q")
    assert (source.kind, source.id, source.revision) == ("hub", "org/q/m.Q4_K_M.gguf", COMMIT)
    here = read_gguf_source(path)
    assert source.gguf == here.gguf
    assert source.checkpoint is not None and here.checkpoint is not None
    assert source.checkpoint.tensors == here.checkpoint.tensors
    assert len(hub.requests) == 2
    assert audit_model("org/q").findings == ()


def test_bytes_of_tensors_are_not_fetched(hub: Hub) -> None:
    """A long vocabulary, and tensors of 8 GiB that take no room here."""
    tokens = [f"token {i}" for i in range(150_000)]
    metadata = {**LLAMA, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.5] * 150_000}
    path = repository(hub) / "m.gguf"
    big = gguf_bytes(metadata, {})
    path.write_bytes(big)
    source = read_hub("org/q/m.gguf")
    assert source.gguf is not None and source.gguf["tokenizer.ggml.tokens"].count == 150_000
    with path.open("r+b") as file:
        file.truncate(2**33)
    hub.sent = 0
    assert read_hub("org/q/m.gguf").gguf == source.gguf
    assert hub.sent < len(big) + 2 * 2**22
    assert len(hub.requests) < 12


def test_one_model_of_several_has_to_be_named(hub: Hub) -> None:
    folder = repository(hub)
    for name in ("m.Q4_K_M.gguf", "m.Q8_0.gguf", "mmproj-m-f16.gguf"):
        write_gguf(folder / name)
    with pytest.raises(HeadcountError, match=r"2 GGUF models: name one, such as org/q/m\.Q4_K_M"):
        read_hub("org/q")
    assert read_hub("org/q/m.Q8_0.gguf").id == "org/q/m.Q8_0.gguf"
    assert read_hub("org/q/mmproj-m-f16.gguf").id.endswith("mmproj-m-f16.gguf")
    with pytest.raises(HeadcountError, match=r"has no m\.Q2\.gguf; it has m\.Q4_K_M\.gguf, m\.Q8"):
        read_hub("org/q/m.Q2.gguf")


def test_a_projector_does_not_count_beside_a_model(hub: Hub) -> None:
    folder = repository(hub)
    write_gguf(folder / "m.gguf")
    write_gguf(folder / "mmproj-f16.gguf")
    write_gguf(folder / "imatrix.gguf")
    assert read_hub("org/q").id == "org/q/m.gguf"


@pytest.mark.parametrize("target", ["org/q", "org/q/Q4/m-00001-of-00003.gguf"])
def test_a_split_set_is_one_model(hub: Hub, target: str) -> None:
    folder = repository(hub) / "Q4"
    folder.mkdir()
    paths = split(folder)
    audit = audit_model(target)
    assert audit.findings == ()
    assert audit.checkpoint is not None and len(audit.checkpoint.files) == 3
    assert set(audit.checkpoint.tensors) == set(llama_tensors())
    assert len([r for r in hub.requests if r.endswith(".gguf")]) == 3
    paths[1].unlink()
    audit = audit_model("org/q/Q4/m-00001-of-00003.gguf")
    assert [finding.code for finding in audit.findings] == ["H201"]
    assert list(audit.checkpoint.missing) == ["m-00002-of-00003.gguf"]  # type: ignore[union-attr]


def test_a_set_that_claims_more_files_than_it_has(hub: Hub) -> None:
    folder = repository(hub)
    write_gguf(folder / "m-00001-of-60000.gguf", {**LLAMA, "split.count": 60_000})
    with pytest.raises(HeadcountError, match="59,999 are not there, such as m-00002-of-60000"):
        read_hub("org/q")
    assert len(hub.requests) == 2


def test_a_config_beside_it_goes_first_unless_the_file_is_named(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository(hub)
    write_gguf(folder / "m.gguf")
    (folder / "config.json").write_text(str(LLAMA_CONFIG).replace("'", '"').replace("False", "0"))
    assert read_hub("org/q").config is not None
    assert "for more audit org/q/m.gguf" in capsys.readouterr().err
    assert read_hub("org/q/m.gguf").config is None


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("org/q", ("org/q", "", None)),
        ("org/q@main", ("org/q", "main", None)),
        ("org/q@refs/pr/1", ("org/q", "refs/pr/1", None)),
        ("org/q/m.gguf", ("org/q", "", "m.gguf")),
        ("org/q/a/b.gguf@main", ("org/q", "main", "a/b.gguf")),
        ("org/q@main/a/b.gguf", ("org/q", "main", "a/b.gguf")),
    ],
)
def test_how_a_target_is_taken_apart(target: str, parts: tuple[str, str, str | None]) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize("target", ["org/q/m.gguf@main", f"org/q@{COMMIT}/m.gguf"])
def test_revisions(hub: Hub, target: str) -> None:
    write_gguf(repository(hub) / "m.gguf")
    assert audit_model(target).source.revision == COMMIT
    with pytest.raises(HeadcountError, match="no revision 'other'"):
        read_hub("org/q/m.gguf@other")


@pytest.mark.parametrize(
    "target",
    [
        *("org/q/../m.gguf", "org/q//m.gguf", "org/q/a\\b.gguf", "org/q/C:m.gguf", "../q/m.gguf"),
        *("org/q/\x1b.gguf", "/org/q/m.gguf", "org/q/m.bin", "org/m.gguf", "o g/q/m.gguf"),
    ],
)
def test_what_is_no_file_of_the_hub(hub: Hub, target: str) -> None:
    assert not is_file_of_hub(target)
    run = CliRunner().invoke(main, ["audit", target])
    assert run.exit_code == 2
    assert hub.requests == [] or target.count("/") == 1


def test_a_folder_here_goes_first(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(repository(hub) / "m.gguf")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org/q").mkdir(parents=True)
    with pytest.raises(HeadcountError, match="no such file"):
        audit_model("org/q/m.gguf")
    assert hub.requests == []


def test_the_command(hub: Hub) -> None:
    write_gguf(repository(hub) / "m.gguf")
    run = CliRunner().invoke(main, ["audit", "org/q/m.gguf"])
    assert run.exit_code == 0, run.output
    assert "org/q/m.gguf (llama" in run.stdout


BROKEN = {
    "empty": (b"", "is not GGUF"),
    "a web page": (b"<!DOCTYPE html>", "is not GGUF"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    "cut in the keys": (gguf_bytes(LLAMA, {})[:90], "cut short"),
    "cut in the tensors": (gguf_bytes(LLAMA, llama_tensors())[:-2_000_00], "cut short"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_has_its_message(hub: Hub, case: str) -> None:
    data, message = BROKEN[case]
    (repository(hub) / "m.gguf").write_bytes(data)
    with pytest.raises(HeadcountError, match=message):
        read_hub("org/q")


def test_a_header_without_end_is_given_up(hub: Hub, lower: Lower) -> None:
    lower("REMOTE_GGUF_BYTES", 2**21)
    metadata = {**LLAMA, "tokenizer.ggml.tokens": ["x" * 60] * 100_000}
    (repository(hub) / "m.gguf").write_bytes(gguf_bytes(metadata, {}))
    with pytest.raises(HeadcountError, match="no more than 2,097,152 bytes before the tensors"):
        read_hub("org/q")
    assert hub.sent < 2**22


def test_a_server_without_ranges_is_not_downloaded_from(hub: Hub) -> None:
    hub.ranges = False
    folder = repository(hub)
    write_gguf(folder / "m.gguf")
    assert read_hub("org/q").checkpoint is not None  # it fits into the first answer
    metadata = {**LLAMA, "tokenizer.ggml.tokens": ["x" * 60] * 40_000}
    (folder / "m.gguf").write_bytes(gguf_bytes(metadata, {}))
    with pytest.raises(HeadcountError, match="byte ranges"):
        read_hub("org/q")


def test_a_file_that_is_shorter_than_the_server_says() -> None:
    data = gguf_bytes({**LLAMA, "tokenizer.ggml.tokens": ["x" * 60] * 5_000}, {})
    from headcount.sources.gguf import parse_gguf

    for end in (3, 40, 200, len(data) // 2):
        remote = RangedFile(lambda a, b, end=end: Piece(data=data[:end][a:b], size=10**9), "m")  # type: ignore[misc]
        with pytest.raises(HeadcountError, match=r"shorter|not GGUF"):
            parse_gguf(remote, Path("m.gguf"), remote.size)


def test_pieces_that_are_skipped_are_not_fetched() -> None:
    asked: list[tuple[int, int]] = []
    size = 2**30

    def fetch(start: int, stop: int) -> Piece:
        asked.append((start, stop))
        return Piece(data=bytes(stop - start), size=size)

    file = RangedFile(fetch, "m")
    assert file.read(4) == bytes(4)
    file.seek(2**29)
    assert len(file.read(3 * 2**20)) == 3 * 2**20
    file.seek(-(2**20), 1)
    assert len(file.read(2**20)) == 2**20
    file.seek(size - 2)
    assert len(file.read(9)) == 2 and file.read(1) == b""
    assert asked == [(0, 2**20), (2**29, 2**29 + 3 * 2**20), (size - 2, size)]


def test_offline_the_cache_is_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = tmp_path / "cache/models--org--q"
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs/main").write_text(COMMIT)
    with pytest.raises(HeadcountError, match="not in the Hub cache"):
        read_hub("org/q")
    (model / "blobs").mkdir()
    for path in split(model / "blobs"):
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    for target in ("org/q", "org/q/m-00001-of-00003.gguf"):
        audit = audit_model(target)
        assert audit.findings == () and audit.source.kind == "hub"
        assert audit.source.id == "org/q/m-00001-of-00003.gguf"
    with pytest.raises(HeadcountError, match="not in the Hub cache"):
        read_hub("org/q/other.gguf")
    assert hub.requests == []


def test_a_link_out_of_the_set_is_refused(tmp_path: Path) -> None:
    folder, away = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    away.mkdir()
    paths = split(folder)
    shutil.move(paths[1], away / "other.gguf")
    paths[1].symlink_to(away / "other.gguf")
    with pytest.raises(HeadcountError, match="outside the model's folder"):
        audit_model(str(paths[0]))


def test_which_files_are_models() -> None:
    parts = [f"Q8/m-{i:05}-of-00002.gguf" for i in (1, 2)]
    assert models_of(["b.gguf", *parts, "readme.md", "x.safetensors"]) == [parts[0], "b.gguf"]
    assert models_of(["mmproj.gguf"]) == ["mmproj.gguf"]
    assert models_of([]) == []


def test_all_parts_are_of_the_commit_that_the_first_answer_names(hub: Hub, tmp_path: Path) -> None:
    split(repository(hub))
    hub.moves_to = tmp_path / "later"
    (hub.moves_to / "org/q").mkdir(parents=True)
    source = read_hub("org/q")
    assert source.revision == COMMIT
    assert source.checkpoint is not None and len(source.checkpoint.files) == 3
    assert sum("main" in request for request in hub.requests) == 1
