"""Packed projections: the heads of the matrices that codes stand for, beside a config of others."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_typed
from headcount.audit import audit_model

Packed = dict[str, tuple[str, tuple[int, ...]]]
CONFIG = {
    **{**LLAMA_CONFIG, "hidden_size": 256, "num_attention_heads": 8, "head_dim": 32},
    "intermediate_size": 512,
}


def gptq(out: int, inputs: int) -> Packed:
    return {
        **{"qweight": ("I32", (inputs // 8, out)), "qzeros": ("I32", (2, out // 8))},
        **{"scales": ("F16", (2, out)), "g_idx": ("I32", (inputs,))},
    }


def awq(out: int, inputs: int) -> Packed:
    return {
        **{"qweight": ("I32", (inputs, out // 8)), "qzeros": ("I32", (2, out // 8))},
        "scales": ("F16", (2, out)),
    }


def mlx(out: int, inputs: int) -> Packed:
    return {
        "weight": ("U32", (out, inputs // 8)),
        **{"scales": ("F16", (out, inputs // 64)), "biases": ("F16", (out, inputs // 64))},
    }


def compressed(out: int, inputs: int) -> Packed:
    return {
        **{"weight_packed": ("I32", (out, inputs // 8)), "weight_shape": ("I32", (2,))},
        "weight_scale": ("F16", (out, inputs // 64)),
    }


def fp8(out: int, inputs: int) -> Packed:
    scales = (-(-out // 128), -(-inputs // 128))
    return {"weight": ("F8_E4M3", (out, inputs)), "weight_scale_inv": ("F32", scales)}


def nvfp4(out: int, inputs: int) -> Packed:
    return {
        "weight": ("U8", (out, inputs // 2)),
        **{"weight_scale": ("F8_E4M3", (out, inputs // 16)), "weight_scale_2": ("F32", (1,))},
    }


def eetq(out: int, inputs: int) -> Packed:
    return {"weight": ("I8", (inputs, out)), "weight_scales": ("F16", (out,))}


def bitnet(out: int, inputs: int) -> Packed:
    return {"weight": ("U8", (out // 4, inputs)), "weight_scale": ("BF16", (1,))}


def quark_words(out: int, inputs: int) -> Packed:
    """int4 as Quark 0.13 exports it."""
    return {
        **{"weight": ("I32", (inputs, out // 8)), "weight_scale": ("BF16", (inputs // 128, out))},
        "weight_zero_point": ("I32", (inputs // 128, out // 8)),
    }


def quark_fp6(out: int, inputs: int) -> Packed:
    return {
        "weight": ("U8", (out, inputs * 6 // 8)),
        "weight_scale": ("U8", (out, inputs // 32)),
    }


def two_rows(out: int, inputs: int) -> Packed:
    """INT4_AWQ as Model Optimizer 0.47 exports it."""
    return {
        **{"weight": ("U8", (out // 2, inputs)), "weight_scale": ("F32", (out, inputs // 128))},
        "pre_quant_scale": ("BF16", (inputs,)),
    }


def nf4(out: int, inputs: int) -> Packed:
    return {
        **{"weight": ("U8", (out * inputs // 2, 1)), "weight.quant_map": ("F32", (16,))},
        "weight.absmax": ("F32", (out * inputs // 64,)),
    }


def quark(kind: str, scheme: str, size: int) -> dict[str, Any]:
    weight = {"dtype": kind, "qscheme": scheme, "group_size": size}
    return {"quant_method": "quark", "global_quant_config": {"weight": weight}}


LAYOUTS: list[tuple[Any, dict[str, Any]]] = [
    (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128}),
    (awq, {"quant_method": "awq", "bits": 4, "group_size": 128}),
    (mlx, {"bits": 4, "group_size": 64}),
    (compressed, {"quant_method": "compressed-tensors", "format": "pack-quantized"}),
    (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    (two_rows, {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}),
    (quark_words, quark("int4", "per_group", 128)),
    (quark_fp6, quark("fp6_e2m3", "per_group", 32)),
    (eetq, {"quant_method": "eetq", "weights": "int8"}),
    (bitnet, {"quant_method": "bitnet"}),
]


def written(folder: Path, layout: Any, settings: dict[str, Any], stored: int, said: int) -> Path:
    tensors: Packed = {}
    for name, shape in llama_shapes({**CONFIG, "num_key_value_heads": stored}).items():
        if "_proj" in name:
            packed = layout(*shape)
            tensors |= {f"{name.removesuffix('weight')}{end}": t for end, t in packed.items()}
        else:
            tensors[name] = ("BF16", shape)
    config = {**CONFIG, "num_key_value_heads": said, "quantization_config": settings}
    write_typed(folder, config, tensors)
    return folder


@pytest.mark.parametrize(("layout", "settings"), LAYOUTS, ids=[la.__name__ for la, _ in LAYOUTS])
@pytest.mark.parametrize("said", [2, 4, 8])
def test_packed_heads_decide(
    tmp_path: Path, layout: Any, settings: dict[str, Any], said: int
) -> None:
    """2 K/V heads of 32 are stored, of 3 layers: 2 x 2 x 32 elements of 2 bytes each."""
    audit = audit_model(str(written(tmp_path, layout, settings, 2, said)))
    assert audit.spec.cache_bytes_per_token() == 3 * prod((2, 2, 32, 2))
    found = [f.message for f in audit.findings if f.code == "H101"]
    assert len(found) == (said != 2)
    assert all(f"num_key_value_heads {said}, the k weights have 2" in text for text in found)
    assert {f.code for f in audit.findings if f.severity == "error"} <= {"H101"}


def test_a_layout_that_is_not_known_says_nothing(tmp_path: Path) -> None:
    """HQQ lays its codes out by groups; the shape of the matrix is a tensor's value."""

    def by_groups(out: int, inputs: int) -> Packed:
        scales = ("F16", (out * inputs // 64, 1))
        codes = ("U8", (out * inputs // 64 // 2, 64))
        return {"W_q": codes, "scale": scales, "zero": scales, "shape": ("I64", (2,))}

    settings = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}
    audit = audit_model(str(written(tmp_path, by_groups, settings, 2, 8)))
    assert "H101" not in {f.code for f in audit.findings}
    sound = audit_model(str(written(tmp_path, by_groups, settings, 2, 2)))
    assert sound.findings == ()
    assert sound.spec.parameters == prod_of_all(2)


@pytest.mark.parametrize(("layout", "settings"), LAYOUTS, ids=[la.__name__ for la, _ in LAYOUTS])
def test_a_sound_one_has_no_alarm(tmp_path: Path, layout: Any, settings: dict[str, Any]) -> None:
    """And the codes stand for as many weights as the plain model has."""
    audit = audit_model(str(written(tmp_path, layout, settings, 2, 2)))
    assert [f for f in audit.findings if f.severity != "note"] == []
    assert audit.spec.parameters == prod_of_all(2)


def prod_of_all(heads: int) -> int:
    return sum(map(prod, llama_shapes({**CONFIG, "num_key_value_heads": heads}).values()))


QWEN3 = {
    **{**CONFIG, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "num_key_value_heads": 4,
}


def with_norms(folder: Path, layout: Any, settings: dict[str, Any], **changes: Any) -> Path:
    """8 query heads and 4 K/V heads of 32 with a norm each, beside a config of other heads."""
    written(folder, layout, settings, 4, 4)
    norms = {f"model.layers.{i}.self_attn.{x}_norm.weight": (32,) for i in range(3) for x in "qk"}
    tensors = read_headers(folder) | {name: ("BF16", shape) for name, shape in norms.items()}
    write_typed(folder, {**QWEN3, **changes, "quantization_config": settings}, tensors)
    return folder


def read_headers(folder: Path) -> Packed:
    """The tensors that were written, but for `__metadata__`."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}


@pytest.mark.parametrize(("layout", "settings"), LAYOUTS, ids=[la.__name__ for la, _ in LAYOUTS])
@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, set()),
        ({"num_attention_heads": 4, "num_key_value_heads": 2}, {"H101"}),
        ({"num_key_value_heads": 8}, {"H101"}),
        ({"num_attention_heads": 16, "head_dim": 16, "num_key_value_heads": 8}, {"H101", "H102"}),
    ],
)
def test_norms_fix_the_heads_of_packed_projections(
    tmp_path: Path, layout: Any, settings: dict[str, Any], said: dict[str, int], wrong: set[str]
) -> None:
    audit = audit_model(str(with_norms(tmp_path, layout, settings, **said)))
    mixer: Any = audit.spec.layers[0].mixers[0]
    seen = (mixer.num_attention_heads, mixer.num_key_value_heads, mixer.head_dim)
    assert seen == (8, 4, 32)
    assert {f.code for f in audit.findings if f.severity != "note"} == wrong


@pytest.mark.parametrize(("layout", "settings"), LAYOUTS, ids=[la.__name__ for la, _ in LAYOUTS])
def test_a_packed_layer_without_a_part_is_found(
    tmp_path: Path, layout: Any, settings: dict[str, Any]
) -> None:
    with_norms(tmp_path, layout, settings)
    for lost, code in (("1.self_attn.v_proj.", "H103"), ("2.self_attn.q_norm.", "H102")):
        kept = {n: t for n, t in read_headers(tmp_path).items() if lost not in n}
        config = {**QWEN3, "quantization_config": settings}
        folder = tmp_path / lost
        write_typed(folder, config, kept)
        found = {f.code for f in audit_model(str(folder)).findings if f.severity == "error"}
        assert found == {code}


def test_scales_of_an_8_bit_cache_are_no_parameters(tmp_path: Path) -> None:
    """Model Optimizer and compressed-tensors store them in attention, beside wide weights too."""
    names = ("self_attn.k_scale", "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale")
    scales = {f"model.layers.{i}.{name}": ("F32", ()) for i in range(3) for name in names}
    plain = {name: ("BF16", shape) for name, shape in llama_shapes(CONFIG).items()}
    write_typed(tmp_path, CONFIG, plain | scales)
    audit = audit_model(str(tmp_path))
    assert audit.findings == ()
    assert audit.spec.parameters == sum(map(prod, llama_shapes(CONFIG).values()))
