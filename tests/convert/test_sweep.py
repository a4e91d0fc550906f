"""Every type of transformers whose class can hold fewer K/V heads comes back from a conversion.

The whole mapping is swept, not a list: a type is converted, or it stands below with the reason.
`pytest -m "" -s tests/convert/test_sweep.py` prints the table.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from conversion_limits import REFUSED, UNCOMPARED
from conversions import run, without_blanks
from every_type import whole_jobs
from grouped_models import (
    NOT_ON_TEXT,
    NoGroupsError,
    NotBuildableError,
    Pair,
    build_pair,
    config_of,
    load,
    logits,
    precision,
    tokens,
)
from headcount.convert.families import convertible
from headcount.convert.plan.errors import CannotConvertError

pytestmark = pytest.mark.needs_convert

SAMPLE = (
    *("llama", "phi3", "dbrx", "falcon", "gpt_bigcode", "stablelm", "cohere", "gemma4_text"),
    *("qwen3_next", "mimo_v2_flash", "zamba2", "t5gemma", "mistral3"),
)
# The norm over all K heads is made in float32, whose rounding depends on how many there are; so is
# all of Inkling 2.
ROUNDED = {
    **dict.fromkeys(("flex_olmo", "minimax_m2", "olmo2", "olmo3", "olmo_hybrid", "olmoe"), 1e-5),
    **dict.fromkeys(("inkling2", "inkling2_loop", "inkling2_text"), 1e-4),
}
NOT_COMPARED = {
    "diffusion_gemma": "it draws random numbers",
    "shieldgemma2": "transformers does not load what it saves",
    **dict.fromkeys(NOT_ON_TEXT, "it does not run on text alone"),
}
NOT_GENERATING = ("kyutai_speech_to_text", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")


JOBS = list(whole_jobs())
# What `headcount convert --families` says.
NATIVE = {row.model_type for row in convertible() if row.home == "native"}
CUSTOM = {row.model_type for row in convertible() if row.home == "custom"}


def compare(pair: Pair, back: Path, model_type: str) -> float:
    """Asserts that both compute the same, and returns the largest difference of a logit."""
    source, target = load(pair, pair.repeated), load(pair, back)
    dtype = precision(model_type)
    difference = (logits(source, dtype) - logits(target, dtype)).abs().max().item()
    assert difference <= ROUNDED.get(model_type, 1e-10)
    if model_type not in NOT_GENERATING:
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        one, other = (m.generate(tokens(m), **options) for m in (source, target))
        assert torch.equal(one, other)
    return difference


def check(model_type: str, task: str, folder: Path) -> str:
    """Repeats the K/V heads of a tiny model, converts back, and says what came of it."""
    if model_type in REFUSED:
        return f"refused: {REFUSED[model_type]}"
    try:
        pair = build_pair(model_type, task, folder / "models")
    except NoGroupsError:
        assert model_type not in NATIVE
        return "no fewer K/V heads in its own class"
    except NotBuildableError:
        if model_type in CUSTOM - NATIVE:
            return "no fewer K/V heads in its own class"
        assert model_type in UNCOMPARED, f"{model_type} ({task}) is neither converted nor listed"
        return f"not run: {UNCOMPARED[model_type]}"
    assert model_type not in UNCOMPARED
    try:
        back = run(pair.repeated, folder / "back", pair.kv).target
    except CannotConvertError as error:
        assert any(reason in str(error) for reason in REFUSED.values()), error
        return f"refused: {str(error).rpartition(': ')[2]}"
    assert model_type in NATIVE
    name = "model.safetensors"
    assert without_blanks(back / name) == without_blanks(pair.grouped / name)
    assert config_of(back) == config_of(pair.grouped)
    if model_type in NOT_COMPARED:
        return f"native, not compared: {NOT_COMPARED[model_type]}"
    return f"native, logits differ by {compare(pair, back, model_type):.1e}"


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_type_of_each_kind_comes_back(model_type: str, tmp_path: Path) -> None:
    task = next(task for known, task in JOBS if known == model_type)
    assert check(model_type, task, tmp_path).startswith("native")


def test_adapters_beside_the_attention_see_the_same(tmp_path: Path) -> None:
    """Evolla's layers attend to a protein, too, which the sweep does not give them."""
    pair = build_pair("evolla", "image_text", tmp_path / "models")
    back = run(pair.repeated, tmp_path / "back", pair.kv).target
    protein = torch.tensor([[2, 5, 7, 4, 9, 3]])
    inputs = {"protein_input_ids": protein, "protein_attention_mask": torch.ones_like(protein)}
    with torch.no_grad():
        alone, source, result = (
            model(input_ids=tokens(model), **given).logits
            for model, given in (
                (load(pair, pair.repeated), {}),
                (load(pair, pair.repeated), inputs),
                (load(pair, back), inputs),
            )
        )
    assert (source - alone).abs().max() > 1e-3
    assert (source - result).abs().max() <= 1e-10


def test_where_eager_attention_takes_no_fewer_heads_the_plan_says_so(tmp_path: Path) -> None:
    """And transformers fails indeed: a release in which it does not wants no such list."""
    pair = build_pair("unlimited_ocr", "image_text", tmp_path / "models")
    report = run(pair.repeated, tmp_path / "back", pair.kv)
    assert any("sdpa" in note for note in report.plan.notes)
    eager = pair.model_class.from_pretrained(report.target, attn_implementation="eager")
    with pytest.raises(RuntimeError, match="must match the size"):
        eager(input_ids=tokens(eager))


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_every_type_comes_back_or_says_why_not(
    model_type: str, task: str, tmp_path: Path, table: list[str]
) -> None:
    table.append(f"{model_type:30} {task:12} {check(model_type, task, tmp_path)}")


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """The lines of the table, printed at the end."""
    lines: list[str] = []
    yield lines
    print("", *lines, sep="\n")
