"""llama.cpp's mixes of types, against what llama-quantize says that they take.

gguf_sizes.jsonl has the MiB that `llama-quantize --dry-run` of llama.cpp (in llama-cpp-python
0.3.36) printed for GGUF files of these shapes in 16 bit, made with the gguf package.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from config_specs import read_spec
from headcount.plan.gguf_names import MIXES, mix_name
from headcount.plan.planned_model import PlannedModel
from headcount.plan.stored import as_format, quantised

MIB = 2**20
HEADS = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")


def config(model_type: str, *sizes: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    names = (*HEADS, "num_key_value_heads")
    given = dict(zip(names, sizes, strict=False))
    return {"model_type": model_type, **given, "vocab_size": vocabulary, **more}


MODELS = {
    "llama-3-8b": config("llama", 32, 4096, 14336, 32, 8, vocabulary=128256),
    "llama-3.2-1b": config(
        "llama", 16, 2048, 8192, 32, 8, vocabulary=128256, tie_word_embeddings=True
    ),
    "llama-3-70b": config("llama", 80, 8192, 28672, 64, 8, vocabulary=128256),
    "llama-2-7b": config("llama", 32, 4096, 11008, 32, 32, vocabulary=32000),
    # rows that blocks of 256 do not divide
    "tinyllama-odd": config("llama", 22, 2880, 5664, 32, 4, vocabulary=32000, head_dim=90),
    "mixtral-8x7b": config(
        "mixtral", 32, 4096, 14336, 32, 8, vocabulary=32000, num_local_experts=8
    ),
    "qwen3-30b-a3b": config(
        *("qwen3_moe", 48, 2048, 6144, 32, 4),
        vocabulary=151936,
        head_dim=128,
        moe_intermediate_size=768,
        num_experts=128,
    ),
    "qwen3-0.6b": config(
        *("qwen3", 28, 1024, 3072, 16, 8),
        vocabulary=151936,
        head_dim=128,
        tie_word_embeddings=True,
    ),
    "falcon-7b": config(
        "falcon", 32, 4544, 18176, 71, vocabulary=65024, multi_query=True, parallel_attn=True
    ),
}
LINES = (Path(__file__).parent / "gguf_sizes.jsonl").read_text("utf-8").splitlines()
SIZES = {row["model"]: row["mib"] for row in map(json.loads, LINES)}


def planned(settings: dict[str, Any]) -> PlannedModel:
    return PlannedModel(model_id="m", spec=read_spec(settings, "config.json"), config=settings)


@pytest.mark.parametrize("name", list(MODELS))
def test_sizes_are_those_of_llama_quantize(name: str) -> None:
    """The file of Falcon was made with two norms a layer, as Llama's, not one and its bias."""
    model = planned(MODELS[name])
    one_vector = 4544 * 4 / MIB if name == "falcon-7b" else 0
    for mix, mib in SIZES[name].items():
        found = quantised(as_format(model, mix), 16)
        assert found is not None
        assert found.weights.nbytes / MIB == pytest.approx(mib + one_vector, abs=0.006), mix


def test_every_mix_is_held_against_it_but_floats() -> None:
    missing = MIXES.keys() - SIZES["llama-3-8b"].keys()
    assert missing == {"F16", "BF16", "F32"}


@pytest.mark.parametrize(
    ("text", "mix"),
    [("q4_k_m", "Q4_K_M"), ("Q4-K-M", "Q4_K_M"), ("q5_k", "Q5_K_M"), ("iq4_xs", "IQ4_XS")],
)
def test_names_as_people_write_them(text: str, mix: str) -> None:
    assert mix_name(text) == mix


@pytest.mark.parametrize("text", ["int8", "q9_0", "fp8", ""])
def test_other_names_are_no_mix(text: str) -> None:
    assert mix_name(text) is None
