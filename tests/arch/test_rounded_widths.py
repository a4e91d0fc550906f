"""A width that the heads do not divide: rounded down where the class of transformers does so, and
refused elsewhere. The record (tests/truth/totals.jsonl, "not divided") has a model of each type."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import headcount
from headcount.arch.attention.rounded_widths import rounds_down
from headcount.arch.read_config import read_config
from headcount.model.errors import InvalidConfigError
from truth_record import key_of, recorded

ROOT = Path(__file__).parents[2]
TABLE = Path(headcount.__file__).parent / "arch" / "generated" / "rounded_widths.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
# The class's own defaults have 96 heads in 4,096; what transformers 5.24 builds.
DEFAULTS = {"glm4_moe": 103_481_200_640, "glm4v_moe": 104_372_866_880}


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_class_defaults_that_are_rounded(model_type: str) -> None:
    reading = read_config({"model_type": model_type}, "config.json")
    assert reading.total() == (DEFAULTS[model_type], None)
    assert reading.spec.origins["head_dim"].source.endswith("num_attention_heads, rounded down")


def test_a_nested_config_rounds_as_its_own_class_does() -> None:
    reading = read_config({"model_type": "qwen3_omni_moe"}, "config.json")  # 28 heads in 2,048
    assert reading.spec.origins["head_dim"].value == 2048 // 28


def test_each_type_that_rounds_is_in_the_record() -> None:
    rounding = {row["model_type"] for row in ROWS if row["rounds"]}
    held = {key_of(line) for line in recorded("totals") if "not divided" in line["written"]}
    assert len(held) > 100
    counted = {key_of(line) for line in recorded("totals")}
    assert rounding & counted == held


def test_another_class_refuses_such_a_width() -> None:
    refusing = [row["model_type"] for row in ROWS if not row["rounds"]]
    assert "llama" in refusing
    for model_type in ("llama", "gpt2", "bert"):
        config = {"model_type": model_type, "hidden_size": 100, "num_attention_heads": 8}
        with pytest.raises(InvalidConfigError, match="not divisible"):
            read_config(config, "config.json")
    assert not rounds_down("a type that nobody knows")


@pytest.mark.slow
@pytest.mark.needs_convert
def test_the_table_is_what_the_tool_writes() -> None:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "rounded_widths.py")
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert [json.loads(line) for line in tool.lines(sorted(tool.jobs()))] == ROWS
