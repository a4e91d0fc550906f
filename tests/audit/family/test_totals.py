"""All parameters of every type that has a row, against the models that transformers builds."""

import importlib
import math
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from headcount.arch.class_defaults import class_defaults
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")

COUNTED = [
    name
    for name, one in ARCHITECTURES.items()
    if one.body is not None and class_defaults(name) is not None
]
# No class builds these configs: transformers refuses the random ones, or has them as a part only.
NOT_BUILT: dict[str, str] = {}
SAMPLE = COUNTED[::6]


@pytest.fixture(scope="module")
def configs() -> ModuleType:
    return importlib.import_module("total_configs")


def models(
    configs: ModuleType, model_type: str, count: int
) -> Iterator[tuple[dict[str, Any], Any]]:
    """`count` configs that transformers builds and an audit accepts, with their models."""
    found = 0
    for seed in range(configs.ATTEMPTS):
        config = configs.total_config(model_type, seed)
        try:
            read_config(config, "config")
            model = configs.build(config, seed)
        except HeadcountError:  # a combination that no model can run
            continue
        except Exception as refused:
            error = refused
            continue
        yield config, model
        found += 1
        if found == count:
            return
    raise AssertionError(f"{model_type}: {found} of {count} built; {error}")


def check(configs: ModuleType, model_type: str, count: int) -> None:
    for config, model in models(configs, model_type, count):
        reading = read_config(config, "config")
        built = sum(parameter.numel() for parameter in model.parameters())
        assert reading.total() == (built, None), config
        idle = experts_not_visited(model)
        if idle is not None:
            assert reading.idle_parameters() == idle, config


_EXPERTS = re.compile(r"(^|\.)experts\.[a-z_]+(_proj|_weight)?(\.weight|\.bias)?$")


def experts_not_visited(model: Any) -> int | None:
    """Parameters of fused experts beyond those that a token visits; None where there are none, or
    where the class keeps them in another form."""
    text = model.config.get_text_config(decoder=True)
    visited = next(
        (
            getattr(text, name)
            for name in ("num_experts_per_tok", "moe_topk", "top_k_experts")
            if type(getattr(text, name, None)) is int
        ),
        None,
    )
    fused = [
        parameter.shape
        for name, parameter in model.named_parameters()
        if _EXPERTS.search(name) and "shared" not in name and "self_att" not in name
    ]
    if any(".vision_moe." in name for name, _ in model.named_parameters()):
        return None  # ERNIE 4.5 VL: a token visits experts of one of two sets
    counts = {shape[0] for shape in fused}
    if visited is None or len(counts) != 1 or any(len(shape) < 2 for shape in fused):
        return None
    idle = max(0, counts.pop() - visited)
    return sum(idle * math.prod(shape[1:]) for shape in fused)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_sample(configs: ModuleType, model_type: str) -> None:
    if model_type in NOT_BUILT:
        pytest.skip(NOT_BUILT[model_type])
    check(configs, model_type, 1)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", COUNTED)
def test_every_type(configs: ModuleType, model_type: str) -> None:
    if model_type in NOT_BUILT:
        pytest.skip(NOT_BUILT[model_type])
    check(configs, model_type, 6)
