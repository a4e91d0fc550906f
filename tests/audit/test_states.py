"""Tiny models of every type with state of its own, built and run: nothing typed by hand.

The audit of the config that transformers saves must say what each layer's mixers hold and what its
cache keeps, in elements and bytes, at lengths below and above windows, prefilled and step by step.
"""

import importlib
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headcount.arch.read_config import read_spec
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.audit.audit_report import audit_report
from headcount.model.sizes import AuditRequest
from headcount.model.spec import Layer, ModelSpec
from headcount.sources.catalogue import CatalogueRow, catalogue, read_entry
from state_configs import TYPES, WRAPPERS, state_config

pytestmark = pytest.mark.needs_convert

LENGTHS = ((5, 0), (9, 4), (20, 6))  # tokens, and how many of them are fed one by one
SEEDS = range(5)
ONLY_FLOAT32 = {"xlnet"}  # transformers mixes dtypes in it
SAMPLE = {  # one of each kind of layer
    *("mamba", "mamba2", "jamba", "nemotron_h", "zamba2", "falcon_h1", "qwen3_5_text"),
    *("kimi_linear", "minimax", "recurrent_gemma", "lfm2", "zaya", "inkling_text", "glm_moe_dsa"),
    *("mistral_large4_text", "dots3_note_text", "deepseek_v4", "rwkv", "xlnet", "hrm_text"),
}
CASES = [
    pytest.param(
        model_type,
        seed,
        id=f"{model_type}-{seed}",
        marks=() if seed == 0 and model_type in SAMPLE else pytest.mark.slow,
    )
    for model_type in TYPES
    for seed in SEEDS
]


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    return importlib.import_module("states_truth")


def counted(layer: Layer) -> dict[str, int]:
    """As the truth counts: parameters of attention, and of recurrent mixers."""
    recurrent = [m.parameters().total for m in layer.mixers if m.kind == "recurrent"]
    return {"attention": layer.parameters().total, "recurrent": sum(recurrent)}


def keeps(layer: Layer, tokens: int, bits: int) -> tuple[int, int]:
    return (
        sum(mixer.state_elements(tokens) for mixer in layer.mixers),
        sum(mixer.state_bytes(tokens, 0, bits) for mixer in layer.mixers),
    )


def dtype_of(model_type: str, seed: int) -> Any:
    """bfloat16 in turn with float32: then a state with its own dtype shows."""
    torch = importlib.import_module("torch")
    return torch.float32 if seed % 2 or model_type in ONLY_FLOAT32 else torch.bfloat16


@pytest.mark.parametrize(("model_type", "seed"), CASES)
def test_states_and_parameters(model_type: str, seed: int, truth: ModuleType) -> None:
    compare(truth, model_type, state_config(model_type, seed), dtype_of(model_type, seed))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES)
def test_spelled_otherwise(model_type: str, truth: ModuleType) -> None:
    """Aliases, null and stray keys, and flags the other way, as far as transformers runs them."""
    respell = importlib.import_module("spelled_otherwise").spelled_otherwise
    ran = 0
    for seed in range(100, 112):
        given = state_config(model_type, seed)
        given = respell(given, random.Random(f"odd {model_type} {seed}"), keep=frozenset(given))
        try:
            truth.run(truth.build(given, torch_float32()), 9, stepwise=2)
        except Exception:
            continue  # the class refuses what was made of the config
        compare(truth, model_type, given, torch_float32())
        ran += 1
        if ran == 2:
            return
    assert ran, "transformers runs none of them"


def torch_float32() -> Any:
    return importlib.import_module("torch").float32


def compare(truth: ModuleType, model_type: str, given: dict[str, Any], dtype: Any) -> None:
    """The audit of the config, as given and as saved, against the model that it makes."""
    model = truth.build(given, dtype)
    read = [read_spec(config, "config.json")[0] for config in (truth.written(model), given)]
    parameters = truth.parameters(model)
    caches = {
        (tokens, steps): truth.kept(model, truth.run(model, tokens, stepwise=steps))
        for tokens, steps in LENGTHS
    }
    for spec in read:
        assert [counted(layer) for layer in spec.layers[: len(parameters)]] == parameters
        stacks = 2 if model_type == "hrm_text" else 1  # its two stacks are alike
        total = sum(layer["attention"] for layer in parameters)
        assert spec.attention_parameters == stacks * total
        for (tokens, _), true in caches.items():
            held = [(kept.elements, kept.nbytes) for kept in true]
            bits = dtype.itemsize * 8
            mine = [keeps(layer, tokens, bits) for layer in spec.layers]
            assert mine[: len(held)] == held, tokens
            assert not any(any(kept) for kept in mine[len(held) :])


# Zyphra's own key names, which the class does not read: it builds a number of heads that it cannot
# run with the width of a head that the file gives.
OWN_KEYS = {"Zyphra/Zamba2-7B"}
STATEFUL = {*TYPES, *WRAPPERS}
CATALOGUE = [row for row in catalogue() if row.model_type in STATEFUL and row.id not in OWN_KEYS]
SMALL = {  # of each type the smallest, where building it takes less than some seconds
    *("mamba", "falcon_mamba", "recurrent_gemma", "zamba2", "falcon_h1", "nemotron_h", "qwen3_5")
}


def smallest(model_type: str | None) -> CatalogueRow:
    alike = [row for row in CATALOGUE if row.model_type == model_type]
    return min(alike, key=lambda row: row.parameters or 0)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=row.id,
            marks=()
            if row.model_type in SMALL and row is smallest(row.model_type)
            else pytest.mark.slow,
        )
        for row in CATALOGUE
    ],
)
def test_catalogue_models(row: CatalogueRow, truth: ModuleType) -> None:
    """Parameters of every layer of the real model, built without values, and of the whole."""
    meta = importlib.import_module("transformers_truth")
    model = meta.build_on_meta(read_entry(row).config)
    spec = audit_model(row.id).spec
    parameters = truth.parameters(model)
    assert [counted(layer) for layer in spec.layers] == parameters
    assert spec.parameters == meta.total_parameters(model)


def spec_of(model_type: str) -> ModelSpec:
    return read_spec(state_config(model_type, 0), "config.json")[0]


def test_recurrent_states_stay_float32() -> None:
    """A smaller cache dtype shrinks keys, values and convolutions only."""
    spec = spec_of("jamba")
    wide, narrow = (spec.constant_state_bytes(bits=bits) for bits in (32, 16))
    fixed = [state for layer in spec.layers for m in layer.mixers for state in m.states]
    recurrent = sum(4 * state.fixed for state in fixed if state.bits == 32)
    assert recurrent
    assert narrow - recurrent == (wide - recurrent) / 2


@pytest.mark.parametrize("model_type", ["mamba", "rwkv", "lfm2"])
def test_constant_state_is_all_that_does_not_grow(model_type: str) -> None:
    spec = spec_of(model_type)
    assert spec.cache_bytes(tokens=10**6) == (
        spec.constant_state_bytes() + 10**6 * spec.cache_bytes_per_token()
    )


def test_the_report_tells_constant_state_from_what_grows() -> None:
    audit = audit_model("ai21labs/Jamba-v0.1")
    totals: Any = audit_report(audit, AuditRequest(context=1000, batch_size=2)).document["totals"]
    assert totals["constant_state_bytes"] == audit.spec.constant_state_bytes(batch_size=2)
    growing = 2 * 1000 * totals["cache_bytes_per_token"]
    assert totals["cache_bytes"] == totals["constant_state_bytes"] + growing


def test_every_wrapper_is_tried() -> None:
    assert all(ARCHITECTURES[name].config.text for name in WRAPPERS)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_nested_language_model_is_read_alike(wrapper: str) -> None:
    text = state_config(WRAPPERS[wrapper], 0)
    nested = read_spec({"model_type": wrapper, "text_config": text}, "config.json")[0]
    assert nested.layers == read_spec(text, "config.json")[0].layers


# Its class's own defaults lack the fields of its indexer, without which it cannot be built.
@pytest.mark.parametrize("wrapper", sorted(set(WRAPPERS) - {"qwen4_exp"}))
def test_a_wrapper_s_defaults_are_those_of_transformers(wrapper: str) -> None:
    """A config that says nothing is that of the class's defaults, written out."""
    transformers = importlib.import_module("transformers")
    written = json.loads(transformers.CONFIG_MAPPING[wrapper]().to_json_string(use_diff=False))
    bare = read_spec({"model_type": wrapper}, "config.json")[0]
    assert bare.layers == read_spec(written, "config.json")[0].layers


def test_zyphra_s_own_keys_are_read_as_the_class_does() -> None:
    """Not at all: it takes its default of 8 heads, though the head width in the file makes 112."""
    audit = audit_model("Zyphra/Zamba2-7B")
    assert audit.spec.layers[0].mixers[0].num_attention_heads == 8
    assert audit.spec.parameters == 7_326_532_760  # as transformers builds it from this file


@pytest.mark.parametrize(
    "model_type",
    ["jamba", "nemotron_h", "qwen3_next", "kimi_linear", "glm_moe_dsa", "lfm2", "zamba2"],
)
def test_saved_weights_say_the_same(model_type: str, truth: ModuleType, tmp_path: Path) -> None:
    """Headers beside recurrent layers, indexers and gates bring no error, and the same count."""
    torch = importlib.import_module("torch")
    truth.build(state_config(model_type, 0), torch.bfloat16).save_pretrained(tmp_path)
    audit = audit_model(str(tmp_path))
    odd_by_design = ("H4", "H5")  # tiny heads, and token ids beyond a tiny vocabulary
    assert [
        finding
        for finding in audit.findings
        if finding.severity != "note" and not finding.code.startswith(odd_by_design)
    ] == []
    assert audit.attention_parameters == audit.spec.attention_parameters
