"""Models that a conversion laid a modelling file beside are evaluated without running that file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conversions import run
from headcount.evaluate.evaluation import evaluate
from headcount.evaluate.evaluation_request import EvaluationRequest
from headcount.model.errors import UnsupportedModelError
from headcount.running.runnable import open_runnable

pytestmark = pytest.mark.needs_convert

SaveModel = Callable[..., Path]


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_the_cache_is_as_the_audit_says(save_model: SaveModel, tmp_path: Path, name: str) -> None:
    source, target = save_model(name), tmp_path / "gqa"
    run(source, target, 2)
    (target / "modeling_headcount.py").write_text("raise AssertionError('this must not run')")
    request = EvaluationRequest(
        model=str(target), against=str(source), device="cpu", max_tokens=30, speed=False
    )
    report = evaluate(request)
    assert report.against is not None
    assert report.model.cache.measured == report.model.cache.predicted
    assert report.model.cache.measured * 2 == report.against.cache.measured


def test_code_of_others_stays_refused(save_model: SaveModel, tmp_path: Path) -> None:
    """Only types that this package has a class for are loaded without the code they name."""
    run(save_model("gpt2"), tmp_path / "gqa", 2)
    path = tmp_path / "gqa" / "config.json"
    config = json.loads(path.read_text())
    for model_type in ("headcount_nothing", "gpt2"):
        path.write_text(json.dumps({**config, "model_type": model_type}))
        with pytest.raises(UnsupportedModelError, match="auto_map"):
            open_runnable(str(tmp_path / "gqa"))
