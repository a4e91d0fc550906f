"""Ways for the tests of this room to get a catalogue model and a plan of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from config_specs import read_spec
from headcount.model.spec import ModelSpec
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.sources.catalogue import CatalogueRow, find_row, read_entry

ReadSpec = Callable[[str], ModelSpec]
MakePlan = Callable[..., Plan]


def _row(name: str) -> CatalogueRow:
    row = find_row(name)
    assert row is not None, f"{name} is not in the catalogue"
    return row


def _spec(name: str) -> ModelSpec:
    row = _row(name)
    return replace(read_spec(read_entry(row).config, name), parameters=row.parameters)


def _plan(name: str, weights_bytes: int | None = None, **request: Any) -> Plan:
    return plan_model(_model(name, weights_bytes), PlanRequest(**request))


def _model(name: str, weights_bytes: int | None = None) -> PlannedModel:
    return PlannedModel(
        model_id=name,
        spec=_spec(name),
        config=read_entry(_row(name)).config,
        weights_bytes=weights_bytes,
    )


@pytest.fixture(scope="session")
def read_model() -> ReadSpec:
    """The spec of a catalogue model, with its parameters."""
    return _spec


@pytest.fixture(scope="session")
def plan() -> MakePlan:
    """The plan of a catalogue model; keywords are those of PlanRequest."""
    return _plan
