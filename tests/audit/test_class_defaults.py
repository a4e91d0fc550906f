"""The shipped tables of class defaults and of their keys are what transformers itself says."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parent.parent.parent
VERSION = "5.24.0"
pytestmark = pytest.mark.skipif(
    transformers.__version__ != VERSION,
    reason=f"the table describes transformers {VERSION}, not {transformers.__version__}",
)

GEOMETRY = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("hidden_size", "vocab_size", "sliding_window", "kv_lora_rank", "tie_word_embeddings"),
)
# Where a class computes the value from other fields although it declares another default.
OVERWRITTEN = {
    "head_dim": {"axk2", "bailing_hybrid", "hy_v4", "hy_v4_vl_text"},  # the rotary part's
    "num_key_value_heads": {"hy_v4_vl_text"},
    "num_hidden_layers": {"hrm_text"},  # times the number of loops
    "tie_word_embeddings": {"shieldgemma2"},  # the text part's
    "sliding_window": {  # none unless use_sliding_window
        *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl_text", "qwen2_5_vl_text"),
        *("qwen2_5_omni_text", "qwen2_5_omni_talker", "deepseek_ocr2_encoder"),
    },
}
NEED_ARGUMENTS = {"gemma4_assistant", "nougat"}  # their classes refuse their own defaults


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load("class_defaults")


@pytest.fixture(scope="module")
def lines(tool: ModuleType) -> dict[str, str]:
    text = tool.TARGET.read_text(encoding="utf-8")
    first, *types = text.splitlines()
    assert first == tool.first_line()
    return {json.loads(line)["model_type"]: line for line in types}


@pytest.fixture(scope="module")
def defaults(lines: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {model_type: json.loads(line)["defaults"] for model_type, line in lines.items()}


def test_every_type_has_its_line_in_order(lines: dict[str, str]) -> None:
    assert list(lines) == sorted(transformers.CONFIG_MAPPING.keys())
    text = "".join(lines.values())
    assert all(text.count(f'{{"model_type":"{name}",') == 1 for name in lines)  # found by a scan


@pytest.mark.parametrize(
    "every", [pytest.param(15, id="sample"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_the_table_is_what_the_tool_writes(
    tool: ModuleType, lines: dict[str, str], every: int
) -> None:
    asked = list(lines)[::every]
    assert [name for name in asked if tool.line_of(name) != lines[name]] == []


def test_the_keys_that_classes_have_are_what_the_tool_writes() -> None:
    keys = load("config_keys")
    assert json.loads(keys.TARGET.read_bytes()) == keys.table()


def test_declared_geometry_is_what_a_bare_config_has(defaults: dict[str, dict[str, Any]]) -> None:
    """Read back through the public attributes of an instance rather than the class's fields."""
    differing = []
    for model_type in defaults.keys() - NEED_ARGUMENTS:
        config = transformers.CONFIG_MAPPING[model_type]()
        config.allow_global_per_layer_attribute_access = True
        aliases = config.attribute_map
        for key in GEOMETRY:
            declared = defaults[model_type].get(aliases.get(key, key))
            if isinstance(declared, int) and declared != getattr(config, key):
                differing.append((key, model_type))
    expected = [(key, name) for key, names in OVERWRITTEN.items() for name in names]
    assert sorted(differing) == sorted(expected)


def test_values_that_follow_from_others_are_null(defaults: dict[str, dict[str, Any]]) -> None:
    """A null head size or layer list of the table changes when the model gets twice the width."""
    llama = transformers.LlamaConfig(hidden_size=8192)
    assert (llama.head_dim, defaults["llama"]["head_dim"]) == (256, None)
    assert (llama.num_key_value_heads, defaults["llama"]["num_key_value_heads"]) == (32, None)
    per_layer = ("layer_types", "mlp_layer_types", "no_rope_layers", "per_layer_config")
    computed = {(t, k) for t, row in defaults.items() for k in per_layer if row.get(k) is not None}
    assert computed == set()


def test_a_missing_sub_config_gets_the_wrappers_values(defaults: dict[str, dict[str, Any]]) -> None:
    built = transformers.CONFIG_MAPPING["mistral3"]().text_config
    ours = defaults["mistral3"]["text_config"]
    assert ours["model_type"] == built.model_type == "mistral"
    assert {key: ours[key] for key in GEOMETRY if key in ours} == {
        key: getattr(built, key) for key in GEOMETRY if key in ours
    }
    assert ours["hidden_size"] != defaults["mistral"]["hidden_size"]


def test_constants_that_no_field_declares(defaults: dict[str, dict[str, Any]]) -> None:
    assert "tie_word_embeddings" not in transformers.T5Config.__dataclass_fields__
    assert defaults["t5"]["tie_word_embeddings"] is transformers.T5Config().tie_word_embeddings
