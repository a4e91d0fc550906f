"""`convert --latent SIZE --home mla --format gguf`: multi-head latent attention as llama.cpp's
deepseek2 reads it. What llama.cpp computes of such files is in the record (test_gguf_record.py)."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytestmark = pytest.mark.needs_convert
gguf = pytest.importorskip("gguf")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

from causal_models import build_model  # noqa: E402
from gguf_models import GGUF_MODELS, save  # noqa: E402
from gguf_record import converted, read_file  # noqa: E402
from headcount.audit import audit_model  # noqa: E402
from headcount.cli import main  # noqa: E402
from headcount.convert.gguf.gguf_file import GgufTensor, HeadHalf  # noqa: E402
from headcount.convert.gguf.layout import put_in_order  # noqa: E402
from headcount.convert.plan.errors import CannotConvertError  # noqa: E402
from headcount.convert.plan.request import LATENT_HOMES, ConversionRequest  # noqa: E402
from headcount.model.errors import HeadcountError  # noqa: E402
from headcount.model.mixers import LatentAttention  # noqa: E402

MLA: dict[str, Any] = {"latent": Fraction(3, 4), "home": "mla"}
SMALL = 2.0**-24  # the smallest number of float16
TYPES = ("llama", "mistral", "granite")


def source_of(model_type: str, folder: Path, dtype: Any = torch.float32) -> Path:
    if model_type == "granite":
        save(model_type, folder)
        return folder
    changes = {"sliding_window": None} if model_type == "mistral" else {}
    model = build_model(model_type, num_key_value_heads=2, **changes)
    model.to(dtype).save_pretrained(folder)
    return folder


def numbers(path: Path) -> dict[str, torch.Tensor]:
    found = gguf.GGUFReader(path).tensors
    return {t.name: torch.tensor(gguf.dequantize(t.data, t.tensor_type)) for t in found}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


@pytest.mark.parametrize("model_type", TYPES)
def test_in_one_go_and_in_two(model_type: str, tmp_path: Path) -> None:
    """What transformers reads, written as GGUF, and the file that is written at once."""
    source = source_of(model_type, tmp_path / "source")
    once = read_file(converted(source, tmp_path / "once", **MLA))
    options = ("--latent", "3/4", "--home", "mla")
    assert run(source, tmp_path / "folder", *options).exit_code == 0
    twice = read_file(converted(tmp_path / "folder", tmp_path / "twice"))
    assert once == twice
    assert once.keys["general.architecture"] == "deepseek2"


def test_the_halves_of_heads_are_those_of_the_folder(tmp_path: Path) -> None:
    """llama.cpp multiplies k_b with queries, and v_b with what attention reads, over the last axis:
    [heads, rank, keys] and [heads, values, rank]."""
    source = source_of("llama", tmp_path / "source")
    file = numbers(converted(source, tmp_path / "file", **MLA))
    assert run(source, tmp_path / "folder", "--latent", "3/4", "--home", "mla").exit_code == 0
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    names = ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    heads, keys, values, rank = (config[name] for name in names)
    kept = load_file(tmp_path / "folder" / "model.safetensors")
    for i in range(config["num_hidden_layers"]):
        whole = kept[f"model.layers.{i}.self_attn.kv_b_proj.weight"]
        assert file[f"blk.{i}.attn_k_b.weight"].shape == (heads, rank, keys)
        assert file[f"blk.{i}.attn_v_b.weight"].shape == (heads, values, rank)
        for head in range(heads):
            first = head * (keys + values)
            key, value = whole[first : first + keys], whole[first + keys : first + keys + values]
            assert torch.equal(file[f"blk.{i}.attn_k_b.weight"][head], key.T)
            assert torch.equal(file[f"blk.{i}.attn_v_b.weight"][head], value)


def test_which_rows_are_keys_and_which_values() -> None:
    """Two heads of one row of keys and two of values, of a latent of two."""
    whole = torch.arange(12.0).view(6, 2)
    halves = [HeadHalf(half=half, heads=2, keys=1, values=2) for half in ("k", "v")]
    shapes = [half.shape(2) for half in halves]
    made = [
        put_in_order([whole], GgufTensor(name="", type="F32", shape=shape, half=half))
        for shape, half in zip(shapes, halves, strict=True)
    ]
    assert made[0].tolist() == [[[0], [1]], [[6], [7]]]
    assert made[1].tolist() == [[[2, 3], [4, 5]], [[8, 9], [10, 11]]]
    assert [tuple(one.shape) for one in made] == shapes


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (None, {"float32": "F32", "bfloat16": "BF16", "float16": "F32"}),
        ("float32", "F32"),
        ("bfloat16", "BF16"),
        ("float16", "BF16"),
        ("q8_0", "BF16"),
    ],
)
def test_the_small_latent_has_a_type_that_holds_it(
    stored: str, asked: Any, kind: Any, tmp_path: Path
) -> None:
    """float16, and the float16 scales of Q8_0, have no such numbers."""
    source = source_of("llama", tmp_path / "source", getattr(torch, stored))
    path = converted(source, tmp_path / "file", dtype=asked, **MLA)
    written, exact = read_file(path).tensors, source_of("llama", tmp_path / "exact")
    name = "blk.0.attn_kv_a_mqa.weight"
    assert written[name][0] == (kind if isinstance(kind, str) else kind[stored])
    wanted = numbers(converted(exact, tmp_path / "wanted", **MLA))
    rank = wanted["blk.0.attn_kv_a_norm.weight"].numel()
    found, right = numbers(path), wanted[name][:rank]
    assert 0 < right.abs().max() < SMALL
    # What it is by itself: latents of rounded sources are turned, but their energy is not lost
    norm = (
        found["blk.0.attn_kv_a_norm.weight"].norm() / wanted["blk.0.attn_kv_a_norm.weight"].norm()
    )
    assert found[name][:rank].norm() * norm == pytest.approx(right.norm().item(), rel=0.02)
    others = {"float16": "F16", "q8_0": "F16"}.get(asked or stored)  # rows of 24 are no blocks
    assert others is None or written["blk.0.attn_k_b.weight"][0] == others


def test_what_is_to_be_known_of_its_type_is_said(tmp_path: Path) -> None:
    source = source_of("llama", tmp_path / "source")
    options = ("--latent", "3/4", "--home", "mla", "--format", "gguf", "--dry-run")
    whole = run(source, tmp_path / "out", *options).stdout
    assert "Metal and Vulkan round to float16" in whole
    assert "--tensor-type attn_kv_a_mqa=f32" in whole
    narrow = run(source, tmp_path / "out", *options, "--dtype", "q8_0").stdout
    assert "Metal" not in narrow and "--tensor-type attn_kv_a_mqa=bf16" in narrow


def test_its_audit_and_its_card_say_mla(tmp_path: Path) -> None:
    source = source_of("llama", tmp_path / "source")
    path = converted(source, tmp_path / "file", **MLA)
    assert run(source, tmp_path / "folder", "--latent", "3/4", "--home", "mla").exit_code == 0
    file, folder = (audit_model(str(one)) for one in (path, tmp_path / "folder"))
    assert not file.findings
    assert file.spec.parameters == folder.spec.parameters
    assert file.attention_parameters == folder.attention_parameters
    for one, two in zip(folder.spec.layers, file.spec.layers, strict=True):
        assert one.mixers == two.mixers
        assert isinstance(two.mixers[0], LatentAttention) and not two.mixers[0].expanded
        assert folder.layer_parts(one) == file.layer_parts(two)
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    elements = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    assert file.spec.cache_bytes_per_token() == config["num_hidden_layers"] * elements * 2
    card = (tmp_path / "file" / "README.md").read_text()
    assert "architecture `deepseek2` of llama.cpp" in card
    assert "with latents as its cache as GGUF" in card


def test_bytes_of_a_token_are_those_of_llama_cpps_cache(tmp_path: Path) -> None:
    """Of float16, whatever the weights are: 24 elements in two layers."""
    source = source_of("llama", tmp_path / "source")
    options = ("--latent", "96B", "--home", "mla", "--format", "gguf")
    assert run(source, tmp_path / "out", *options).exit_code == 0
    audit = audit_model(str(tmp_path / "out" / "model.gguf"))
    assert audit.spec.cache_bytes_per_token() == 96


@pytest.mark.parametrize("home", ["auto", *(home for home in LATENT_HOMES if home != "mla")])
def test_the_modelling_file_of_ours_is_refused(home: Any, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match=r"home latent\).*add --home mla, .*llama, mistral"):
        ConversionRequest(
            source=tmp_path,
            target=tmp_path / "out",
            num_key_value_heads=None,
            latent=Fraction(1, 4),
            home=home,
            format="gguf",
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-06, and this model has 1e-05"),
        ({"rope_interleave": False}, "rope_interleave is True"),
        ({"attention_bias": True}, "attention_bias is False"),
        ({"first_k_dense_replace": 1}, "all layers are dense, and of this model's the first 1"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}},
            "rope_type is 'default', and this model has 'yarn'",
        ),
    ],
)
def test_other_models_of_the_class_are_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    save("deepseek_v3, of --home mla", tmp_path / "source")
    path = tmp_path / "source" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CannotConvertError, match=reason) as found:
        converted(tmp_path / "source", tmp_path / "out")
    assert "of what --home mla makes" in str(found.value)


def test_queries_with_a_latent_are_refused(tmp_path: Path) -> None:
    config = {**GGUF_MODELS["deepseek_v3, of --home mla"].config, "q_lora_rank": 16}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["deepseek_v3"](**config))
    model.save_pretrained(tmp_path / "source")
    with pytest.raises(CannotConvertError, match="q_lora_rank is None, and this model has 16"):
        converted(tmp_path / "source", tmp_path / "out")


@pytest.mark.parametrize(("gone", "missing"), [("gate", "ffn_gate"), ("up", "ffn_up")])
def test_a_tensor_that_llama_cpp_misses(gone: str, missing: str, tmp_path: Path) -> None:
    save("deepseek_v3, of --home mla", tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    weights = load_file(file)
    del weights[f"model.layers.1.mlp.{gone}_proj.weight"]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(HeadcountError, match=rf"needs a tensor blk\.1\.{missing}\.weight"):
        converted(tmp_path / "source", tmp_path / "out")
