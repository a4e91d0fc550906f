"""Real configs of known types under a name that nobody knows: what their keys alone say is what the
class says, or they are refused. Never another number in silence."""

from collections.abc import Iterator
from typing import Any

import pytest

from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec
from headcount.sources.catalogue import catalogue, read_entry
from strangers import renamed

# is_causal is false: the class of transformers caches all the same, and nothing reads it.
BY_CODE = {("qwen2", "Alibaba-NLP/gte-Qwen2-7B-instruct")}
ROWS = [row for row in catalogue() if (row.model_type or "") in ARCHITECTURES]


def said(spec: ModelSpec) -> Iterator[tuple[Any, ...]]:
    """Heads, and the elements of a cache at two lengths, of each layer of the language model."""
    for layer in spec.layers:
        for mixer in layer.mixers if layer.stack != "vision" else ():
            names = ("num_attention_heads", "num_key_value_heads")
            heads = (getattr(mixer, name, None) for name in names)
            yield (*heads, mixer.state_elements(100, 7), mixer.state_elements(9000, 7))


def outcome(config: dict[str, Any]) -> str:
    known = list(said(read_config(config, "config.json").spec))
    try:
        spec = read_config(renamed(config), "config.json").spec
    except HeadcountError:
        return "refused"
    assert spec.assumed
    if list(said(spec)) == known:
        return "equal"
    return "doubted" if any(one.doubt for one in spec.assumptions) else "different"


@pytest.fixture(scope="module")
def outcomes() -> dict[tuple[str, str], str]:
    configs = {(row.model_type or "", row.id): read_entry(row).config for row in ROWS}
    return {key: outcome(dict(config)) for key, config in configs.items()}


def test_no_number_differs_in_silence(outcomes: dict[tuple[str, str], str]) -> None:
    """No key tells Gemma's windows, Falcon's repeated heads, CLIP's encoder: they are doubted."""
    assert {key for key, said in outcomes.items() if said == "different"} == BY_CODE
    doubted = {key[0] for key, said in outcomes.items() if said == "doubted"}
    assert doubted <= {"gemma2", "gemma3", "falcon", "clip"}


def test_plain_attention_is_read(outcomes: dict[tuple[str, str], str]) -> None:
    """Not refused to be safe: two in three of the catalogue's models are plain attention."""
    assert len(outcomes) > 250
    equal = [key for key, said in outcomes.items() if said == "equal"]
    assert len(equal) > 0.65 * len(outcomes)
    for model_type in ("llama", "qwen2", "qwen3", "mistral", "gpt2", "phi3", "deepseek_v3", "mpt"):
        ours = {said for key, said in outcomes.items() if key[0] == model_type}
        assert "refused" not in ours, model_type
