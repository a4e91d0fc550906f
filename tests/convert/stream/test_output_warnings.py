"""A warning of the output that its source did not have ends a conversion."""

import json
from pathlib import Path

import pytest

from conversions import run
from headcount.audit import audit_model
from headcount.convert import conversion
from headcount.convert.audited_output import audited_output
from headcount.convert.plan.errors import SelfCheckError
from headcount.report.report import Finding

pytestmark = pytest.mark.needs_convert


def misname_dtype(folder: Path) -> None:
    """The config names another dtype than the weights have: a warning."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": "float16"}))


def warnings(folder: Path) -> list[Finding]:
    return [f for f in audit_model(str(folder)).findings if f.severity == "warning"]


@pytest.fixture
def output(source: Path, tmp_path: Path) -> Path:
    """A clean output."""
    run(source, tmp_path / "clean")
    return tmp_path / "clean"


def test_a_new_warning_is_refused(output: Path) -> None:
    assert audited_output(output, ()).findings == ()
    misname_dtype(output)
    (warning,) = warnings(output)
    with pytest.raises(SelfCheckError, match=f"fails its audit: {warning.code}"):
        audited_output(output, ())


def test_one_that_the_source_has_is_inherited(output: Path) -> None:
    misname_dtype(output)
    assert audited_output(output, warnings(output)).spec.layers


def test_a_source_with_it_is_converted(source: Path, tmp_path: Path) -> None:
    misname_dtype(source)
    run(source, tmp_path / "out")
    assert {f.code for f in warnings(tmp_path / "out")} <= {f.code for f in warnings(source)}


@pytest.mark.parametrize("change", [{"code": "H402"}, {"severity": "note"}])
def test_what_is_no_such_warning_excuses_nothing(output: Path, change: dict[str, str]) -> None:
    misname_dtype(output)
    (warning,) = warnings(output)
    other = Finding(**{**warning._asdict(), **change})
    with pytest.raises(SelfCheckError, match=warning.code):
        audited_output(output, (other,))


def test_a_conversion_that_brings_a_warning_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a step of writing forgot the dtype: the last look is at the folder as it lies there."""
    looked_at = conversion.verify_output

    def after_a_slip(plan: conversion.ConversionPlan, folder: Path) -> None:
        misname_dtype(folder)
        looked_at(plan, folder)

    monkeypatch.setattr(conversion, "verify_output", after_a_slip)
    with pytest.raises(SelfCheckError, match="nothing was kept"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
