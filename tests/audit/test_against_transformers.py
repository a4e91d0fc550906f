"""Every catalogue model against the one that transformers builds and runs: nothing typed by hand.

Models are built on the meta device, and run there with transformers' default cache.
"""

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.model.mixers import Parts
from headcount.model.spec import Layer, ModelSpec
from headcount.sources.catalogue import CatalogueRow, catalogue, read_entry
from state_configs import TYPES as STATE_TYPES
from state_configs import WRAPPERS as STATE_WRAPPERS

pytestmark = pytest.mark.needs_convert

# What transformers has no class for.
REMOTE = {
    *("baichuan", "chatglm", "deepseek", "grok-1", "hunyuan", "internlm2"),
    *("mimo", "nemotron-nas", "phi3small", "qwen"),
}
# What keeps more than keys and values is compared in test_states.
STATEFUL = {*STATE_TYPES, *STATE_WRAPPERS}
COMPARED = set(ARCHITECTURES) - REMOTE - STATEFUL
ROWS = [row for row in catalogue() if (row.model_type or "gpt2") in COMPARED]
LENGTHS = (5, 700, 5000)  # below and above most windows


def smallest_of_each_type() -> list[str]:
    """The sample that always runs: the whole is marked slow."""
    found: dict[str | None, CatalogueRow] = {}
    for row in sorted(ROWS, key=lambda row: row.parameters or 0):
        found.setdefault(row.model_type, row)
    return [row.id for row in found.values()]


SAMPLE = smallest_of_each_type()
MODELS = [
    pytest.param(row.id, marks=() if row.id in SAMPLE else pytest.mark.slow, id=row.id)
    for row in ROWS
]


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    return importlib.import_module("transformers_truth")


@cache
def built(model: str) -> Any:
    return importlib.import_module("transformers_truth").build_on_meta(
        read_entry(next(row for row in ROWS if row.id == model)).config
    )


def text_layers(spec: ModelSpec) -> list[Layer]:
    """Those of the language model: CLIP's vision tower has its own module."""
    return [layer for layer in spec.layers if layer.stack != "vision"]


def agree(parts: Parts, true: dict[str, int]) -> bool:
    """Each part alike, or the sum of those that the module fuses."""
    fused = sum(true.get(name, 0) for name in ("q", "k", "v", "kv", "qkv"))
    separate = all(getattr(parts, name) == true.get(name, 0) for name in ("q", "k", "v"))
    alike = all(getattr(parts, name) == true.get(name, 0) for name in ("o", "norm", "other"))
    is_fused = "qkv" in true or "kv" in true
    return alike and (parts.q + parts.k + parts.v == fused if is_fused else separate)


@pytest.mark.parametrize("model", MODELS)
def test_parameters(model: str, truth: ModuleType) -> None:
    """Attention parameters per layer and part, and the total of the whole model."""
    spec = audit_model(model).spec
    layers, true = text_layers(spec), truth.attention_parameters(built(model))
    assert [layer.index for layer in layers] == [layer.index for layer in true]
    for layer, true_layer in zip(layers, true, strict=True):
        for mixer, true_mixer in zip(layer.mixers, true_layer.mixers, strict=True):
            assert agree(mixer.parameters(), true_mixer.parts), (layer, true_mixer)
    assert spec.parameters == truth.total_parameters(built(model))


@pytest.mark.parametrize("model", MODELS)
def test_cache(model: str, truth: ModuleType) -> None:
    """Elements in each layer's cache at three lengths, as far as the model's positions reach."""
    spec = audit_model(model).spec
    decoder = [layer for layer in spec.layers if layer.stack == "decoder"]
    if not spec.is_cached:
        assert spec.cache_bytes(tokens=5, bits=16) == 0
        if built(model).main_input_name == "input_ids":
            with pytest.raises(LookupError, match="no cache object"):
                truth.cached_elements(built(model), 5)
        return
    reach = spec.max_position_embeddings or max(LENGTHS)
    for tokens in sorted({min(tokens, reach) for tokens in LENGTHS}):
        true = truth.cached_elements(
            built(model), tokens, encoder_tokens=spec.encoder_tokens or None
        )
        own = [sum(m.state_elements(tokens, 0) for m in la.mixers) for la in decoder]
        assert own == true.self_attention, tokens
        cross = [sum(m.state_elements(0, spec.encoder_tokens) for m in la.mixers) for la in decoder]
        assert not any(cross) or cross == true.cross_attention


def test_the_sample_has_every_type() -> None:
    assert {row.model_type for row in ROWS if row.id in SAMPLE} == {r.model_type for r in ROWS}
    assert len(SAMPLE) > 60
