"""Query heads that a text chose to prune, and what stays, fitted to it."""

import signal
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conversions import contents
from faulty import FaultyCommand
from headcount.audit import audit_model
from headcount.convert.check import check_conversion
from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.model.mixers import Attention

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert


def prune(source: Path, target: Path, pruned: Any, prose: Path, **options: Any) -> ConversionReport:
    wanted = {"num_key_value_heads": None, "calibration_tokens": 1024, **options}
    request = ConversionRequest(
        source=source, target=target, pruned_heads=pruned, calibration=str(prose), **wanted
    )
    return convert(request, progress=False)


def test_o_is_fitted_for_what_the_pruned_heads_gave(
    make_model: MakeModel, prose: Path, tmp_path: Path
) -> None:
    # Some rows more than elsewhere: half of them begin with other tokens than their text.
    more = {"calibration_tokens": 4096}
    done = prune(make_model("llama"), tmp_path / "out", 2, prose, refit="output", **more)
    assert done.plan.importance is not None and done.plan.importance.criterion == "text"
    for layer in done.record["layers"]:
        error = layer["rewritten"]["calibration"]["output_error"]
        assert error["refit"] < 0.95 * error["merged"]
    plain = prune(make_model("llama"), tmp_path / "plain", 2, prose, **more)
    assert [la.pruned for la in plain.plan.layers] == [la.pruned for la in done.plan.layers]
    fitted, cut = (load_file(d.target / "model.safetensors") for d in (done, plain))
    assert [n for n in cut if not torch.equal(fitted[n], cut[n])] == [
        n for n in cut if "o_proj" in n
    ]


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox", "gemma2"])
def test_what_stays_is_merged_and_fitted_in_one_go(
    make_model: MakeModel, prose: Path, tmp_path: Path, model_type: str
) -> None:
    """Half of the heads go, and half of the K/V heads that stay are merged."""
    source = make_model(model_type)
    heads = {"method": "merge", "grouping": "similar", "refit": "mlp"}
    some = prune(source, tmp_path / "some", 2, prose)
    stay = some.plan.layers[0].after
    done = prune(source, tmp_path / "out", 2, prose, num_key_value_heads=stay // 2, **heads)
    for layer in done.record["layers"]:
        error = layer["rewritten"]["calibration"]["output_error"]
        assert error["refit"] <= error["merged"]
        assert len(layer["rewritten"]["attention"]["order"]) == stay
    assert [layer.after for layer in done.plan.layers] == [stay // 2] * len(done.plan.layers)


def heads_of_layers(folder: Path) -> list[int]:
    """Query heads of each layer, as the audit reads them."""
    layers = audit_model(str(folder)).spec.layers
    return [m.num_attention_heads for la in layers for m in la.mixers if isinstance(m, Attention)]


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_heads_go_from_the_layers_that_miss_them_least(
    make_model: MakeModel, prose: Path, tmp_path: Path, model_type: str
) -> None:
    """Heads that have K/V heads of their own, chosen in one round: the least of all scores, but for
    one a layer."""
    source = make_model(model_type)
    heads = heads_of_layers(source)
    most = sum(heads) // 2 - 1  # no equal number of each layer
    done = prune(source, tmp_path / "out", most, prose, across_layers=True)
    gone = {layer.index: layer.pruned for layer in done.plan.layers if layer.pruned}
    assert sum(map(len, gone.values())) == most
    assert "custom" in done.plan.home
    assert heads_of_layers(done.target) == [
        count - len(gone.get(index, ())) for index, count in enumerate(heads)
    ]
    importance = done.plan.importance
    assert importance is not None
    best = {index: max(scores) for index, scores in importance.scores.items()}
    others = sorted(s for i, scores in importance.scores.items() for s in scores if s < best[i])
    lost = sum(importance.scores[i][head] for i, own in gone.items() for head in own)
    if importance.rounds == 1:
        assert lost == pytest.approx(sum(others[:most]))
    else:  # by scores of what is left after half of them, since that costs less
        assert importance.added[2] < importance.added[1]
        assert lost >= sum(others[:most])
    checked = check_conversion(source, done.target, lossless=True, pruned=gone)
    assert checked.problems == ()
    assert checked.predicted_cache_bytes == checked.measured_cache_bytes
    request = done.record["request"]
    assert request["pruned_heads"] == {str(index): list(own) for index, own in gone.items()}
    assert not verify(read_recorded(done.target), source, sample=None, seed=0).differences


def test_a_share_of_all_heads_is_no_more_than_that(
    make_model: MakeModel, prose: Path, tmp_path: Path
) -> None:
    """2/5 of all: as many as can go without being more."""
    source = make_model("llama")
    plan = plan_conversion(
        ConversionRequest(
            source=source,
            target=tmp_path / "out",
            num_key_value_heads=None,
            pruned_heads=Fraction(2, 5),
            across_layers=True,
            calibration=str(prose),
            calibration_tokens=1024,
        )
    )
    total = sum(layer.num_attention_heads for layer in plan.layers)
    assert sum(len(layer.pruned) for layer in plan.layers) == total * 2 // 5


@pytest.mark.slow
def test_a_kill_leaves_what_the_next_run_needs_for_the_same_bytes(
    make_model: MakeModel, prose: Path, tmp_path: Path, command: FaultyCommand
) -> None:
    source = make_model("llama")
    words = ("--prune-heads", "1/2", "--quality", "good", "--calibration", prose)
    options = (*words, "--calibration-tokens", "1k")
    whole = command("convert", source, tmp_path / "whole", *options)
    assert whole.status == 0, whole
    resumed = 0
    for part in (3, 5, 7, 9):
        target, at = tmp_path / f"out-{part}", whole.calls * part // 10
        killed = command("convert", source, target, *options, fault="kill", at=at)
        assert killed.status == 128 + signal.SIGKILL, killed
        again = command("convert", source, target, *options)
        assert again.status == 0, again
        assert contents(target) == contents(tmp_path / "whole")
        resumed += "resuming" in again.stderr
    assert resumed >= 2
