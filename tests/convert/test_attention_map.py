"""The map of heads: which tensors hold which heads, for the kinds of layouts that there are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from headcount.convert.attention_map.attention_tensors import HeadTensors
from headcount.convert.attention_map.mapping import AttentionMap, owner_of
from headcount.convert.plan.source import read_source
from headcount.model.decoder_attentions import attentions

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
HEAD_DIM = 8


def shown(held: HeadTensors) -> str:
    """`q6*8` for six heads of eight rows, with axis and repeats where they are not plain."""
    assert held.layout is not None
    parts = " ".join(f"{block.part}{block.heads}*{block.rows}" for block in held.layout.blocks)
    axis = " columns" if held.layout.axis else ""
    repeats = f" {held.layout.repeats} times" if held.layout.repeats > 1 else ""
    return f"{parts}{axis}{repeats}"


def layouts(found: AttentionMap) -> dict[str, str]:
    """Module -> how heads lie in its weight, in layer 0."""
    held = found.attentions[0, False].held
    return {one.module.partition(".")[2]: shown(one) for one in held if not one.is_bias}


LAYOUTS = {
    "llama": {"q_proj": "q6*8", "k_proj": "k3*8", "v_proj": "v3*8", "o_proj": "o6*8 columns"},
    "phi3": {"qkv_proj": "q6*8 k3*8 v3*8", "o_proj": "o6*8 columns"},
    # a norm that all heads share, one of all heads at once, and one with a row for each
    "qwen3": {"q_norm": "", "k_norm": ""},
    "olmo2": {"q_norm": "q6*8", "k_norm": "k3*8"},
    "cohere": {"q_norm": "q6*1", "k_norm": "k3*1"},
    "stablelm": {"k_layernorm.norms": "k3*8", "q_layernorm.norms": "q6*8"},
    "gpt_oss": {"sinks": "q6*1"},
}


@pytest.mark.parametrize("model_type", LAYOUTS)
def test_how_heads_lie(grouped: MakeFolder, model_type: str) -> None:
    found = read_source(grouped(model_type)).attention_map
    assert LAYOUTS[model_type].items() <= layouts(found).items()
    assert all(one.fits for each in found.attentions.values() for one in each.projections)


MHA = {
    "gpt2": {"c_attn": "q6*8 k6*8 v6*8 columns", "c_proj": "o6*8"},
    "bloom": {"query_key_value": "q1*8 k1*8 v1*8 6 times"},
}


@pytest.mark.parametrize("model_type", MHA)
def test_how_heads_lie_in_classes_without_groups(grouped: MakeFolder, model_type: str) -> None:
    found = read_source(grouped(model_type, 6, 6)).attention_map
    assert MHA[model_type].items() <= layouts(found).items()


def test_a_layer_that_the_config_does_not_count_is_as_the_last(
    grouped: MakeFolder, tmp_path: Path
) -> None:
    tensors = load_file(grouped("llama") / "model.safetensors")
    more = {
        name.replace("layers.1.", "layers.2."): tensor.clone()
        for name, tensor in tensors.items()
        if "layers.1." in name
    }
    for path in grouped("llama").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    save_file({**tensors, **more}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read_source(tmp_path).attention_map
    assert set(found.attentions) == {(0, False), (1, False)}
    assert set(found.more) == {(2, False)}
    assert found.by_name["model.layers.2.self_attn.k_proj.weight"].parts == ("k",)


def test_whose_heads_an_attention_has() -> None:
    known, readers = {(0, False), (1, False), (1, True)}, {2: 0}
    assert owner_of((1, True), known, readers) == (1, True)
    assert owner_of((2, False), known, readers) == (0, False)
    assert owner_of((3, False), known, readers) == (1, False)
    assert owner_of((0, True), known, readers) is None
    assert owner_of((3, True), known, readers) is None


def test_a_list_with_a_gap_is_not_known(grouped: MakeFolder, tmp_path: Path) -> None:
    source = read_source(grouped("stablelm"))
    lists = [one for one in source.attention_map.by_name.values() if len(one.tensors) > 1]
    assert {len(one.tensors) for one in lists} == {3, 6}
    assert attentions(source.audit.spec) == source.attention_map.mixers
    folder = tmp_path / "gap"
    folder.mkdir()
    for path in grouped("stablelm").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    gone = "model.layers.0.self_attn.k_layernorm.norms.1.weight"
    moved = gone.replace(".1.weight", ".7.weight")
    save_file(
        {moved if name == gone else name: tensor for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    held = read_source(folder).attention_map.by_name[moved]
    assert held.layout is None
