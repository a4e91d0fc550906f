"""A conversion is exact where it can be: repeat the K/V heads of a GQA model, convert back.

Shapes have 1 < K/V heads < heads and K/V heads != group size, so that a wrong order of heads fails.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conversions import load_whole, run
from headcount.arch.architecture import Architecture
from headcount.arch.body.body import Body
from headcount.arch.class_defaults import class_defaults
from headcount.arch.registry import ARCHITECTURES
from headcount.convert.plan.request import CHOOSING, METHODS

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])


def is_native(model_type: str, architecture: Architecture) -> bool:
    """What the documentation promises, said once more without the converter's code."""
    shape = architecture.attention
    separate = {"q", "k", "v", "o"} <= set(architecture.names.modules.values())
    reads_count = shape.kv_heads_from == "config" and shape.key_value_heads is None
    common = reads_count and shape.build is None and architecture.config.text is None
    return separate and common and class_defaults(model_type) is not None


# The text models of multimodal types have no causal-LM class of their own.
NATIVE = [
    t
    for t, found in ARCHITECTURES.items()
    if isinstance(found.body, Body) and found.body.named and is_native(t, found) and "_vl" not in t
]

# Their k norm takes a float32 mean over all K/V heads; its rounding depends on how many there are.
NORMED_OVER_ALL_HEADS = {"olmo2", "olmo3", "olmoe", "minimax_m2"}


def _config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def _logits(folder: Path) -> torch.Tensor:
    model = load_whole(folder, dtype=torch.float64, experts_implementation="eager")
    with torch.no_grad():
        return torch.as_tensor(model(TOKENS).logits)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("heads", "kv"), [(8, 2), (12, 4), (6, 3)])
def test_llama_comes_back_byte_for_byte(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, heads: int, kv: int, dtype: str
) -> None:
    original = grouped("llama", heads, kv, dtype)
    back = run(repeated(original, heads // kv), tmp_path / "back", kv).target
    assert (back / "model.safetensors").read_bytes() == (
        original / "model.safetensors"
    ).read_bytes()
    assert _config(back) == _config(original)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_exact_where_heads_agree(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, method: str
) -> None:
    original = grouped("llama", 12, 4)
    back = run(repeated(original, 3), tmp_path / "back", 4, method=method).target
    assert (back / "model.safetensors").read_bytes() == (
        original / "model.safetensors"
    ).read_bytes()


def test_grouped_heads_are_pooled_further(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    original = grouped("llama", 12, 3)
    back = run(repeated(original, 2), tmp_path / "back", 3).target
    assert (back / "model.safetensors").read_bytes() == (
        original / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("method", ["mean", *CHOOSING])
def test_the_result_computes_what_the_source_does_with_its_heads_tied_by_hand(
    grouped: MakeFolder, tmp_path: Path, method: str
) -> None:
    source = grouped("llama", 12, 12)
    report = run(source, tmp_path / "out", 4, method=method)
    model = load_whole(source, dtype=torch.float64)
    for layer, measured in zip(model.model.layers, report.layers, strict=True):
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            for parameter in projection.parameters():
                heads = parameter.data.unflatten(0, (12, 8))
                pooled = torch.stack(
                    [
                        heads[3 * j : 3 * j + 3].mean(0).float().double()
                        if measured.kept is None
                        else heads[measured.kept[j]]
                        for j in range(4)
                    ]
                )
                parameter.data = pooled.repeat_interleave(3, 0).flatten(0, 1)
    with torch.no_grad():
        tied = model(TOKENS).logits
    torch.testing.assert_close(_logits(tmp_path / "out"), tied, rtol=0, atol=1e-10)


def test_many_types_are_native() -> None:
    expected = {
        *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma"),
        *("gemma2", "gemma3_text", "phi", "stablelm", "starcoder2", "olmo", "olmo2", "olmo3"),
        *("olmoe", "granite", "granitemoe", "cohere", "cohere2", "nemotron", "glm4_moe"),
        *("ernie4_5", "smollm3", "seed_oss", "exaone4", "apertus", "minimax_m2"),
    }
    assert expected <= set(NATIVE)


@pytest.mark.parametrize("model_type", NATIVE)
def test_every_native_type_comes_back(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, model_type: str
) -> None:
    original = grouped(model_type)
    source = repeated(original, 2)
    back = run(source, tmp_path / "back", 3).target
    assert (back / "model.safetensors").read_bytes() == (
        original / "model.safetensors"
    ).read_bytes()
    assert _config(back) == _config(original)
    tolerance = 1e-5 if model_type in NORMED_OVER_ALL_HEADS else 1e-10
    torch.testing.assert_close(_logits(back), _logits(source), rtol=0, atol=tolerance)
