"""The record made anew with the installed transformers: a few types always, all of them slowly."""

import importlib
import json
from types import ModuleType

import pytest

from truth_record import FILES, Line, header, key_of, recorded

transformers = pytest.importorskip("transformers")
VERSION = header("decoders")["transformers"]
pytestmark = [
    pytest.mark.needs_convert,
    pytest.mark.skipif(
        transformers.__version__ != VERSION,
        reason=f"the record is of transformers {VERSION}, not {transformers.__version__}",
    ),
]
SAMPLE = {  # one of each way to keep something, and of each file
    *("llama", "gemma3_text", "deepseek_v3", "gpt2", "bert", "t5", "llava", "vit", "mamba"),
    *("jamba", "deepseek_v4", "resnet"),
    *("openai-community/gpt2", "google-t5/t5-small", "state-spaces/mamba-130m-hf"),
}
KEYS = [(name, key) for name in FILES for key in dict.fromkeys(map(key_of, recorded(name)))]


@pytest.fixture(scope="module")
def recording() -> ModuleType:
    return importlib.import_module("recording")


def unlike(before: list[Line], now: list[Line]) -> list[str]:
    """What differs between lines of one key, a line a config."""
    if len(before) != len(now):
        return [f"{len(before)} lines are recorded, {len(now)} made"]
    return [
        f"config {old.get('seed')}, {part}: {json.dumps(old.get(part))} is recorded,"
        f" {json.dumps(new.get(part))} made"
        for old, new in zip(before, now, strict=True)
        for part in dict.fromkeys((*old, *new))
        if old.get(part) != new.get(part)
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param(*both, marks=() if both[1] in SAMPLE else pytest.mark.slow, id="-".join(both))
        for both in KEYS
    ],
)
def test_the_same_is_built_today(recording: ModuleType, name: str, key: str) -> None:
    before = [line for line in recorded(name) if key_of(line) == key]
    assert unlike(before, json.loads(json.dumps(recording.lines(name, key)))) == []


@pytest.mark.parametrize("name", FILES)
def test_every_type_has_its_lines_in_order(recording: ModuleType, name: str) -> None:
    assert [key for file, key in KEYS if file == name] == recording.keys(name)


@pytest.mark.parametrize("model_type", ["dbrx", "cohere_compass_text", "gpt_neo", "blt"])
def test_a_config_that_is_changed_changes_no_other(model_type: str) -> None:
    """Nested objects of configs were shared: what one recording set in them was in the next."""
    configs = importlib.import_module("random_configs")
    first = json.dumps(configs.random_config(model_type, 0))
    for value in configs.random_config(model_type, 0).values():
        if isinstance(value, dict):
            value["tie_word_embeddings"] = True
        elif isinstance(value, list):
            value.append(0)
    assert json.dumps(configs.random_config(model_type, 0)) == first


@pytest.mark.parametrize(
    ("module", "make", "model_type"),
    [("tiny_configs", "tiny_config", "dbrx"), ("state_configs", "state_config", "kimi_linear")],
)
def test_a_small_config_that_is_changed_changes_no_other(
    module: str, make: str, model_type: str
) -> None:
    config = getattr(importlib.import_module(module), make)
    first = [json.dumps(config(model_type, seed)) for seed in range(4)]
    for seed in range(4):
        for value in config(model_type, seed).values():
            if isinstance(value, dict):
                value["tie_word_embeddings"] = True
    assert [json.dumps(config(model_type, seed)) for seed in range(4)] == first
