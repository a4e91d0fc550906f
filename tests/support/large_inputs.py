"""Inputs of any size, each a way to be large: what a command is asked of them, and their bytes."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf_files
import pickles
from checkpoints import LLAMA_CONFIG, header_bytes, llama_shapes, write_safetensors


class Large(NamedTuple):
    """`make(folder, n)` writes an input of about n parts and returns the arguments of a command.
    `n` is a small one for a test: ten times as many are made, too."""

    make: Callable[[Path, int], list[str]]
    n: int


INPUTS: dict[str, Large] = {}


def large(n: int) -> Callable[[Callable[[Path, int], list[str]]], Callable[[Path, int], list[str]]]:
    def add(make: Callable[[Path, int], list[str]]) -> Callable[[Path, int], list[str]]:
        INPUTS[make.__name__] = Large(make, n)
        return make

    return add


def _config(folder: Path, **values: Any) -> list[str]:
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG | values))
    return ["audit", str(folder / "config.json")]


def _folder(folder: Path, **values: Any) -> list[str]:
    """A small checkpoint that is whole."""
    _config(folder, **values)
    write_safetensors(folder / "model.safetensors", llama_shapes())
    return ["audit", str(folder)]


def _index(folder: Path, weight_map: Mapping[str, str]) -> list[str]:
    _config(folder)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return ["audit", str(folder)]


def _header(folder: Path, names: Iterator[str]) -> list[str]:
    """A file of the Llama tensors and of these, one element each."""
    _config(folder)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        header[name] = {"dtype": "F16", "shape": [1, 1], "data_offsets": [end, end + 2]}
        end += 2
    start = header_bytes(header)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(start)
        file.truncate(len(start) + end)
    return ["audit", str(folder)]


@large(1_500)
def missing_shards(folder: Path, n: int) -> list[str]:
    return _index(folder, {f"a{i}": f"m{i:05}.safetensors" for i in range(n)})


@large(1_500)
def missing_numbered_shards(folder: Path, n: int) -> list[str]:
    of = f"of-{n:05}.safetensors"
    names = list(llama_shapes())
    return _index(folder, {f"{names[i % 7]}{i}": f"model-{i + 1:05}-{of}" for i in range(n)})


@large(5_000)
def tensors_of_one_missing_shard(folder: Path, n: int) -> list[str]:
    return _index(folder, {f"model.layers.{i}.mlp.up.weight": "m.safetensors" for i in range(n)})


@large(300)
def shards_that_are_there(folder: Path, n: int) -> list[str]:
    for i in range(n):
        write_safetensors(folder / f"m{i}.safetensors", {f"model.layers.{i}.a": (1,)})
    return _index(folder, {f"model.layers.{i}.a": f"m{i}.safetensors" for i in range(n)})


@large(300)
def tensors_in_two_shards(folder: Path, n: int) -> list[str]:
    for file in ("a", "b"):
        write_safetensors(folder / f"{file}.safetensors", {f"x{i}": (1,) for i in range(n)})
    return _index(folder, {f"x{i}": "ab"[i % 2] + ".safetensors" for i in range(n)})


@large(2_000)
def tensors_of_no_layer(folder: Path, n: int) -> list[str]:
    return _header(folder, (f"x{i}" for i in range(n)))


@large(2_000)
def tensors_of_experts(folder: Path, n: int) -> list[str]:
    names = (
        f"model.layers.{i % 3}.mlp.experts.{i // 9}.{part}_proj.weight"
        for i in range(n)
        for part in ("gate", "up", "down")
    )
    return _header(folder, (name for _, name in zip(range(n), dict.fromkeys(names), strict=False)))


@large(2_000)
def tensors_of_too_many_layers(folder: Path, n: int) -> list[str]:
    return _header(folder, (f"model.layers.{i}.self_attn.q_proj.weight" for i in range(n)))


@large(2_000)
def unknown_attention_modules(folder: Path, n: int) -> list[str]:
    return _header(folder, (f"model.layers.0.self_attn.x{i}_proj.weight" for i in range(n)))


@large(2_000)
def lists_of_layers(folder: Path, n: int) -> list[str]:
    return _header(folder, (f"m{i}.layers.{i % 7}.self_attn.q_proj.weight" for i in range(n)))


@large(2_000)
def towers(folder: Path, n: int) -> list[str]:
    return _header(folder, (f"vision{i}.layers.0.self_attn.q_proj.weight" for i in range(n)))


def _of_several(folder: Path) -> None:
    """The config of a language model beside others."""
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "num_hidden_layers": 1}
    config = {"model_type": "llava", "text_config": LLAMA_CONFIG, "vision_config": vision}
    (folder / "config.json").write_text(json.dumps(config))


@large(2_000)
def lists_of_other_models(folder: Path, n: int) -> list[str]:
    asked = _header(folder, (f"m{i}.a.layers.0.self_attn.q_proj.weight" for i in range(n)))
    _of_several(folder)
    return asked


@large(10)
def long_names_of_other_models(folder: Path, n: int) -> list[str]:
    asked = _header(folder, _long_names(n))
    _of_several(folder)
    return asked


@large(2_000)
def packed_weights(folder: Path, n: int) -> list[str]:
    parts = ("qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale")
    names = (f"model.layers.{i // 6}.mlp.up_proj.{parts[i % 6]}" for i in range(n))
    return _header(folder, names)


@large(2_000)
def metadata_of_a_header(folder: Path, n: int) -> list[str]:
    _config(folder)
    header = {"__metadata__": {f"k{i}": "v" * 20 for i in range(n)}}
    (folder / "model.safetensors").write_bytes(header_bytes(header))
    return ["audit", str(folder)]


# What patterns could try again at each word or character of a name.
_WORDS = ("self_attn.", "layers.1.", "vision.", "q_proj.", "experts.0.", "1.", "norm", "..", "\x1b")


@large(10)
def long_names(folder: Path, n: int) -> list[str]:
    """Of 5,000 characters each, which nearly are names of matrices, norms and layers."""
    return _header(folder, _long_names(n))


def _long_names(n: int) -> Iterator[str]:
    for i in range(n):
        word = _WORDS[i % len(_WORDS)]
        yield f"{word * (5000 // len(word))}{i}-.gate_proj.weight"


@large(5_000)
def end_of_text_tokens(folder: Path, n: int) -> list[str]:
    return _config(folder, eos_token_id=list(range(n)))


@large(5_000)
def tokens_outside(folder: Path, n: int) -> list[str]:
    asked = _folder(folder, eos_token_id=list(range(50, 50 + n)))
    config = {"eos_token_id": list(range(60, 60 + n)), "bos_token_id": list(range(60, 60 + n))}
    (folder / "generation_config.json").write_text(json.dumps(config))
    return asked


@large(200)
def layer_types(folder: Path, n: int) -> list[str]:
    kinds = ["full_attention", "sliding_attention"] * (n // 2)
    return _config(folder, layer_types=kinds, num_hidden_layers=n, model_type="qwen3")


@large(200)
def heads_by_layer(folder: Path, n: int) -> list[str]:
    return _config(
        folder,
        model_type="openelm",
        num_query_heads=[8] * n,
        num_kv_heads=[2] * n,
        num_hidden_layers=n,
        ffn_multipliers=[1.5] * n,
    )


@large(2_000)
def keys_of_a_config(folder: Path, n: int) -> list[str]:
    return _config(folder, **{f"key_{i}": i for i in range(n)})


@large(2_000)
def objects_of_a_config(folder: Path, n: int) -> list[str]:
    inner = {"model_type": "llama", "trust_remote_code": True, "attn_implementation": "x"}
    return _config(folder, **{f"c{i}": inner for i in range(n)})


@large(90)
def nested_objects(folder: Path, n: int) -> list[str]:
    text = '{"a":' * n + "1" + "}" * n
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG)[:-1] + f', "x": {text}}}')
    return ["audit", str(folder / "config.json")]


@large(2_000)
def code_of_the_models_own(folder: Path, n: int) -> list[str]:
    return _folder(folder, auto_map={f"Auto{i}": f"m{i}.M" for i in range(n)})


@large(2_000)
def rescaled_positions(folder: Path, n: int) -> list[str]:
    rope = {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 7}
    return _config(folder, rope_parameters={f"k{i}": rope for i in range(n)})


@large(2_000)
def modules_not_quantised(folder: Path, n: int) -> list[str]:
    patterns = [f"re:.*(a+)+(.*){i}$" for i in range(n)]
    settings = {"quant_method": "compressed-tensors", "ignore": patterns, "format": "pack"}
    return _folder(
        folder,
        quantization_config=settings
        | {"modules_to_not_convert": patterns}
        | {"config_groups": {f"g{i}": {"targets": [p]} for i, p in enumerate(patterns)}},
    )


@large(200)
def layers(folder: Path, n: int) -> list[str]:
    return [*_config(folder, num_hidden_layers=n), "--explain"]


@large(10_000)
def experts(folder: Path, n: int) -> list[str]:
    return _config(
        folder,
        model_type="qwen3_moe",
        num_experts=n,
        num_experts_per_tok=n,
        moe_intermediate_size=8,
        decoder_sparse_step=1,
        mlp_only_layers=list(range(n // 20)),
    )


@large(5_000)
def vocabulary(folder: Path, n: int) -> list[str]:
    asked = _folder(folder)
    tokenizer = {
        "added_tokens": [{"id": i, "content": f"<{i}>", "special": True} for i in range(n // 10)],
        "model": {
            "vocab": {f"tok{i}": i for i in range(n)},
            "merges": [[f"t{i}", f"k{i}"] for i in range(n)],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return asked


@large(30_000)
def chat_template(folder: Path, n: int) -> list[str]:
    asked = _folder(folder)
    config = {"chat_template": "_" * n, "auto_map": {f"a{i}": "x" for i in range(n // 20)}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return asked


@large(1_000)
def entries_of_a_folder(folder: Path, n: int) -> list[str]:
    asked = _folder(folder)
    for i in range(n):
        (folder / f"{i}.{('py', 'bin', 'txt', 'safetensors')[i % 4]}").touch()
    return asked


@large(300)
def links_out_of_a_folder(folder: Path, n: int) -> list[str]:
    asked = _folder(folder)
    for i in range(n):
        (folder / f"l{i}").symlink_to("/nowhere")
    return asked


@large(2_000)
def gguf_tensors(folder: Path, n: int) -> list[str]:
    tensors = {f"blk.{i % 3}.ffn_{i}.weight": ("F32", (1, 1)) for i in range(n)}
    return _gguf(folder, gguf_files.LLAMA, tensors)


@large(2_000)
def gguf_attention_tensors(folder: Path, n: int) -> list[str]:
    tensors = {f"blk.{i}.attn_q.weight": ("F32", (1, 1)) for i in range(n)}
    return _gguf(folder, gguf_files.LLAMA, tensors)


@large(20_000)
def gguf_strings(folder: Path, n: int) -> list[str]:
    words = [f"t{i}" for i in range(n)]
    more = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": words}
    return _gguf(folder, gguf_files.LLAMA | more, {})


@large(1_000)
def gguf_keys(folder: Path, n: int) -> list[str]:
    return [*_gguf(folder, gguf_files.LLAMA | {f"llama.{i}": "x" for i in range(n)}, {})]


@large(20)
def gguf_short_lists(folder: Path, n: int) -> list[str]:
    return _gguf(folder, gguf_files.LLAMA | {f"llama.{i}": [1] * 4_000 for i in range(n)}, {})


def _gguf(folder: Path, metadata: Mapping[str, Any], tensors: gguf_files.Tensors) -> list[str]:
    (folder / "m.gguf").write_bytes(gguf_files.gguf_bytes(metadata, tensors))
    return ["audit", str(folder / "m.gguf")]


@large(1_000)
def pickled_tensors(folder: Path, n: int) -> list[str]:
    _config(folder)
    pickles.write_bin(folder / "pytorch_model.bin", {f"x.{i}.y": (1,) for i in range(n)})
    return ["audit", str(folder)]


@large(20_000)
def opcodes(folder: Path, n: int) -> list[str]:
    """A program for the stack: numbers, marks, copies, and names that are imported."""
    _config(folder)
    one = b"(" + b"K\x01" * 8 + b"t2q\x01h\x01" + b"00"
    names = b"".join(b"cos\nf%d\n" % i for i in range(n // 20))
    data = b"\x80\x02" + one * (n // 16) + names + b"N."
    pickles.write_bin(folder / "pytorch_model.bin", {}, data=data)
    return ["audit", str(folder)]


@large(300)
def marks(folder: Path, n: int) -> list[str]:
    """Lists of lists: each mark is looked for from above."""
    _config(folder)
    data = b"\x80\x02" + b"(" * n + b"N" + b"t" * n + b"."
    pickles.write_bin(folder / "pytorch_model.bin", {}, data=data)
    return ["audit", str(folder)]


LINE = "INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: 12,345 tokens model='gpt2'\n"


@large(2_000)
def lines_of_a_log(folder: Path, n: int) -> list[str]:
    noise = "(EngineCore_DP0 pid=1) INFO 01-01 00:00:00 loading shard --dtype x block_size=16 %d\n"
    return _log(folder, (noise % i for i in range(n)))


@large(2_000)
def starts_of_a_log(folder: Path, n: int) -> list[str]:
    return _log(folder, ("Initializing an LLM engine (v0.10.0) with config: x\n" for _ in range(n)))


@large(500)
def pools_of_a_log(folder: Path, n: int) -> list[str]:
    form = "KV Cache is allocated. #tokens: %d, K size: 1.0 GB, V size: 1.0 GB\n"
    return _log(folder, (form % i for i in range(n)))


@large(10_000)
def long_lines_of_a_log(folder: Path, n: int) -> list[str]:
    """What patterns could try again at each character."""
    parts = (
        "KV Cache is allocated",
        "Load weight end",
        "version ",
        "vllm",
        "0" * 9,
        "--tp ",
        "on device",
    )
    return _log(folder, (part * (n // len(part)) + "\n" for part in parts))


def _log(folder: Path, lines: Iterator[str]) -> list[str]:
    with (folder / "start.log").open("w") as file:
        file.writelines(lines)
        file.write(LINE)
    said = ["--model", "gpt2", "--device", "h100", "--engine-version", "0.10.0", "--context", "1k"]
    return ["reconcile", str(folder / "start.log"), *said]
