"""torch's files: shapes without unpickling, imports listed, and one message per fault."""

import io
import pickle
import struct
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.audit import audit_model
from headcount.model.errors import HeadcountError
from headcount.sources.pickles.pickle_file import read_pickle
from headcount.sources.pickles.pickle_walk import is_harmless, walk
from lowered_limits import Lower
from pickles import EVIL, MAGIC, glob, legacy_bytes, state_dict, tensor, word, write_bin

SHAPES = {"a.weight": (2, 3), "b": (4,), "c": ()}


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"x/{name.replace('__', '/')}", data)
    return out.getvalue()


def test_names_dtypes_and_shapes_are_read(tmp_path: Path) -> None:
    file = read_pickle(write_bin(tmp_path / "a.bin", SHAPES, "BF16"))
    assert {t.name: t.shape for t in file.header.tensors} == SHAPES
    assert {t.dtype for t in file.header.tensors} == {"BF16"}
    assert [t.nbytes for t in file.header.tensors] == [12, 8, 2]
    assert file.suspects == ()


def test_an_old_file_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(legacy_bytes(state_dict(SHAPES)))
    assert {t.name: t.shape for t in read_pickle(path).header.tensors} == SHAPES


def test_a_state_dict_inside_a_training_checkpoint_is_found(tmp_path: Path) -> None:
    inner = state_dict(SHAPES)[2:-1]
    data = b"\x80\x02}(" + word("epoch") + b"K\x07" + word("state_dict") + inner + b"u."
    file = read_pickle(write_bin(tmp_path / "a.pt", SHAPES, data=data))
    assert len(file.header.tensors) == 3


@pytest.mark.needs_convert
@pytest.mark.parametrize("zipped_", [True, False], ids=["zip", "legacy"])
def test_what_torch_writes_is_read(tmp_path: Path, zipped_: bool) -> None:
    import torch

    shared = torch.zeros(6, 4)
    state = {
        "half": torch.zeros(3, 5, dtype=torch.float16),
        "slice": shared[2:4],
        "transposed": shared.t(),
        "parameter": torch.nn.Parameter(torch.zeros(7, dtype=torch.bfloat16)),
        "scalar": torch.tensor(3),
        "flags": torch.zeros(2, dtype=torch.bool),
        "other": 3,
    }
    path = tmp_path / "a.bin"
    torch.save(state, path, _use_new_zipfile_serialization=zipped_)
    file = read_pickle(path)
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    assert {t.name: t.shape for t in file.header.tensors} == {
        name: tuple(value.shape) for name, value in tensors.items()
    }
    assert {t.name: t.nbytes for t in file.header.tensors} == {
        name: value.nbytes for name, value in tensors.items()
    }
    assert file.suspects == ()


class Evil:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_imports_are_listed_and_nothing_runs(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    evil = [Evil(exec, f"open({str(marker)!r}, 'w')"), {"a": Evil(eval, "1")}]
    found = walk(io.BytesIO(pickle.dumps(evil, protocol)), "here")
    module = "builtins" if protocol > 2 else "__builtin__"
    assert found.imports == (f"{module}.exec", f"{module}.eval")
    assert not any(is_harmless(name) for name in found.imports)
    path = write_bin(tmp_path / "a.bin", SHAPES, data=pickle.dumps(evil, protocol))
    assert len(read_pickle(path).suspects) == 2
    path.write_bytes(legacy_bytes(pickle.dumps(evil, max(protocol, 2))))
    assert len(read_pickle(path).suspects) == 2
    assert not marker.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        glob("os.system"),
        b"(ios\nsystem\n",
        b"\x82\x07",
        word("os") + word("system") + b"\x93",
        word("os") + b"q\x01" + word("system") + b"q\x02h\x01h\x02\x93",
        b"K\x01K\x02\x93",
    ],
    ids=["GLOBAL", "INST", "EXT1", "STACK_GLOBAL", "memo", "not strings"],
)
def test_every_way_to_import_is_seen(opcodes: bytes) -> None:
    (name,) = walk(io.BytesIO(b"\x80\x04" + opcodes + b"."), "here").imports
    assert not is_harmless(name)


def test_names_that_look_harmless_are_not() -> None:
    for name in ("torch.load", "torch.storage._load_from_bytes", "torch._utils.os", "torch.hub"):
        assert not is_harmless(name)


BROKEN: list[tuple[str, bytes, str]] = [
    ("empty", b"", "neither"),
    ("text", b"hello", "neither"),
    ("LFS pointer", b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    ("GGUF", b"GGUF" + bytes(60), "GGUF"),
    ("half a zip", zipped(data__pkl=b"")[:40], "cut short"),
    ("a zip of something", zipped(readme=b"hi"), "0 data.pkl"),
    ("two pickles", zipped(**{"data.pkl": b"", "b__data.pkl": b""}), "2 data.pkl"),
    ("TorchScript", zipped(**{"data.pkl": b"", "constants.pkl": b""}), "TorchScript"),
    ("an empty pickle", zipped(**{"data.pkl": b""}), "not a whole pickle"),
    ("no STOP", zipped(**{"data.pkl": b"\x80\x02}"}), "not a whole pickle"),
    ("an empty stack", zipped(**{"data.pkl": b"\x80\x020."}), "not a whole pickle"),
    ("no mark", zipped(**{"data.pkl": b"\x80\x02}t."}), "not a whole pickle"),
    ("memo of nothing", zipped(**{"data.pkl": b"\x80\x02h\x05."}), "not a whole pickle"),
    ("2^62 bytes", zipped(**{"data.pkl": b"\x8e" + struct.pack("<Q", 2**62)}), "not a whole"),
    ("only a magic", MAGIC, "not a whole pickle"),
    ("no storage", zipped(**{"data.pkl": state_dict(SHAPES)}), "not in the archive"),
    (
        "a storage that is too short",
        zipped(**{"data.pkl": state_dict({"a": (9,)}), "data__0": bytes(35)}),
        "ends at byte 36",
    ),
]


@pytest.mark.parametrize(("data", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_each_fault_has_its_message(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    begin = time.perf_counter()
    with pytest.raises(HeadcountError, match=expected) as caught:
        read_pickle(path)
    assert time.perf_counter() - begin < 1
    assert str(path) in str(caught.value)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(2**24))
    with pytest.raises(HeadcountError, match="too much to read"):
        read_pickle(path)


def test_a_directory_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b".")
        for number in range(10_000):
            archive.writestr(f"x/{number:0400}", b"")
    begin = time.perf_counter()
    with pytest.raises(HeadcountError, match="directory"):
        read_pickle(path)
    assert time.perf_counter() - begin < 1


def test_two_members_that_could_be_the_pickle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for other in ("x/DATA.PKL", "y/data.pkl"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", b"N.")
            archive.writestr(other, pickle.dumps(Evil(eval, "1"), 2))
        with pytest.raises(HeadcountError, match=r"2 data\.pkl"):
            read_pickle(path)


def test_every_pickle_of_an_old_file_is_walked(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(legacy_bytes(state_dict(SHAPES), pickle.dumps(Evil(eval, "1"), 2)))
    file = read_pickle(path)
    assert file.suspects == ("__builtin__.eval",)
    assert len(file.header.tensors) == 3


def test_a_pickle_that_is_a_tar_archive_too_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    member = tarfile.TarInfo("\x80\x02x")
    header = member.tobuf(tarfile.GNU_FORMAT, "latin-1", "strict")
    path.write_bytes(header + bytes(1024))
    with pytest.raises(HeadcountError, match="tar archive"):
        read_pickle(path)


def test_opcodes_are_bounded(tmp_path: Path, lower: Lower) -> None:
    lower("PICKLE_OPCODES", 1000)
    with pytest.raises(HeadcountError, match="opcodes"):
        read_pickle(write_bin(tmp_path / "a.bin", {}, data=b"\x80\x02" + b"N0" * 1000 + b"N."))


def test_doubling_lists_take_no_memory(tmp_path: Path) -> None:
    """A tuple of a tuple of a tuple, each twice: 2^90 leaves for whoever would walk them."""
    data = b"\x80\x02N" + b"q\x01h\x01\x86" * 90 + b"."
    assert read_pickle(write_bin(tmp_path / "a.bin", {}, data=data)).header.tensors == ()


GOOD = state_dict(SHAPES)


@given(st.binary(max_size=40), st.integers(0, len(GOOD)))
def test_any_bytes_give_a_file_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, position: int
) -> None:
    data = bytearray(GOOD)
    data[position : position + len(noise)] = noise
    path = write_bin(tmp_path_factory.getbasetemp() / "fuzz.bin", SHAPES, data=bytes(data))
    try:
        read_pickle(path)
    except HeadcountError as error:
        assert str(path) in str(error)


ARCHIVE = zipped(**{"data.pkl": state_dict({"a": (2,)}), "data__0": bytes(8)})


@given(st.binary(max_size=40), st.integers(0, len(ARCHIVE)))
def test_any_archive_gives_a_file_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, position: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-zip.bin"
    data = bytearray(ARCHIVE)
    data[position : position + len(noise)] = noise
    path.write_bytes(data)
    try:
        read_pickle(path)
    except HeadcountError as error:
        assert str(path) in str(error)


def folder_of(path: Path, before: bytes = b"") -> Path:
    folder = write_model(path, LLAMA_CONFIG, {})
    (folder / "model.safetensors").unlink()
    write_bin(folder / "pytorch_model.bin", llama_shapes(), "BF16", before)
    (folder / "training_args.bin").write_bytes(b"not looked at")
    return folder


def test_a_folder_of_bins_is_audited_from_them(tmp_path: Path) -> None:
    pickled = audit_model(str(folder_of(tmp_path / "bin")))
    same = audit_model(str(write_model(tmp_path / "st", LLAMA_CONFIG, llama_shapes())))
    assert {finding.code for finding in pickled.findings} == {"H304"}
    assert (pickled.spec.parameters, pickled.stored) == (same.spec.parameters, same.stored)
    assert pickled.weights_bytes == same.weights_bytes


def test_shards_of_bins_follow_their_index(tmp_path: Path) -> None:
    import json

    folder = folder_of(tmp_path)
    (folder / "pytorch_model.bin").unlink()
    shapes = llama_shapes()
    weight_map = {}
    for number in (1, 2):
        part = {name: shapes[name] for name in list(shapes)[number - 1 :: 2]}
        file = f"pytorch_model-{number:05}-of-00002.bin"
        write_bin(folder / file, part, "BF16")
        weight_map |= dict.fromkeys(part, file)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    audit = audit_model(str(folder))
    assert audit.checkpoint is not None and len(audit.checkpoint.tensors) == len(shapes)
    assert {finding.code for finding in audit.findings} <= {"H304", "H205", "H211"}
    index.write_text(json.dumps({"weight_map": {"a": "../a.bin"}}))
    with pytest.raises(HeadcountError, match="plain file name"):
        audit_model(str(folder))


def test_h309_tells_what_a_bin_imports(tmp_path: Path) -> None:
    audit = audit_model(str(folder_of(tmp_path, EVIL)))
    finding = audit.findings[0]
    assert {one.code for one in audit.findings} == {"H309", "H304"}
    assert (finding.code, finding.severity, finding.where) == ("H309", "error", "pytorch_model.bin")
    assert "posix.system" in finding.message
    assert not Path("MARKER").exists()
    (tmp_path / "config.json").unlink()
    with pytest.raises(HeadcountError, match=r"posix\.system.*H309"):
        audit_model(str(tmp_path / "pytorch_model.bin"))


def test_a_bin_whose_tensors_are_not_seen_is_not_called_incomplete(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    odd = b"\x80\x02](" + tensor("0", "F32", (2,)) + b"e."
    write_bin(folder / "pytorch_model.bin", {"a": (2,)}, data=odd)
    assert {one.code for one in audit_model(str(folder)).findings} == {"H304"}
