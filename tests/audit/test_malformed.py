"""A corpus of malformed models, made here: each gives one clear error or its finding, at once.

Nothing may be executed, imported or followed out of the folder, and no traceback may be shown.
"""

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import (
    LLAMA_CONFIG,
    header_bytes,
    llama_shapes,
    typed,
    typed_bytes,
    write_model,
    write_sharded,
)
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.cli import main
from headcount.model.errors import HeadcountError

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
GEMMA3 = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}
SHARD = "model-00001-of-00002.safetensors"
Make = Callable[[Path], object]


def config(data: bytes | dict[str, Any]) -> Make:
    """A sound folder with this config.json."""

    def make(folder: Path) -> None:
        write_model(folder, LLAMA_CONFIG, llama_shapes())
        (folder / "config.json").write_bytes(
            data if isinstance(data, bytes) else json.dumps({**LLAMA_CONFIG, **data}).encode()
        )

    return make


def weights(data: bytes) -> Make:
    """A sound config with these bytes as weights."""

    def make(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
        (folder / WEIGHTS).write_bytes(data)

    return make


def index(change: Callable[[dict[str, Any]], object] | bytes) -> Make:
    """A sound folder of two shards with another index."""

    def make(folder: Path) -> None:
        write_sharded(folder, LLAMA_CONFIG, llama_shapes())
        path = folder / INDEX
        if isinstance(change, bytes):
            path.write_bytes(change)
            return
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return make


def to(shard: Any) -> Make:
    """The first tensor of the index is said to be in `shard`."""
    return index(lambda value: value["weight_map"].update({"lm_head.weight": shard}))


def shards(change: Callable[[Path], object]) -> Make:
    def make(folder: Path) -> None:
        write_sharded(folder, LLAMA_CONFIG, llama_shapes())
        change(folder)

    return make


def text(change: Callable[[bytes], bytes]) -> Make:
    """The sound weights, as changed bytes."""
    return weights(change(typed_bytes(typed(llama_shapes()))))


def link_out(folder: Path) -> None:
    (folder / SHARD).rename(folder.parent / "elsewhere.safetensors")
    (folder / SHARD).symlink_to(folder.parent / "elsewhere.safetensors")


def _fifo(folder: Path) -> None:
    (folder / SHARD).unlink()
    os.mkfifo(folder / SHARD)


def _folder(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _length(data: bytes, more: int) -> bytes:
    return struct.pack("<Q", struct.unpack("<Q", data[:8])[0] + more) + data[8:]


def with_more(**tensors: tuple[str, tuple[int, ...]]) -> bytes:
    return typed_bytes(
        typed(llama_shapes()) | {n.replace("__", "."): t for n, t in tensors.items()}
    )


def entry(**fields: Any) -> bytes:
    return header_bytes({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **fields}})


def nested(depth: int) -> bytes:
    return b'{"model_type": "llama", "a": ' + b"[" * depth + b"]" * depth + b"}"


# (name, how it is made, part of the one error)
REFUSED: list[tuple[str, Make, str]] = [
    # config.json
    ("empty config", config(b""), "not JSON"),
    ("cut config", config(b'{"model_type": "lla'), "not JSON"),
    ("array", config(b"[1, 2]"), "JSON object"),
    ("number", config(b"12"), "JSON object"),
    ("comment", config(b'{"a": 1} // yes'), "not JSON"),
    ("single quotes", config(b"{'model_type': 'llama'}"), "not JSON"),
    ("UTF-16", config('{"a": 1}'.encode("utf-16")), "UTF-8"),
    ("bytes that are no text", config(b'{"a": "\xff"}'), "UTF-8"),
    ("LFS pointer", config(b"version https://git-lfs.github.com/spec/v1\noid 1"), "git lfs pull"),
    ("HTML page", config(b"<!DOCTYPE html><html>no</html>"), "HTML"),
    ("5,000 levels", config(nested(100_000)), "nested too deeply"),
    ("5,000 digits", config(b'{"hidden_size": ' + b"9" * 5000 + b"}"), "config.json"),
    ("a key twice", config(b'{"model_type": "llama", "model_type": "gpt2"}'), "twice"),
    ("11 MB", config(b'{"a": "' + b"x" * (11 * 2**20) + b'"}'), "no more than"),
    ("no model_type", config(b'{"hidden_size": 8}'), "no model_type"),
    ("model_type is a list", config({"model_type": ["llama"], "architectures": 3}), "model_type"),
    ("heads as text", config({"num_attention_heads": "8"}), "integer"),
    ("heads are true", config({"num_attention_heads": True}), "integer"),
    ("heads are 8.5", config({"num_attention_heads": 8.5}), "integer"),
    ("heads are a list", config({"num_attention_heads": [8]}), "integer"),
    ("heads are an object", config({"num_attention_heads": {}}), "integer"),
    ("no heads", config({"num_attention_heads": 0}), "from 1"),
    ("negative heads", config({"num_key_value_heads": -2}), "from 1"),
    ("infinite heads", config({"num_attention_heads": float("inf")}), "integer"),
    ("NaN layers", config({"num_hidden_layers": float("nan")}), "integer"),
    ("10^18 layers", config({"num_hidden_layers": 10**18}), "2,000"),
    ("10^18 hidden", config({"hidden_size": 10**18}), "1,000,000,000"),
    ("3 of 8 K/V heads", config({"num_key_value_heads": 3}), "possible are 1, 2, 4, 8"),
    ("more K/V heads", config({"num_key_value_heads": 16}), "possible are"),
    ("7 heads", config({"num_attention_heads": 7, "num_key_value_heads": 7}), "not divisible"),
    ("layer_types is text", config({"layer_types": "full_attention"}), "list of strings"),
    ("layer_types of numbers", config({"layer_types": [1, 2, 3]}), "list of strings"),
    ("too few layer_types", config({"layer_types": []}), "entries for 3 layers"),
    ("a kind of layer", config({"layer_types": ["wild"] * 3}), "wild"),
    ("bias is text", config({"attention_bias": "no"}), "true or false"),
    ("dtype is a number", config({"dtype": 16}), "dtype"),
    ("dtype nobody knows", config({"dtype": "float12"}), "float12"),
    ("text_config is text", config({**GEMMA3, "text_config": "x"}), "object"),
    # the index
    ("empty index", index(b""), "not JSON"),
    ("index is a list", index(b"[]"), "JSON object"),
    ("index with a key twice", index(b'{"weight_map": {}, "weight_map": {}}'), "twice"),
    ("no weight_map", index(lambda value: value.pop("weight_map")), "weight_map"),
    ("weight_map is a list", index(lambda value: value.update(weight_map=[])), "weight_map"),
    ("weight_map is empty", index(lambda value: value.update(weight_map={})), "weight_map"),
    ("up and out", to("../victim.safetensors"), "plain file name"),
    ("absolute", to("/etc/passwd.safetensors"), "plain file name"),
    ("drive", to("C:x.safetensors"), "plain file name"),
    ("UNC", to("\\\\host\\x.safetensors"), "plain file name"),
    ("NUL", to("a\x00.safetensors"), "plain file name"),
    ("sub-folder", to("a/b.safetensors"), "plain file name"),
    ("pickle", to("model.bin"), "plain file name"),
    ("no name", to(""), "plain file name"),
    ("number", to(3), "plain file name"),
    ("null", to(None), "plain file name"),
    ("a tensor of no shard", index(lambda v: v["weight_map"].update(x=SHARD)), "belong together"),
    ("shard is a folder", shards(_folder), "regular"),
    ("shard is a FIFO", shards(_fifo), "regular"),
    ("shard leads out", shards(link_out), "outside"),
    ("shard is /dev/zero", shards(lambda f: _link(f / SHARD, "/dev/zero")), "outside"),
    ("shard is cut", shards(lambda f: _cut(f / SHARD)), "cut short"),
    # headers
    ("empty file", weights(b""), "too few"),
    ("seven bytes", weights(b"1234567"), "too few"),
    ("length of 2^63", weights(struct.pack("<Q", 2**63) + b"{}"), "cut short"),
    ("length is one more", text(lambda b: _length(b, 1)), "header"),
    ("length is one less", text(lambda b: _length(b, -1)), "header"),
    ("header of zeros", weights(struct.pack("<Q", 8) + bytes(8)), "not JSON"),
    ("last byte is missing", text(lambda b: b[:-1]), "cut short"),
    ("a byte more", text(lambda b: b + b"\0"), "no tensor"),
    ("a hole", weights(entry(data_offsets=[4, 8]) + bytes(8)), "hole"),
    ("2^64 elements", weights(entry(shape=[2**32, 2**32]) + bytes(4)), "2^64"),
    ("negative offset", weights(entry(data_offsets=[-4, 0]) + bytes(4)), "not valid"),
    ("backwards", weights(entry(data_offsets=[4, 0]) + bytes(4)), "header gives it"),
    ("dtype in lower case", weights(entry(dtype="f32") + bytes(4)), "unknown dtype"),
    ("byte-order mark", weights(header_bytes(b"\xef\xbb\xbf{}")), "byte-order"),
    ("zip", weights(b"PK\x03\x04" + bytes(60)), "zip"),
    ("pickle", weights(b"\x80\x04\x95" + bytes(60)), "cut short"),
    ("HTML", weights(b"<!DOCTYPE html><html></html>"), "HTML page"),
    ("GGUF", weights(b"GGUF\x03\0\0\0" + bytes(60)), "GGUF"),
]

# (name, how it is made, the code of its finding)
FOUND: list[tuple[str, Make, str]] = [
    ("no tensor at all", weights(header_bytes({})), "H212"),
    ("a shard is missing", shards(lambda f: (f / SHARD).unlink()), "H201"),
    ("total_size is wrong", index(lambda v: v["metadata"].update(total_size=1)), "H202"),
    ("total_size is text", index(lambda v: v["metadata"].update(total_size="many")), "H211"),
    ("metadata is null", index(lambda value: value.update(metadata=None)), "H211"),
    ("another number of heads", config({"num_key_value_heads": 4}), "H101"),
    ("another head_dim", config({"head_dim": 8}), "H102"),
    ("more layers", config({"num_hidden_layers": 5}), "H103"),
    ("fewer layers", config({"num_hidden_layers": 2}), "H103"),
    ("a larger vocabulary", config({"vocab_size": 41}), "H104"),
    ("another width", config({"hidden_size": 64, "head_dim": 4}), "H105"),
    ("float heads", config({"num_attention_heads": 8.0}), "H407"),
    ("escape in a name", weights(with_more(**{"x\x1b[2J": ("F32", (1,))})), "H209"),
    ("right-to-left in a name", weights(with_more(**{"x\u202e": ("F32", (1,))})), "H209"),
    ("empty tensor", weights(with_more(x=("F32", (0, 2**40)))), "H208"),
    ("remote code", config({"auto_map": {"AutoModel": "../x.Y"}}), "H301"),
    ("kernels of a stranger", config({"_attn_implementation_internal": "x/y"}), "H303"),
    ("trust", config({"trust_remote_code": True}), "H305"),
]


def run(folder: Path) -> tuple[int, str, str, float]:
    """Exit code, stdout, stderr and seconds of an audit of `folder`."""
    start = time.perf_counter()
    done = CliRunner().invoke(main, ["audit", str(folder), "--format", "json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr, time.perf_counter() - start


@pytest.mark.parametrize(("name", "make", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_it_is_refused(tmp_path: Path, name: str, make: Make, message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    code, out, error, seconds = run(folder)
    assert (code, out) == (2, ""), out
    assert message in error
    assert len(error.strip().splitlines()) <= 2, error
    assert error.startswith("Error: ")
    assert not any(ord(char) < 32 and char != "\n" for char in error), repr(error)
    assert seconds < 1


@pytest.mark.parametrize(("name", "make", "code"), FOUND, ids=[case[0] for case in FOUND])
def test_it_is_found(tmp_path: Path, name: str, make: Make, code: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    exit_code, out, error, seconds = run(folder)
    assert exit_code in (0, 1), error
    assert code in {finding["code"] for finding in json.loads(out)["findings"]}
    assert "\x1b" not in out
    assert seconds < 1


def test_the_corpus_is_large() -> None:
    assert len(REFUSED) + len(FOUND) >= 90


KEYS = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "n_head"),
    *("num_hidden_layers", "layer_types", "sliding_window", "rope_scaling", "rope_parameters"),
    *("vocab_size", "text_config", "quantization_config", "auto_map", "dtype", "eos_token_id"),
    *("architectures", "tie_word_embeddings", "max_position_embeddings", "attn_config"),
    *("intermediate_size", "num_experts", "vision_config", "sliding_window_pattern"),
    *("moe_intermediate_size", "kv_lora_rank", "use_sliding_window", "no_rope_layers"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.floats() | st.text(max_size=3)
    | st.sampled_from([10**18, 2**64, "yarn", "full_attention", "llama", "gptq"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*KEYS, "rope_type", "factor", "quant_method"]), inner),
    max_leaves=5,
)  # fmt: skip


def test_a_tower_whose_type_is_no_text_is_not_counted(tmp_path: Path) -> None:
    vision = {"model_type": {"a": 1}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "idefics3", "vision_config": vision}))
    assert audit_model(str(path)).spec.model_type == "idefics3"


@given(st.sampled_from(sorted(ARCHITECTURES)), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_value_in_any_key_gives_a_report_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, model_type: str, changes: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_text(json.dumps({**LLAMA_CONFIG, "model_type": model_type, **changes}))
    start = time.perf_counter()
    try:
        audit_model(str(path))
    except HeadcountError as error:
        assert str(error)
    assert time.perf_counter() - start < 1
