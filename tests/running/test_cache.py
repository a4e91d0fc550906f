"""Cache bytes counted in real caches, against arithmetic on the shapes of tiny models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import StaticCache

from headcount.model.errors import UnsupportedModelError
from headcount.running.generate import generate
from headcount.running.load import LoadedModel, load_model
from headcount.running.measured_cache import CacheBytes, measured_cache_bytes, weigh_cache
from headcount.running.placement import Placement
from headcount.running.runnable import open_runnable

pytestmark = pytest.mark.needs_convert

SaveModel = Callable[..., Path]
PROMPT, DECODE = torch.arange(20)[None], torch.arange(4)[None]


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("llama", {}, 2 * 24 * 2 * 2 * 8 * 4),  # layers, tokens, K and V, heads, head_dim, float32
        ("gpt2", {}, 2 * 24 * 2 * 4 * 8 * 4),
        ("mistral", {}, 2 * 7 * 2 * 2 * 8 * 4),  # a window of 8 keeps the last 7
        ("gemma2", {}, (7 + 24) * 2 * 2 * 8 * 4),  # sliding and full layers take turns
        ("llama", {"dtype": torch.bfloat16}, 2 * 24 * 2 * 2 * 8 * 2),
    ],
)
def test_measured_bytes(
    build: Callable[..., Any], name: str, config: dict[str, Any], expected: int
) -> None:
    model = build(name).to(config.get("dtype", torch.float32))
    _, cache = generate(model, PROMPT, DECODE)
    assert measured_cache_bytes(cache) == expected


def test_a_static_cache_holds_its_maximum(build: Callable[..., Any]) -> None:
    model = build("llama")
    cache = StaticCache(config=model.config, max_cache_len=40)
    with torch.inference_mode():
        model(PROMPT, cache=cache, use_cache=True)
    assert measured_cache_bytes(cache) == 2 * 40 * 2 * 2 * 8 * 4


def _loaded(folder: Path) -> LoadedModel:
    return load_model(
        open_runnable(str(folder)), dtype=None, place=Placement(inputs=torch.device("cpu"))
    )


def test_the_prediction_is_asked_for_what_was_measured(save_model: SaveModel) -> None:
    asked = []

    def predict(folder: Path, tokens: int, bits: int) -> int:
        asked.append((folder.name, tokens, bits))
        return 6144

    weighed, warnings = weigh_cache(_loaded(save_model("llama")), PROMPT, DECODE, predict)
    assert asked == [("model", 24, 32)]
    assert weighed == CacheBytes(predicted=6144, measured=6144, tokens=24, dtype="float32")
    assert warnings == ()


def test_a_wrong_prediction_is_said(save_model: SaveModel) -> None:
    loaded = _loaded(save_model("llama"))
    _, (warning,) = weigh_cache(loaded, PROMPT, DECODE, lambda *_: 1)
    assert "predicts 1 cache bytes, the cache holds 6,144" in warning


def test_a_model_the_audit_cannot_do_has_no_prediction(save_model: SaveModel) -> None:
    def predict(folder: Path, tokens: int, bits: int) -> int:
        raise UnsupportedModelError("odd")

    weighed, warnings = weigh_cache(_loaded(save_model("llama")), PROMPT, DECODE, predict)
    assert (weighed.predicted, weighed.measured) == (None, 6144)
    assert warnings == ("no prediction of cache bytes: odd",)


def test_a_model_without_a_cache_has_no_bytes(save_model: SaveModel) -> None:
    weighed, (warning,) = weigh_cache(
        _loaded(save_model("openai-gpt")), PROMPT, DECODE, lambda *_: 0
    )
    assert weighed.measured is None
    assert "takes no cache" in warning
