"""The matrices of a model by its config: they add up to its parameters, under the files' names."""

from collections.abc import Mapping
from typing import Any

import pytest

from headcount.arch.modules.module import Inventory
from headcount.arch.modules.of_models import inventory_of
from headcount.arch.read_config import read_config
from headcount.sources.catalogue import catalogue, read_entry

# Learned positions, convolutions, whole stacks: what no matrix is known of, beyond one in 20.
MUCH_ELSE = {
    *("Zyphra/Zamba2-2.7B", "Zyphra/Zamba2-7B"),
    "microsoft/Phi-3-vision-128k-instruct",  # its image tower
}
ROWS = {row.id: row for row in catalogue()}


def inventory(config: Mapping[str, Any]) -> Inventory | None:
    return inventory_of(read_config(config, "config.json"))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_catalogue_is_cut_into_matrices(name: str) -> None:
    config = read_entry(ROWS[name]).config
    reading = read_config(config, "config.json")
    found = inventory(config)
    if found is None:
        return
    assert found.parameters == reading.parameters()
    assert 0 <= found.others <= found.parameters * (0.1 if name in MUCH_ELSE else 0.05)


def test_nearly_all_of_the_catalogue_is_cut() -> None:
    cut = [inventory(read_entry(row).config) is not None for row in ROWS.values()]
    assert sum(cut) >= 0.97 * len(cut)


@pytest.mark.parametrize(
    ("model", "shapes"),
    [  # names and shapes of published indices and headers
        (
            "mixtral-8x7b",
            {
                "layers.0.self_attn.k_proj": (1024, 4096, 1),
                "layers.31.block_sparse_moe.experts.0.w2": (4096, 14336, 8),
                "layers.5.block_sparse_moe.gate": (8, 4096, 1),
                "lm_head": (32000, 4096, 1),
            },
        ),
        (
            "deepseek-v3",
            {
                "layers.0.mlp.down_proj": (7168, 18432, 1),
                "layers.3.mlp.experts.0.gate_proj": (2048, 7168, 256),
                "layers.3.mlp.shared_experts.up_proj": (2048, 7168, 1),
                "layers.3.self_attn.kv_a_proj_with_mqa": (576, 7168, 1),
                "layers.3.self_attn.kv_b_proj": (32768, 512, 1),
                "layers.3.self_attn.q_b_proj": (24576, 1536, 1),
            },
        ),
        ("phi-3-mini-4k", {"layers.0.self_attn.qkv_proj": (9216, 3072, 1)}),
        ("gpt2", {"layers.0.attn.c_attn": (2304, 768, 1), "embed_tokens": (50257, 768, 1)}),
        (
            "Qwen/Qwen3.5-27B",
            {
                "layers.0.linear_attn.in_proj_qkv": (10240, 5120, 1),
                "layers.0.linear_attn.out_proj": (5120, 6144, 1),
                "layers.3.self_attn.q_proj": (12288, 5120, 1),
            },
        ),
    ],
)
def test_names_and_shapes(model: str, shapes: dict[str, tuple[int, int, int]]) -> None:
    from headcount.sources.catalogue import find_row

    row = find_row(model)
    assert row is not None
    found = inventory(read_entry(row).config)
    assert found is not None
    by_name = {module.name: module for module in found.modules}
    assert {
        name: (by_name[name].rows, by_name[name].columns, by_name[name].copies) for name in shapes
    } == shapes


def test_layers_that_predict_are_told_apart() -> None:
    """DeepSeek-V3's layer 61: 11.6 B of a layer, a join, and its own embedding and head."""
    from headcount.sources.catalogue import find_row

    row = find_row("deepseek-v3")
    assert row is not None
    found = inventory(read_entry(row).config)
    assert found is not None
    ahead = sum(module.parameters for module in found.prediction)
    tables, join = 2 * 129280 * 7168, 2 * 7168 * 7168
    experts = 3 * 7168 * 2048 * 257 + 256 * 7168
    attention = sum(m.parameters for m in found.modules if m.name.startswith("layers.60.self"))
    assert ahead == tables + join + experts + attention
    assert {m.name.split(".")[1] for m in found.prediction} == {"61"}
