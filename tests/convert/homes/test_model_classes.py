"""The table of classes, against the installed transformers; and the config that names them."""

import importlib.util
import json
from pathlib import Path

import pytest
import transformers

import headcount
from headcount.arch.model_classes import auto_class, model_classes, tokenizer_class
from headcount.convert.models import modeling_headcount

pytestmark = pytest.mark.needs_convert

ROOT = Path(__file__).parents[3]
TABLE = Path(headcount.__file__).parent / "arch" / "generated" / "model_classes.jsonl"


def test_the_table_is_what_transformers_says() -> None:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "model_classes.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (_, *lines), (_, *types) = tool.lines(), TABLE.read_text().splitlines()
    told, table = _by_type(lines), _by_type(types)
    assert len(table) > 200
    assert {t: classes for t, classes in told.items() if t in table} == table


def _by_type(lines: list[str]) -> dict[str, dict[str, str]]:
    """Without tokenizers, which depend on the packages that are installed."""
    return {
        line["model_type"]: {k: v for k, v in line.items() if k != "AutoTokenizer"}
        for line in map(json.loads, lines)
    }


def test_classes_are_found_by_type() -> None:
    assert model_classes("bart")["AutoModelForSeq2SeqLM"] == "BartForConditionalGeneration"
    assert model_classes("t5") != model_classes("mt5")
    assert model_classes("no_such_type") == {}
    assert tokenizer_class("t5") == "T5Tokenizer"
    assert tokenizer_class("no_such_type") is None


@pytest.mark.parametrize(
    ("name", "auto"),
    [
        ("BartForCausalLM", "AutoModelForCausalLM"),
        ("BartModel", "AutoModel"),
        ("BartForConditionalGeneration", "AutoModelForSeq2SeqLM"),
        ("BartForSequenceClassification", "AutoModelForSequenceClassification"),
        ("BartDecoder", None),
    ],
)
def test_the_auto_class_of_a_class(name: str, auto: str | None) -> None:
    assert auto_class(name, model_classes("bart")) == auto


@pytest.mark.parametrize("model_type", ["gpt2", "whisper", "bert", "marian", "ctrl"])
def test_both_halves_name_the_same_auto_class(model_type: str) -> None:
    """The plan writes auto_map; a loaded model that is saved again must not change it."""
    classes = model_classes(model_type)
    for auto, name in classes.items():
        if auto != "AutoConfig":
            grouped = getattr(modeling_headcount, f"Grouped{name}")
            assert grouped._auto_class == auto
            assert grouped.config_class.model_type == f"headcount_{model_type}"
            assert issubclass(grouped, getattr(transformers, name))
