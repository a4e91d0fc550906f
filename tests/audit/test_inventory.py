"""Weights by part and dtype: packed formats, copies, extra layers, experts."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG, llama_shapes, typed, write_typed
from headcount.audit import audit_model
from headcount.audit.audited import Audit
from headcount.audit.inventory import Inventory
from headcount.audit.weights_report import difference, weights_notes
from headcount.cli import main

Tensors = dict[str, tuple[str, tuple[int, ...]]]
Config = dict[str, Any]


def audit(folder: Path, tensors: Tensors, **config: Any) -> Audit:
    return audit_model(str(write_typed(folder, {**LLAMA_CONFIG, **config}, tensors)))


def inventory(folder: Path, tensors: Tensors, **config: Any) -> Inventory:
    found = audit(folder, tensors, **config).inventory
    assert found is not None
    return found


def plain() -> Tensors:
    return typed(llama_shapes())


def packed(pack: Any) -> Tensors:
    """Every projection of a layer in another form; `pack(base, out, in)` gives its tensors."""
    found: Tensors = {}
    for name, (dtype, shape) in plain().items():
        if "_proj" in name:
            found |= pack(name.removesuffix(".weight"), *shape)
        else:
            found[name] = (dtype, shape)
    return found


def gptq(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.qweight": ("I32", (columns // 8, rows)),
        f"{base}.qzeros": ("I32", (1, rows // 8)),
        f"{base}.scales": ("F16", (1, rows)),
        f"{base}.g_idx": ("I32", (columns,)),
    }


def awq(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.qweight": ("I32", (columns, rows // 8)),
        f"{base}.qzeros": ("I32", (1, rows // 8)),
        f"{base}.scales": ("F16", (1, rows)),
    }


def nf4(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.weight": ("U8", (rows * columns // 2, 1)),
        f"{base}.weight.absmax": ("F32", (rows * columns // 64 + 1,)),
        f"{base}.weight.quant_map": ("F32", (16,)),
        f"{base}.weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
    }


def int8(base: str, rows: int, columns: int) -> Tensors:
    return {f"{base}.weight": ("I8", (rows, columns)), f"{base}.SCB": ("F32", (rows,))}


def fp8(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.weight": ("F8_E4M3", (rows, columns)),
        f"{base}.weight_scale_inv": ("F32", (1, 1)),
    }


def nvfp4(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.weight": ("U8", (rows, columns // 2)),
        f"{base}.weight_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{base}.weight_scale_2": ("F32", ()),
        f"{base}.input_scale": ("F32", ()),
    }


def compressed(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.weight_packed": ("I32", (rows, columns // 8)),
        f"{base}.weight_scale": ("BF16", (rows, 1)),
        f"{base}.weight_shape": ("I64", (2,)),
    }


def mlx(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.weight": ("U32", (rows, columns // 8)),
        f"{base}.scales": ("BF16", (rows, 1)),
        f"{base}.biases": ("BF16", (rows, 1)),
    }


def quantised(method: str, **more: Any) -> Config:
    return {"quantization_config": {"quant_method": method, **more}}


INT4 = {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}
NO_BITS = quantised("gptq")
PACKINGS: list[tuple[Any, Config]] = [
    (gptq, quantised("gptq", bits=4)),
    (gptq, NO_BITS),  # g_idx tells them
    (awq, quantised("awq", bits=4)),
    (nf4, quantised("bitsandbytes", load_in_4bit=True)),
    (int8, quantised("bitsandbytes", load_in_8bit=True)),
    (fp8, quantised("fp8")),
    (nvfp4, quantised("modelopt", quant_algo="NVFP4")),
    (compressed, quantised("compressed-tensors", **INT4)),
    (mlx, {"quantization": {"bits": 4, "group_size": 32}}),
]


@pytest.mark.parametrize(("pack", "config"), PACKINGS)
def test_codes_count_as_the_weights_they_stand_for(
    tmp_path: Path, pack: Any, config: Config
) -> None:
    whole = inventory(tmp_path / "plain", plain())
    found = audit(tmp_path / "packed", packed(pack), **config)
    assert found.inventory is not None
    for name in ("attention", "mlp", "embeddings", "norms", "output head"):
        assert found.inventory.part(name) == whole.part(name), name
    assert found.spec.parameters == whole.parameters
    assert found.spec.parameters_source == "headers"
    # Without its bits, bytes follow from the headers, not from the config.
    assert [finding.code for finding in found.findings] == ["H607"] * (config is NO_BITS)
    assert found.inventory.nbytes < whole.nbytes


def test_an_unknown_packing_counts_by_the_config(tmp_path: Path) -> None:
    found = audit(tmp_path, packed(awq), **quantised("someones"))
    assert found.inventory is not None
    assert found.inventory.parameters is None
    assert found.spec.parameters_source == "config"
    assert found.spec.parameters == inventory(tmp_path / "plain", plain()).parameters


def aqlm(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.codes": ("I16", (rows, columns // 8, 1)),
        f"{base}.codebooks": ("F16", (1, 65536, 1, 8)),
        f"{base}.scales": ("F16", (rows, 1, 1, 1)),
    }


def exl3(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.trellis": ("I16", (-(-columns // 16), -(-rows // 16), 48)),
        f"{base}.suh": ("F16", (columns,)),
        f"{base}.svh": ("F16", (rows,)),
    }


def quip(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}.Qidxs": ("I16", (rows, columns // 8)),
        f"{base}.SU": ("F16", (columns,)),
        f"{base}.SV": ("F16", (rows,)),
    }


def torchao(base: str, rows: int, columns: int) -> Tensors:
    return {
        f"{base}._weight_qdata": ("I8", (rows, columns // 2)),
        f"{base}._weight_scale": ("BF16", (1, rows)),
        f"{base}._weight_zero_point": ("BF16", (1, rows)),
    }


@pytest.mark.parametrize("pack", [aqlm, exl3, quip, torchao])
def test_codes_that_are_not_read_count_as_no_weights(tmp_path: Path, pack: Any) -> None:
    """Codes of as many names as there are tools: the config says how many weights there are."""
    settings = {"quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {}}}}
    found = audit(tmp_path, packed(pack), **quantised(pack.__name__, **settings))
    assert found.spec.parameters_source == "config"
    assert found.spec.parameters == inventory(tmp_path / "plain", plain()).parameters
    assert {finding.code for finding in found.findings} <= {"H607"}


def test_a_head_may_be_stored_in_codes_that_are_not_read(tmp_path: Path) -> None:
    tensors = packed(exl3)
    del tensors["lm_head.weight"]
    tensors |= exl3("lm_head", 40, 32)
    found = audit(tmp_path, tensors, **quantised("exl3"))
    assert [finding.code for finding in found.findings] == ["H607"]
    del tensors["lm_head.trellis"], tensors["lm_head.suh"], tensors["lm_head.svh"]
    found = audit(tmp_path / "without", tensors, **quantised("exl3"))
    assert "H107" in {finding.code for finding in found.findings}


def test_biases_that_autogptq_added_are_no_parameters_too_many(tmp_path: Path) -> None:
    def with_bias(base: str, rows: int, columns: int) -> Tensors:
        return {**gptq(base, rows, columns), f"{base}.bias": ("F16", (rows,))}

    found = audit(tmp_path, packed(with_bias), **quantised("gptq", bits=4))
    assert found.findings == ()


def test_gpt_oss_blocks(tmp_path: Path) -> None:
    """32 codes a block, two a byte: [experts, rows, blocks, 16 bytes]."""
    blocks = {
        "model.layers.0.mlp.experts.down_proj_blocks": ("U8", (2, 32, 1, 16)),
        "model.layers.0.mlp.experts.down_proj_scales": ("U8", (2, 32, 1)),
    }
    found = inventory(tmp_path, plain() | blocks, **quantised("mxfp4"))
    assert found.part("experts") == 2 * 32 * 32


def test_parts_add_up_to_all_bytes_and_attention_is_that_of_the_layers(tmp_path: Path) -> None:
    found = audit(tmp_path, plain())
    assert found.inventory is not None
    assert found.inventory.nbytes == found.weights_bytes
    assert found.inventory.nbytes == sum(line.nbytes for line in found.inventory.by_dtype)
    assert found.inventory.part("attention") == found.attention_parameters
    assert [line.name for line in found.inventory.by_part] == [
        *("attention", "mlp", "norms", "embeddings", "output head")
    ]


def test_copies_buffers_and_extra_layers_are_told_apart(tmp_path: Path) -> None:
    extra = typed({
        "model.layers.3.self_attn.q_proj.weight": (32, 32),  # of a model of three layers
        "model.layers.3.embed_tokens.weight": (40, 32),
        "vision_tower.encoder.layers.0.self_attn.q_proj.weight": (4, 4),
        "multi_modal_projector.linear_1.weight": (5, 5),
        "model.layers.0.self_attn.rotary_emb.inv_freq": (2,),
    })  # fmt: skip
    found = audit(tmp_path, plain() | extra, tie_word_embeddings=True)
    counts = {line.name: line.parameters for line in found.inventory.by_part}  # type: ignore[union-attr]
    assert counts["mtp"] == 32 * 32 + 40 * 32
    assert (counts["vision"], counts["projector"]) == (16, 25)
    assert (counts["copies"], counts["buffers"]) == (0, 0)
    assert "output head" not in counts


MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1}


def mixtral() -> Tensors:
    found = {name: value for name, value in plain().items() if ".mlp." not in name}
    for layer in range(3):
        block = f"model.layers.{layer}.block_sparse_moe"
        found[f"{block}.gate.weight"] = ("BF16", (4, 32))
        for expert in range(4):
            base = f"{block}.experts.{expert}"
            found |= typed({f"{base}.w1.weight": (48, 32), f"{base}.w3.weight": (48, 32)})
            found |= typed({f"{base}.w2.weight": (32, 48)})
    return found


def test_experts_and_active_parameters(tmp_path: Path) -> None:
    config = {**MIXTRAL, "architectures": ["MixtralForCausalLM"], "sliding_window": None}
    found = audit(tmp_path, mixtral(), **config)
    assert found.inventory is not None
    assert found.findings == ()
    assert found.inventory.part("experts") == 3 * 4 * 3 * 48 * 32
    assert found.inventory.part("router") == 3 * 4 * 32
    assert found.spec.parameters is not None
    assert found.active_parameters == found.spec.parameters - 3 * 3 * 3 * 48 * 32


def test_the_report_and_the_json(tmp_path: Path) -> None:
    folder = write_typed(tmp_path, LLAMA_CONFIG, plain())
    run = CliRunner().invoke(main, ["audit", str(folder), "--format", "json"])
    report = json.loads(run.stdout)
    weights = report["weights"]
    assert weights["bytes"] == sum(line["bytes"] for line in weights["by_part"])
    assert [line["dtype"] for line in weights["by_dtype"]] == ["BF16"]
    assert weights["parameters"] == report["totals"]["parameters"]
    assert report["totals"]["active_parameters"] == report["totals"]["parameters"]
    text = CliRunner().invoke(main, ["audit", str(folder), "--details"]).stdout
    assert "Weights\n" in text
    assert "output head" in text


@pytest.mark.parametrize(
    ("model", "billions"),
    [("mixtral-8x7b", 12.9), ("deepseek-v3", 37.6), ("qwen3-30b-a3b", 3.3), ("llama-3-8b", 8.0)],
)
def test_published_active_counts(model: str, billions: float) -> None:
    """Model cards: 12.9 B; 37 B (here with both embeddings, 37.6); 3.3 B; dense."""
    active = audit_model(model).active_parameters
    assert active is not None
    assert abs(active / 1e9 - billions) < 0.06


def test_a_published_count_is_explained(tmp_path: Path) -> None:
    buffers = typed({"model.layers.0.self_attn.rotary_emb.inv_freq": (2,)})
    further = typed({"model.layers.3.mlp.up_proj.weight": (5, 7)})
    found = inventory(tmp_path, plain() | buffers | further, tie_word_embeddings=True)
    held = found.parameters
    assert held is not None
    assert difference(found, held + 2) == "it counts masks and other buffers"
    assert difference(found, held - 35) == "it leaves out layers for multi-token prediction"
    assert "stored copies of tied matrices and masks" in difference(found, held + 2 + 40 * 32)
    assert difference(found, held + 3) == ""
    notes = list(weights_notes(found, held + 2))
    assert notes[0] == "35 of the parameters are layers for multi-token prediction."
    assert notes[1].startswith(f"{40 * 32 * 2:,} bytes are stored copies of tied matrices. They ")
    assert "headers do not say it, --scan does" in notes[1]
    assert notes[1].endswith(f"transformers loads {40 * 32:,} parameters more.")
    assert notes[-1].endswith("it counts masks and other buffers.")
