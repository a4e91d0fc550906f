"""Every model_type that transformers has a language model for, against one that it builds and runs.

Configs are random and tiny; nothing is typed by hand but the reasons for what is left out.
"""

import importlib
from types import ModuleType

import pytest

from headcount.arch.class_defaults import class_defaults
from headcount.arch.described import described
from headcount.arch.registry import ARCHITECTURES
from state_configs import TYPES as STATEFUL
from state_configs import WRAPPERS as STATEFUL_WRAPPERS
from type_exceptions import NOT_RUN, NOT_STEPWISE

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def every_type() -> ModuleType:
    return importlib.import_module("every_type")


def jobs() -> list[tuple[str, str]]:
    """All but those whose state is more than keys and values: test_states compares them."""
    found = importlib.import_module("every_type").jobs()
    return [job for job in found if job[0] not in {*STATEFUL, *STATEFUL_WRAPPERS}]


JOBS = jobs()
SAMPLE = 4  # one type in so many always runs, the others are marked slow


def sampled(index: int) -> tuple[pytest.MarkDecorator, ...]:
    return () if index % SAMPLE == 0 else (pytest.mark.slow,)


@pytest.mark.parametrize(
    ("model_type", "task"),
    [pytest.param(*job, marks=sampled(index)) for index, job in enumerate(JOBS)],
)
def test_one_config(every_type: ModuleType, model_type: str, task: str) -> None:
    every_type.compare(model_type, task, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_four_configs(every_type: ModuleType, model_type: str, task: str) -> None:
    every_type.compare(model_type, task, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_token_by_token(every_type: ModuleType, model_type: str, task: str) -> None:
    if model_type in NOT_STEPWISE:
        pytest.skip(NOT_STEPWISE[model_type])
    every_type.compare(model_type, task, 3, every_type.DECODED)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_spelled_otherwise(every_type: ModuleType, model_type: str, task: str) -> None:
    """Aliases, keys that are absent, null or strange to the class, and flags the other way."""
    every_type.compare(model_type, task, 3, every_type.DECODED, every_type.odd_config)


def unmapped() -> list[str]:
    """The rows of transformers' classes that no mapping of language models has, and no model that
    one has nests."""
    mapped = {model_type for model_type, _ in importlib.import_module("every_type").jobs()}
    nested = {described(model_type).reads for model_type in ARCHITECTURES}
    compared = mapped | nested | {*STATEFUL, *STATEFUL_WRAPPERS}
    return sorted(
        name for name in ARCHITECTURES.keys() - compared if class_defaults(name) is not None
    )


def keeps(model_type: str) -> bool:
    return not all(kind.endswith("no cache") for kind in described(model_type).mixers)


TOWERS = [name for name in unmapped() if not keeps(name)]
OTHERS = [name for name in unmapped() if keeps(name) and name not in NOT_RUN]


@pytest.mark.parametrize(
    "model_type",
    [pytest.param(name, marks=sampled(index)) for index, name in enumerate(TOWERS)],
)
def test_parameters_of_towers(every_type: ModuleType, model_type: str) -> None:
    for seed in range(3):
        assert every_type.tower_differences(model_type, seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("model_type", OTHERS)
def test_other_decoders(every_type: ModuleType, model_type: str) -> None:
    every_type.compare(model_type, "base", 3)


def test_every_type_is_compared(every_type: ModuleType) -> None:
    """Here or in test_states: the mappings are those of the installed transformers, and no type is
    left out."""
    types = {model_type for model_type, _ in every_type.jobs()}
    here = {model_type for model_type, _ in JOBS}
    assert types - here - set(STATEFUL) - set(STATEFUL_WRAPPERS) == set()
    assert set(STATEFUL_WRAPPERS.values()) <= set(STATEFUL)
    assert types <= set(ARCHITECTURES)
    assert len(types) > 340
