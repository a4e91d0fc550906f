"""`--dtype` with equal heads: up to rounding, which the check takes into account; what is lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from conversions import run
from headcount.cli import main
from headcount.convert.check import check_conversion
from headcount.convert.conversion_report import conversion_report
from headcount.convert.plan.errors import BadValuesError
from headcount.convert.plan.rounding import Rounding, rounding_of
from headcount.convert.stream.float_casts import Lost, cast, lost

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
BuildModel = Callable[..., Any]


def equal_heads(grouped: MakeFolder, repeated: MakeFolder, dtype: str) -> Path:
    return repeated(grouped("llama", 12, 4, dtype), 3)


@pytest.mark.parametrize("wide", ["float32", "float64"])
@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_equal_heads_are_equal_after_a_cast(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, wide: str, narrow: str
) -> None:
    """Both are rounded to the same numbers, so that the limit stays what it is without a cast."""
    source = equal_heads(grouped, repeated, wide)
    arguments = ("convert", source, tmp_path / "out", "--kv-heads", 4, "--dtype", narrow, "--check")
    result = CliRunner().invoke(main, [*map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    conversion = json.loads(result.stdout)
    check = conversion["check"]
    assert conversion["lossless"] is True
    assert (conversion["rounding"]["cast"], conversion["rounding"]["folded"]) == (narrow, None)
    assert not any(found["zeros"] for found in conversion["rounding"]["lost"].values())
    assert check["cast"] == narrow
    assert check["relative_difference"] < 1e-5
    # The rounding itself is far more than that: without it in the source the check would fail.
    plain = check_conversion(source, tmp_path / "out", lossless=True)
    assert len(plain.problems) == 1 and plain.relative_difference > 2e-4


def test_the_report_says_what_is_rounded(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = equal_heads(grouped, repeated, "float32")
    sentence = "the result computes what the source does"
    for name, words in (("bfloat16", ", up to rounding to bfloat16."), ("float32", ".")):
        report = conversion_report(run(source, tmp_path / name, 4, dtype=name))
        assert any(note.endswith(sentence + words) for note in report.notes)
        again = conversion_report(run(source, tmp_path / name, 4, dtype=name))
        assert again.notes == report.notes and "already done" in again.title


def test_a_wider_type_rounds_nothing(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = equal_heads(grouped, repeated, "bfloat16")
    report = run(source, tmp_path / "out", 4, dtype="float32")
    assert rounding_of(report.plan) == Rounding()
    assert check_conversion(source, tmp_path / "out", lossless=True).problems == ()


def test_a_wrong_head_is_found_in_spite_of_a_cast(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = equal_heads(grouped, repeated, "float32")
    rounding = rounding_of(run(source, tmp_path / "out", 4, dtype="bfloat16").plan)
    file, name = tmp_path / "out" / "model.safetensors", "model.layers.1.self_attn.k_proj.weight"
    tensors = load_file(file)
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    checked = check_conversion(source, tmp_path / "out", lossless=True, rounding=rounding)
    assert "the logits differ by" in checked.problems[0]


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_a_norm_that_is_folded_rounds_in_the_type_of_the_file(
    build_model: BuildModel, tmp_path: Path, kind: str
) -> None:
    """GPT-NeoX becomes Phi, which has one norm where the source has two."""
    model = build_model("gpt_neox", num_attention_heads=12, hidden_size=96, num_hidden_layers=2)
    for layer in model.gpt_neox.layers:
        fused = layer.attention.query_key_value
        for tensor in (fused.weight.data, fused.bias.data):
            heads = tensor.unflatten(0, (4, 3, 3, 8))  # four groups of three heads of q, k, v
            heads[:, :, 1:] = heads[:, :1, 1:].clone()
    model.to(getattr(torch, kind)).save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", 4)
    rounding = rounding_of(report.plan)
    assert all(layer.lossless for layer in report.layers)
    assert rounding == Rounding(folded=kind)
    notes = conversion_report(report).notes
    assert any(note.endswith(f"up to rounding to {kind}.") for note in notes)
    source, out = tmp_path / "source", tmp_path / "out"
    assert check_conversion(source, out, lossless=True, rounding=rounding).problems == ()
    if kind == "bfloat16":
        assert check_conversion(source, out, lossless=True).relative_difference > 1e-4


# float16 has 2^-24 as its least number, 2^-14 as its least with all digits, and 65,504 as its
# largest; from 65,520 on numbers round to infinity. bfloat16's least are 2^-133 and 2^-126.
LOST = [
    (torch.float16, [2.0**-25, -(2.0**-26), 1e-9, 0.0], Lost(3, 0)),
    (torch.float16, [2.0**-24, 2.0**-20, 2.0**-14, 65_504.0, 65_519.0], Lost(0, 0)),
    (torch.float16, [1e-6, -3e-5, 6.2e-5, 1.0 + 2.0**-20], Lost(0, 2)),
    (torch.float16, [float("nan"), float("inf"), 1e-9], Lost(1, 0)),
    (torch.bfloat16, [2.0**-134, 2.0**-133, 1.1e-38, 2.0**-126, 1e-30], Lost(1, 1)),
]


@pytest.mark.parametrize(("kind", "numbers", "expected"), LOST)
@pytest.mark.parametrize("wide", [torch.float32, torch.float64], ids=str)
def test_what_is_lost_is_counted(
    kind: torch.dtype, numbers: list[float], expected: Lost, wide: torch.dtype
) -> None:
    before = torch.tensor(numbers, dtype=wide)
    assert lost(before, cast(before, kind)) == expected
    assert lost(before, before.clone()) == Lost()


def test_what_is_lost_is_said_of_copied_and_of_merged_tensors(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    """Also by a run that finds the target done."""
    source = Path(shutil.copytree(equal_heads(grouped, repeated, "float32"), tmp_path / "source"))
    up, key = (f"model.layers.1.{n}.weight" for n in ("mlp.up_proj", "self_attn.k_proj"))
    file = source / "model.safetensors"
    tensors = load_file(file)
    for tensor in tensors.values():  # random weights are as small now and then
        tensor[tensor.abs() < 1e-4] = 0
    tensors[up].flatten()[:7] = 1e-9
    tensors[up].flatten()[7:9] = 1e-6
    tensors[key].unflatten(0, (4, 3, -1))[2, :, 0, :5] = 1e-9  # of three equal heads
    save_file(tensors, file, metadata={"format": "pt"})
    for _ in range(2):
        report = run(source, tmp_path / "out", 4, dtype="float16")
        found = report.document()["rounding"]
        assert found["lost"][up] == {"zeros": 7, "small": 2}  # type: ignore[index]
        assert found["lost"][key] == {"zeros": 5, "small": 0}  # type: ignore[index]
        notes = conversion_report(report).notes
        assert (
            f"Rounding to float16: 12 numbers of 2 tensors became 0, most of them in {up}." in notes
        )
        assert any("2 numbers of 1 tensors are so small in float16" in note for note in notes)


def test_an_overflow_says_how_many_and_where_the_type_ends(source: Path, tmp_path: Path) -> None:
    file, name = source / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name].flatten()[3:15] = 65_520.0
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadValuesError, match=r"overflows float16: 12 .* beyond 65504") as caught:
        run(source, tmp_path / "out", dtype="float16")
    assert name in str(caught.value)
    assert not (tmp_path / "out").exists()
