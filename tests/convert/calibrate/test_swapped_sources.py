"""A source of which a file is replaced while it is converted: the run fails, or its output is that
of one state of the source; with calibration, for which transformers reads the source, too."""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headcount.convert.conversion import apply_plan
from headcount.convert.plan import source
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.model.errors import SourceChangedError
from headcount.sources import presence
from swaps.runs import KINDS, SwappedRuns

pytestmark = pytest.mark.needs_convert
MakeModel = Callable[..., Path]
GOOD: dict[str, Any] = {"method": "merge", "grouping": "similar", "refit": "mlp"}
RANDOM = 20  # runs of each kind


@pytest.fixture(scope="module")
def sharded(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("states") / "one"
    source = make_model("llama")
    model = AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        for parameter in model.parameters():  # norms, too, or some tensors would be alike
            parameter.normal_(std=0.2)
    model.save_pretrained(folder, max_shard_size="70KB")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(sharded: Path, tmp_path_factory: pytest.TempPathFactory) -> SwappedRuns:
    return SwappedRuns(sharded, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def calibrated(sharded: Path, prose: Path, tmp_path_factory: pytest.TempPathFactory) -> SwappedRuns:
    options = {**GOOD, "calibration": str(prose), "calibration_tokens": 512}
    return SwappedRuns(sharded, tmp_path_factory.mktemp("calibrated"), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_at_some_step_fails_or_is_right(plain: SwappedRuns, kind: str) -> None:
    last = plain.steps(kind)
    chosen = [round(last * share) for share in (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)]
    found = Counter(plain.at_step(kind, step, step + last // 10) for step in chosen)
    assert found["failed"] >= 1


@pytest.mark.parametrize("kind", ["shard", "tokenizer"])
def test_a_swap_while_calibrating_fails_or_is_right(calibrated: SwappedRuns, kind: str) -> None:
    last = calibrated.steps(kind)
    assert calibrated.at_step(kind, last // 4, last) == "failed"
    assert calibrated.at_step(kind, 3 * last // 4, last) == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_at_any_step_fails_or_is_right(plain: SwappedRuns, kind: str) -> None:
    last = plain.steps(kind)
    found = Counter(plain.at_step(kind, step, step + 7) for step in range(last))
    print(f"\n{kind}, before each of {last} steps: {dict(found)}")
    assert found["failed"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_at_any_step_of_a_calibration_fails_or_is_right(
    calibrated: SwappedRuns, kind: str
) -> None:
    last = calibrated.steps(kind)
    every = range(0, last, max(1, last // 40))
    found = Counter(calibrated.at_step(kind, step, step + last // 8) for step in every)
    print(f"\n{kind}, calibrated, before {len(every)} of {last} steps: {dict(found)}")
    assert found["failed"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_at_a_random_moment_fails_or_is_right(
    plain: SwappedRuns, calibrated: SwappedRuns, kind: str
) -> None:
    drawn = random.Random(kind)
    for name, runs, longest in (("plain", plain, 0.2), ("calibrated", calibrated, 1.0)):
        found = Counter(runs.at_random(kind, drawn, longest) for _ in range(RANDOM))
        print(f"\n{kind}, {name}, at {RANDOM} random moments: {dict(found)}")


def test_files_of_two_folders_are_never_taken_for_one(
    plain: SwappedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder takes the source's name while its files are listed, and gives it back while
    they are read: what was read in between is noticed."""
    swap = plain.swap("folder itself and back")
    assert swap.undo is not None
    due = [swap.change]

    def status_of(path: Path, **more: Any) -> os.stat_result | None:
        if due:
            due.pop()()
        return presence.status_of(path, **more)

    monkeypatch.setattr(source, "status_of", status_of)
    with pytest.raises(SourceChangedError):
        plan_conversion(
            ConversionRequest(source=swap.source, target=plain.work / "out", num_key_value_heads=2)
        )
    swap.undo()


def test_a_file_that_is_written_to_in_place_is_noticed(plain: SwappedRuns) -> None:
    """The same inode, the same size: only its times tell."""
    swap = plain.swap("in place")
    plan = plan_conversion(
        ConversionRequest(source=swap.source, target=plain.work / "out", num_key_value_heads=2)
    )
    swap.change()
    with pytest.raises(SourceChangedError, match=rf"{swap.mixture[0]}: changed during the run"):
        apply_plan(plan, progress=False)
