"""K/V heads in fused projections: planted equal heads are found, in every layout.

That the planted heads are the class's own K/V heads is seen in the cache that the class fills.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from headcount.cli import main

pytestmark = pytest.mark.needs_convert

HEADS, DIM, HIDDEN = 8, 8, 64
FirstRow = Callable[[int, int], tuple[int, int]]  # (K/V heads, number of one) -> rows of k and v


def parts(kv: int, j: int) -> tuple[int, int]:
    return (HEADS + j) * DIM, (HEADS + kv + j) * DIM


def heads(kv: int, j: int) -> tuple[int, int]:
    group = HEADS // kv
    key = (j * (group + 2) + group) * DIM
    return key, key + DIM


def quarters(kv: int, j: int) -> tuple[int, int]:
    quarter, i = divmod(j, HEADS // 4)
    return tuple((3 * quarter + n) * (HEADS // 4) * DIM + i * DIM for n in (2, 1))  # type: ignore[return-value]


def plant(folder: Path, fused: str, first: FirstRow, kv: int, distinct: int, axis: int = 0) -> Path:
    """Makes runs of kv / distinct neighbours equal, in every tensor of the module `fused`."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    touched = [name for name in tensors if f".{fused}." in name]
    assert touched
    run = kv // distinct
    for name in touched:
        rows = tensors[name].movedim(axis, 0)
        for j in range(kv):
            for to, origin in zip(first(kv, j), first(kv, j - j % run), strict=True):
                rows[to : to + DIM] = rows[origin : origin + DIM].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def scan(folder: Path) -> dict[str, Any]:
    run = CliRunner().invoke(main, ["audit", str(folder), "--scan", "--format", "json"])
    assert run.exit_code in (0, 1), run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def distinct_in_cache(folder: Path) -> list[int]:
    """How many different K/V heads each layer of the loaded model caches, in equal runs."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        cache = model(torch.arange(1, 6)[None], use_cache=True)["past_key_values"]
    found = []
    for layer in cache.layers:
        both = torch.cat([layer.keys, layer.values], dim=-1)[0]
        found.append(1 + sum(not torch.equal(a, b) for a, b in pairwise(both)))
    return found


SIZES = {"hidden_size": HIDDEN, "num_attention_heads": HEADS}
DBRX = {"kv_n_heads": 4, "clip_qkv": 8.0, "rope_theta": 1e4}
SMALL_FFN = {"ffn_hidden_size": 32, "moe_num_experts": 2, "moe_top_k": 1}
BUILT: dict[str, tuple[str, str, FirstRow, int, dict[str, Any]]] = {
    "gpt2": ("gpt2", "c_attn", parts, 8, {}),
    "bigcode": ("gpt_bigcode", "c_attn", heads, 8, {"multi_query": False}),
    "neox": ("gpt_neox", "query_key_value", heads, 8, {}),
    "bloom": ("bloom", "query_key_value", heads, 8, {}),
    "persimmon": ("persimmon", "query_key_value", heads, 8, {}),
    "falcon-rw": ("falcon", "query_key_value", heads, 8, {"multi_query": False}),
    "falcon-40b": (
        *("falcon", "query_key_value", heads, 4),
        {"new_decoder_architecture": True, "num_kv_heads": 4},
    ),
    "phi3": ("phi3", "qkv_proj", parts, 4, {"num_key_value_heads": 4, "pad_token_id": 0}),
    "mpt": ("mpt", "Wqkv", parts, 8, {}),
    "dbrx": (
        "dbrx",
        "Wqkv",
        parts,
        4,
        {"d_model": HIDDEN, "attn_config": DBRX, "ffn_config": SMALL_FFN},
    ),
    "codegen": ("codegen", "qkv_proj", quarters, 8, {"rotary_dim": 4}),
}


@pytest.mark.parametrize("case", BUILT)
def test_planted_heads_are_found(case: str, build_model: Any, tmp_path: Path) -> None:
    model_type, fused, first, kv, config = BUILT[case]
    model = build_model(model_type, **SIZES, **config)
    model.save_pretrained(tmp_path)
    layers = scan(tmp_path)["scan"]["layers"]
    assert [layer["num_key_value_heads"] for layer in layers] == [kv] * len(layers)
    assert all(layer["repeated"] is None for layer in layers)
    assert all(0.2 < layer["lost_by_mean"][str(kv // 2)] < 0.8 for layer in layers)
    plant(tmp_path, fused, first, kv, 2, axis=-1 if model_type == "gpt2" else 0)
    assert distinct_in_cache(tmp_path) == [2] * len(layers)
    report = scan(tmp_path)
    assert [layer["repeated"] for layer in report["scan"]["layers"]] == [2] * len(layers)
    assert "H704" in {finding["code"] for finding in report["findings"]}
    assert all(layer["lost_by_mean"]["2"] < 1e-5 for layer in report["scan"]["layers"])
    assert all(layer["lost_by_mean"]["1"] > 0.2 for layer in report["scan"]["layers"])


# Types whose code is published with their weights: config, module of a layer, its layout.
REMOTE: dict[str, tuple[dict[str, Any], str, FirstRow, int]] = {
    "chatglm": (
        {
            **{
                "model_type": "chatglm",
                "num_layers": 2,
                "kv_channels": DIM,
                "padded_vocab_size": 9,
            },
            **{"multi_query_attention": True, "multi_query_group_num": 4, "ffn_hidden_size": 32},
        },
        "transformer.encoder.layers.{}.self_attention.query_key_value",
        parts,
        4,
    ),
    "chatglm, MHA": (
        {
            **{
                "model_type": "chatglm",
                "num_layers": 2,
                "kv_channels": DIM,
                "padded_vocab_size": 9,
            },
            **{"multi_query_attention": False, "ffn_hidden_size": 32},
        },
        "transformer.encoder.layers.{}.self_attention.query_key_value",
        heads,
        8,
    ),
    "internlm2": (
        {"model_type": "internlm2", "num_hidden_layers": 2, "num_key_value_heads": 4},
        "model.layers.{}.attention.wqkv",
        heads,
        4,
    ),
    "baichuan": (
        {"model_type": "baichuan", "num_hidden_layers": 2},
        "model.layers.{}.self_attn.W_pack",
        parts,
        8,
    ),
    "qwen": (
        {"model_type": "qwen", "num_hidden_layers": 2, "kv_channels": DIM},
        "transformer.h.{}.attn.c_attn",
        parts,
        8,
    ),
    "phi3small": (
        {"model_type": "phi3small", "num_hidden_layers": 2, "num_key_value_heads": 4},
        "model.layers.{}.self_attn.query_key_value",
        heads,
        4,
    ),
    "phi-msft": (
        {"model_type": "phi-msft", "n_layer": 2, "n_embd": HIDDEN, "n_head": HEADS},
        "transformer.h.{}.mixer.Wqkv",
        parts,
        8,
    ),
}


@pytest.mark.parametrize("case", REMOTE)
def test_planted_heads_of_remote_code(case: str, tmp_path: Path) -> None:
    config, module, first, kv = REMOTE[case]
    sizes = {**SIZES, "vocab_size": 9, "intermediate_size": 32, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, **config}))
    torch.manual_seed(0)
    rows = (HEADS + 2 * kv) * DIM
    tensors = {f"{module.format(i)}.weight": torch.randn(rows, HIDDEN) for i in range(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert [layer["repeated"] for layer in scan(tmp_path)["scan"]["layers"]] == [None, None]
    plant(tmp_path, module.rpartition(".")[2], first, kv, 2)
    assert [layer["repeated"] for layer in scan(tmp_path)["scan"]["layers"]] == [2, 2]


def test_the_lost_share_is_what_averaging_loses(build_model: Any, tmp_path: Path) -> None:
    build_model("gpt2", **SIZES).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (name,) = (n for n in tensors if n.endswith("h.0.attn.c_attn.weight"))
    both = [tensors[n].double() for n in (name, name.replace("weight", "bias"))]
    expected = []
    for part in (1, 2):
        weights = torch.cat([t.movedim(-1, 0).reshape(3, HEADS, -1)[part] for t in both], dim=1)
        groups = weights.reshape(2, HEADS // 2, -1)
        left = groups - groups.mean(dim=1, keepdim=True)
        expected.append(float((left**2).sum() / (weights**2).sum()))
    found = scan(tmp_path)["scan"]["layers"][0]["lost_by_mean"]["2"]
    assert found == pytest.approx(sum(expected) / 2, rel=1e-5)


def test_products_are_all_that_is_kept_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures whatever the size of a piece."""
    from headcount.convert.scan import heads as module

    torch.manual_seed(1)
    keys = torch.randn(4, 16, 32).bfloat16()
    whole = module.Likeness(4)
    whole.add("k", keys)
    monkeypatch.setattr(module, "_CHUNK", 256)
    pieces = module.Likeness(4)
    pieces.add("k", keys)
    first, second = whole.result(0), pieces.result(0)
    assert first.key_similarity == pytest.approx(second.key_similarity, rel=1e-4)
    assert first.lost_by_mean == pytest.approx(second.lost_by_mean, rel=1e-4)
    assert pieces.products["k"].shape == (4, 4)
