"""An output that was fitted to a text, or to random tokens, held against its record and source."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from conversions import run
from headcount.convert.calibrate import calibration, layer_fit
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.model.errors import HeadcountError
from headcount.sources.safetensors import read_header

pytestmark = pytest.mark.needs_convert


def flip(path: Path, name: str) -> None:
    """A bit of a tensor."""
    (tensor,) = [one for one in read_header(path).tensors if one.name == name]
    data = bytearray(path.read_bytes())
    data[tensor.offsets[0]] ^= 1
    path.write_bytes(data)


def test_what_was_fitted_is_vouched_for_by_its_digest(
    make_model: Callable[..., Path], prose: Path, tmp_path: Path
) -> None:
    source, out = make_model("llama"), tmp_path / "out"
    fitted = {"method": "merge", "refit": "mlp", "calibration_tokens": 512}
    run(source, out, calibration=str(prose), **fitted)
    recorded = read_recorded(out)
    found = verify(recorded, source, sample=None, seed=0)
    assert not found.differences
    assert found.counts["by_digest_only"] == len(recorded.rewritten) > 3 * 4
    parts = ("copied", "recomputed", "by_digest_only")
    assert sum(found.counts.get(part, 0) for part in parts) == len(recorded.tensors)
    name = "model.layers.1.self_attn.k_proj.weight"
    flip(out / "model.safetensors", name)
    assert [one.where for one in verify(recorded, source, sample=None, seed=0).differences] == [
        name
    ]


def other_heads(weights: Any, freedom: Any, moments: Any, own: Any, ladder: Any) -> Any:
    """Not what the run has chosen: as another processor may, where costs are close."""
    return [(0, 3), (1, 2)]


def not_run(runnable: Any, seed: int, white: float) -> Any:
    raise CannotConvertError(f"{runnable.folder}: a class that cannot be run")


@pytest.fixture
def paired(make_model: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path]:
    """A source whose heads 0 and 2, and 1 and 3, become one by what random tokens say."""
    source, out = make_model("llama", num_key_value_heads=4), tmp_path / "out"
    name = source / "model.safetensors"
    tensors = load_file(name)
    for key, value in tensors.items():
        if "k_proj" in key or "v_proj" in key:
            heads = value.unflatten(0, (4, -1))
            heads[2:] = heads[:2] * 1.01 + 0.01 * heads[2:]
    save_file(tensors, name, metadata={"format": "pt"})
    run(source, out, method="merge", grouping="similar")
    return source, out


def test_heads_are_merged_once_more_as_the_record_has_them(
    paired: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = paired
    recorded = read_recorded(out)
    assert [one["attention"]["order"] for one in recorded.layers.values()] == [[0, 2, 1, 3]] * 3
    monkeypatch.setattr(layer_fit, "groups_of", other_heads)
    found = verify(recorded, source, sample=None, seed=0)
    assert not found.differences and not found.notes
    assert "by_digest_only" not in found.counts
    strangers = {i: {**one, "attention": {}} for i, one in recorded.layers.items()}
    with pytest.raises(HeadcountError, match="the order of heads of layer 0"):
        verify(replace(recorded, layers=strangers), source, sample=None, seed=0)
    unknown = replace(recorded, layers={})
    assert verify(unknown, source, sample=None, seed=0).differences


def test_without_a_forward_pass_digests_vouch_for_what_was_merged(
    paired: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups alone do not say what heads became: the moments that they were merged by are gone."""
    source, out = paired
    recorded = read_recorded(out)
    monkeypatch.setattr(calibration, "random_tokens", not_run)
    found = verify(recorded, source, sample=None, seed=0)
    assert not found.differences
    assert found.counts["by_digest_only"] == len(recorded.rewritten) == 3 * 4
    (note,) = found.notes
    assert "layers 0-2" in note and "a class that cannot be run" in note
    flip(out / "model.safetensors", "model.layers.1.self_attn.k_proj.weight")
    flip(out / "model.safetensors", "model.layers.0.mlp.up_proj.weight")
    assert {one.where for one in verify(recorded, source, sample=None, seed=0).differences} == {
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    }


def test_what_could_not_be_run_then_is_not_measured_now(
    paired: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, white = paired[0], tmp_path / "white"
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "random_tokens", not_run)
        run(source, white, method="merge")
    found = verify(read_recorded(white), source, sample=None, seed=0)
    assert not found.differences and "as they can here" in found.notes[0]
