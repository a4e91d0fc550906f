"""Every model_type that transformers has a language model for, against one that it builds and runs.

Configs are random and tiny; nothing is typed by hand but the reasons for what is left out.
"""

import importlib
from types import ModuleType

import pytest

from headcount.audit.family.class_defaults import class_defaults
from headcount.audit.family.described import described
from headcount.audit.family.states.rows import WRAPPERS as STATE_WRAPPERS
from headcount.audit.family.table import FAMILIES
from state_configs import TYPES as STATEFUL
from state_configs import WRAPPERS as STATEFUL_WRAPPERS
from type_exceptions import NOT_STEPWISE

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


@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_one_config(every_type: ModuleType, model_type: str, task: str) -> None:
    every_type.compare(model_type, task, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_six_configs(every_type: ModuleType, model_type: str, task: str) -> None:
    every_type.compare(model_type, task, 6)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_token_by_token(every_type: ModuleType, model_type: str, task: str) -> None:
    if model_type in NOT_STEPWISE:
        pytest.skip(NOT_STEPWISE[model_type])
    every_type.compare(model_type, task, 3, every_type.DECODED)


def towers() -> list[str]:
    """The rows that no mapping of language models has: encoders of images and sound, CLIP."""
    mapped = {model_type for model_type, _ in importlib.import_module("every_type").jobs()}
    nested = {described(model_type).reads for model_type in FAMILIES}
    inner = {name for name in FAMILIES if name.endswith(("_text", "_text_model", "_decoder"))}
    left = FAMILIES.keys() - mapped - nested - inner - set(STATE_WRAPPERS)
    return sorted(name for name in left if class_defaults(name) is not None)


@pytest.mark.parametrize("model_type", towers())
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_parameters_of_towers(every_type: ModuleType, model_type: str, seed: int) -> None:
    assert every_type.tower_differences(model_type, seed) == []


def test_every_type_is_compared(every_type: ModuleType) -> None:
    """Here or in test_states: the mappings are those of the installed transformers, and no type is
    left out."""
    types = {model_type for model_type, _ in every_type.jobs()}
    here = {model_type for model_type, _ in JOBS}
    assert types - here - set(STATEFUL) - set(STATEFUL_WRAPPERS) == set()
    assert set(STATEFUL_WRAPPERS.values()) <= set(STATEFUL)
    assert types <= set(FAMILIES)
    assert len(types) > 340
