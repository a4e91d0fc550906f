"""Every model_type that transformers has a language model for, against one that it builds and runs.

Configs are random and tiny; nothing is typed by hand but the reasons for what is left out.
"""

import importlib
from types import ModuleType

import pytest

from headcount.audit.family.table import FAMILIES
from type_exceptions import ELSEWHERE, NOT_AUDITED, NOT_BUILDABLE

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def every_type() -> ModuleType:
    return importlib.import_module("every_type")


def jobs() -> list[tuple[str, str]]:
    found = importlib.import_module("every_type").jobs()
    left_out = {**NOT_BUILDABLE, **dict.fromkeys(ELSEWHERE)}
    return [job for job in found if job[0] in FAMILIES and job[0] not in left_out]


JOBS = jobs()


def compare(every_type: ModuleType, model_type: str, task: str, count: int) -> None:
    for case in every_type.cases(model_type, task, count):
        for config in (case.given, case.saved):
            assert [*every_type.differences(config, case)] == [], config


@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_one_config(every_type: ModuleType, model_type: str, task: str) -> None:
    compare(every_type, model_type, task, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_six_configs(every_type: ModuleType, model_type: str, task: str) -> None:
    compare(every_type, model_type, task, 6)


def test_no_type_is_forgotten(every_type: ModuleType) -> None:
    """A type is audited, or it is listed with the reason why not; never both."""
    types = {model_type for model_type, _ in every_type.jobs()}
    listed = NOT_AUDITED.keys() | ELSEWHERE
    assert types - FAMILIES.keys() - listed == set()
    assert sorted(NOT_AUDITED.keys() & FAMILIES.keys()) == []
    assert sorted(NOT_BUILDABLE.keys() - FAMILIES.keys()) == []
    assert sorted((listed | NOT_BUILDABLE.keys()) - types) == []


@pytest.mark.parametrize("model_type", sorted(NOT_BUILDABLE))
def test_what_cannot_be_built_still_cannot(every_type: ModuleType, model_type: str) -> None:
    tasks = [task for known, task in every_type.jobs() if known == model_type]
    for task in tasks:
        with pytest.raises(every_type.NotBuildableError):
            next(every_type.cases(model_type, task, 1))
