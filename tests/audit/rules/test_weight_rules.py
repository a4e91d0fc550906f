"""Rules on headers that came later: each with headers that make it speak and some that do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, typed, write_model, write_sharded, write_typed
from headcount.arch.architecture import Stored
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.audit.inventory import Inventory, Line
from headcount.audit.rules.elements import float32_weights

Tensors = dict[str, tuple[str, tuple[int, ...]]]
Q = "model.layers.0.self_attn.q_proj"
GATE = "model.layers.0.mlp.gate_proj.weight"
EXPERT = "model.layers.0.block_sparse_moe.experts.0"
MIXTRAL = {
    **{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
    **{"num_local_experts": 8, "num_experts_per_tok": 2},
}
FP8 = {"quantization_config": {"quant_method": "fp8"}}
GPT2 = {
    **{"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16},
    **{"vocab_size": 20, "dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0},
}


def llama(**changes: Any) -> Tensors:
    return typed(llama_shapes({**LLAMA_CONFIG, **changes}))


def gpt2(positions: int = 16) -> Tensors:
    block = {
        **{"ln_1.weight": (8,), "ln_1.bias": (8,), "ln_2.weight": (8,), "ln_2.bias": (8,)},
        **{"attn.c_attn.weight": (8, 24), "attn.c_attn.bias": (24,)},
        **{"attn.c_proj.weight": (8, 8), "attn.c_proj.bias": (8,)},
        **{"mlp.c_fc.weight": (8, 32), "mlp.c_fc.bias": (32,)},
        **{"mlp.c_proj.weight": (32, 8), "mlp.c_proj.bias": (8,)},
    }
    outside = {"wte.weight": (20, 8), "wpe.weight": (positions, 8)}
    norm = {"ln_f.weight": (8,), "ln_f.bias": (8,)}
    return typed(outside | norm | {f"h.0.{name}": shape for name, shape in block.items()})


def without(*names: str) -> Tensors:
    return {name: value for name, value in llama().items() if name not in names}


def fp8(scales: bool = True) -> Tensors:
    """All projections of attention in fp8."""
    found = llama()
    for name, (_, shape) in llama().items():
        if "_proj" in name:
            found[name] = ("F8_E4M3", shape)
            if scales:
                found[f"{name}_scale_inv"] = ("F32", (1, 1))
    return found


BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 32]}}


def fp8_scaled(end: str, shape: tuple[int, int] | None = None) -> Tensors:
    """The same with scales of another name, or of `shape` for every matrix, else of its blocks."""
    tensors = llama()
    for name, (_, (rows, *columns)) in llama().items():
        if "_proj" in name:
            tensors[name] = ("F8_E4M3", (rows, *columns))
            blocks = (-(-rows // 16), -(-columns[0] // 32))
            tensors[f"{name.removesuffix('.weight')}{end}"] = ("F32", shape or blocks)
    return tensors


def found(folder: Path, config: dict[str, Any], tensors: Tensors) -> set[tuple[str, str]]:
    write_typed(folder, config, tensors)
    return {(finding.code, finding.severity) for finding in audit_model(str(folder)).findings}


SPEAKS: list[tuple[str, str, dict[str, Any], Tensors]] = [
    ("H108", "warning", {}, llama() | {f"{Q}.bias": ("BF16", (32,))}),
    ("H108", "warning", {"attention_bias": True}, llama()),
    ("H109", "note", {}, llama() | {"score.weight": ("BF16", (2, 32))}),
    ("H109", "warning", {}, llama() | {"model.layers.0.mlp.more.weight": ("BF16", (2, 32))}),
    ("H109", "warning", {}, without("model.layers.1.mlp.up_proj.weight")),
    ("H110", "error", {"intermediate_size": 64}, llama()),
    ("H111", "error", GPT2, gpt2(positions=12)),
    ("H112", "error", {}, without("model.norm.weight")),
    ("H113", "error", {}, without("model.embed_tokens.weight", "lm_head.weight")),
    ("H114", "error", MIXTRAL, llama()),
    ("H208", "warning", {}, llama() | {"model.extra": ("BF16", (0, 32))}),
    ("H209", "warning", {}, llama() | {"a\x1b[31m": ("BF16", (2,))}),
    ("H209", "warning", {}, llama() | {"../../etc/passwd": ("BF16", (2,))}),
    ("H209", "warning", {}, llama() | {"": ("BF16", (2,))}),
    ("H212", "error", {}, {}),
    ("H213", "error", {}, {f"_orig_mod.{name}": value for name, value in llama().items()}),
    ("H217", "error", {}, {f"language_model.{name}": value for name, value in llama().items()}),
    ("H601", "warning", {}, llama() | {f"{Q}.weight": ("F32", (32, 32))}),
    ("H602", "warning", FP8, llama()),
    ("H603", "error", {}, fp8()),
    ("H604", "warning", FP8, fp8(scales=False)),
    ("H604", "error", FP8, llama() | {f"{Q}.qweight": ("I32", (4, 32))}),
    ("H609", "warning", BLOCKS, fp8_scaled(".weight_scale")),
    ("H609", "note", FP8, fp8_scaled(".weight_scale", (1, 1))),
    ("H609", "warning", BLOCKS, fp8_scaled(".weight_scale_inv", (1, 1))),
    ("H608", "warning", FP8, llama() | {f"{Q}.qweight": ("I32", (4, 32))}),
]
SILENT: list[tuple[str, dict[str, Any], Tensors]] = [
    ("H108", {}, llama() | {"model.layers.0.self_attn.bias": ("U8", (1, 1, 8, 8))}),
    ("H109", {}, llama() | {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (2,))}),
    ("H109", {}, llama(num_hidden_layers=4)),  # H103 says it already
    ("H110", {}, llama()),
    ("H111", GPT2, gpt2()),
    ("H112", GPT2, gpt2()),
    ("H113", {"tie_word_embeddings": True}, without("lm_head.weight")),
    ("H114", {}, llama()),
    ("H114", MIXTRAL, llama() | {f"{EXPERT}.w1.weight": ("BF16", (48, 32))}),  # H109 says the rest
    ("H208", {}, llama() | {"model.extra": ("BF16", ())}),
    ("H209", {}, llama() | {"model.Größe.weight": ("BF16", (2,))}),
    ("H212", {}, llama()),
    ("H213", {}, llama() | {"_orig_mod.x": ("BF16", (2,))}),
    ("H217", {}, llama()),
    ("H601", {}, llama() | {"model.norm.weight": ("F32", (32,))}),  # norms often are wider
    ("H602", FP8, fp8()),
    ("H603", FP8, fp8()),
    ("H603", {}, llama() | {"model.ids": ("I64", (4,))}),
    ("H603", {}, llama() | {"model.layers.0.self_attn.bias": ("U8", (1, 1, 8, 8))}),
    ("H603", {}, llama() | {"model.mask": ("U8", (8, 8))}),
    ("H109", {}, llama() | {"model.mask": ("U8", (8, 8))}),
    ("H604", FP8, fp8()),
    ("H608", FP8, fp8()),
    ("H609", FP8, fp8()),
    ("H609", BLOCKS, fp8_scaled(".weight_scale_inv")),
    ("H609", BLOCKS, fp8_scaled(".scale")),
]


@pytest.mark.parametrize(("code", "severity", "changes", "tensors"), SPEAKS)
def test_it_speaks(
    tmp_path: Path, code: str, severity: str, changes: dict[str, Any], tensors: Tensors
) -> None:
    base = {} if changes is GPT2 else LLAMA_CONFIG
    assert (code, severity) in found(tmp_path, {**base, **changes}, tensors)


@pytest.mark.parametrize(("code", "changes", "tensors"), SILENT)
def test_it_is_silent(tmp_path: Path, code: str, changes: dict[str, Any], tensors: Tensors) -> None:
    base = {} if changes is GPT2 else LLAMA_CONFIG
    assert code not in {one for one, _ in found(tmp_path, {**base, **changes}, tensors)}


def codes_of(folder: Path) -> list[str]:
    return [finding.code for finding in audit_model(str(folder)).findings]


def change_index(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    assert codes_of(folder) == []
    write_typed(folder, LLAMA_CONFIG, llama(), "model-00002-of-00002.safetensors")
    assert "H204" in codes_of(folder)


def test_a_gap_in_the_numbers(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes(), 3)
    assert codes_of(folder) == []
    lost = "model-00002-of-00003.safetensors"

    def forget(index: dict[str, Any]) -> None:
        kept = {n: f for n, f in index["weight_map"].items() if f != lost}
        index["weight_map"] = kept

    change_index(folder, forget)
    assert "H205" in codes_of(folder)


def test_an_index_without_a_total(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    change_index(folder, lambda index: index.pop("metadata"))
    assert codes_of(folder) == ["H211"]


@pytest.mark.parametrize(("metadata", "expected"), [(None, []), ({"format": "pt"}, []),
                                                     ({"format": "x"}, ["H210"]),
                                                     ({"by": "me"}, ["H210"])])  # fmt: skip
def test_the_format_in_the_metadata(
    tmp_path: Path, metadata: dict[str, str] | None, expected: list[str]
) -> None:
    write_typed(tmp_path, LLAMA_CONFIG, llama(), metadata=metadata)
    assert codes_of(tmp_path) == expected


def test_large_float32_weights() -> None:
    """By sizes alone: no file of a gigabyte is written here."""

    class Sized:
        def __init__(self, **sizes: int) -> None:
            self.census = type("Census", (), {"bytes_by_dtype": sizes})

    assert list(float32_weights.check(Sized(F32=2**32)))  # type: ignore[arg-type]
    assert not list(float32_weights.check(Sized(F32=2**20)))  # type: ignore[arg-type]
    assert not list(float32_weights.check(Sized(F32=2**31, BF16=2**33)))  # type: ignore[arg-type]


def test_inventory_adds_up() -> None:
    line = Line(name="mlp", tensors=1, parameters=None, elements=2, nbytes=4)
    inventory = Inventory(by_part=(line,), by_dtype=(line,), parts={}, codes=(), bare=())
    assert inventory.parameters is None
    assert inventory.nbytes == 4


@pytest.mark.parametrize("conv", [True, False])
def test_matrices_that_are_stored_turned_are_called_so(tmp_path: Path, conv: bool) -> None:
    """GPT-2 has Conv1D, [in, out], where others have Linear: the wrong side tells no heads."""
    tensors = gpt2() if conv else llama()
    names = ["h.0.attn.c_attn.weight"] if conv else [f"{Q[:-6]}k_proj.weight"]
    for name in names:
        dtype, shape = tensors[name]
        tensors[name] = (dtype, shape[::-1])
    write_typed(tmp_path, GPT2 if conv else LLAMA_CONFIG, tensors)
    (one,) = (f for f in audit_model(str(tmp_path)).findings if f.severity != "note")
    assert (one.code, one.where) == ("H102", names[0])
    assert "turned, the class has it as" in one.message


def test_a_hidden_size_of_the_mlp_is_not_a_width(tmp_path: Path) -> None:
    """down_proj is [hidden, width]: only inner matrices are looked at."""
    write_model(tmp_path, LLAMA_CONFIG, llama_shapes())
    assert codes_of(tmp_path) == []


def test_files_that_hold_otherwise_than_their_config_says() -> None:
    """A type that moves to another file keeps what its architecture says of this."""
    found = {name for name, one in ARCHITECTURES.items() if one.stored != Stored()}
    assert found == {
        *("mllama", "mllama_text_model", "moshi"),  # more rows in the embedding
        *("kyutai_speech_to_text", "csm", "csm_depth_decoder_model", "higgs_audio_v2"),
        *("t5", "mt5", "umt5", "pop2piano", "udop"),  # matrices in float32
        *("musicgen_decoder", "musicgen_melody_decoder"),  # ids of text, and codes of sound
        "marian",
    }
