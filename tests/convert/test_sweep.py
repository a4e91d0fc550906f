"""Every type of transformers whose class can hold fewer K/V heads comes back from a conversion.

The whole mapping is swept, not a list: a type is converted, or it stands below with the reason.
`pytest -m "" -s tests/convert/test_sweep.py` prints the table.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING

from conversions import run
from every_type import jobs
from grouped_models import (
    NoGroupsError,
    NotBuildableError,
    Pair,
    build_pair,
    config_of,
    load,
    logits,
    tokens,
)
from headcount.audit.errors import InvalidWeightsError
from headcount.convert.plan.class_limits import REASONS
from headcount.convert.plan.errors import CannotConvertError

pytestmark = pytest.mark.needs_convert

SAMPLE = (
    *("llama", "phi3", "dbrx", "falcon", "gpt_bigcode", "stablelm", "cohere", "gemma4_text"),
    *("qwen3_next", "mimo_v2_flash", "zamba2", "t5gemma", "mistral3"),
)
_LARGE = "its towers are not made small by the usual names of their fields"
_WORDS = "its config does not come from the usual names of fields"
_NO_TEXT = "it does not run on text alone"
_LIBRARY = "it needs a library beyond the convert extra"
_LATENT = "its config wants a K/V head per query head: latent attention"
# Types whose tiny models cannot be built and run here, with the reason.
NOT_RUN: dict[str, str] = {
    **dict.fromkeys(
        (
            *("blt", "granite_docling", "granite_speech", "granite_speech_plus", "janus"),
            *("muse_glimmer", "muse_spark", "nemo_speechlm", "pi0", "vibevoice_asr"),
        ),
        _LARGE,
    ),
    **dict.fromkeys(
        (
            *("apertus1p5", "emu3", "florence2", "granite4_vision", "inkling2", "inkling2_loop"),
            *("molmo2", "musicgen", "musicgen_melody", "nemotron_h_omni", "qwen2_5_omni"),
            *("qwen3_omni_moe", "gemma4_assistant"),
        ),
        _WORDS,
    ),
    **dict.fromkeys(
        ("fun_asr_nano", "kyutai_speech_to_text", "llama4", "voxtral_realtime"), _NO_TEXT
    ),
    **dict.fromkeys(("fast_vlm", "gemma3n", "inkling_mm_model", "perception_lm"), _LIBRARY),
    **dict.fromkeys(("dots3_note", "dots3_note_text", "glm5_next", "hy_v4_vl"), _LATENT),
}
# Types whose weights the audit cannot sort, so that nothing is converted.
UNKNOWN_NAMES = ("cosmos3_edge", "cosmos3_omni", "qianfan_ocr")
# transformers' norm over all K heads is made in float32; how it rounds depends on their number.
ROUNDED = dict.fromkeys(("flex_olmo", "minimax_m2", "olmo2", "olmo3", "olmo_hybrid", "olmoe"), 1e-5)
NOT_COMPARED = {
    "diffusion_gemma": "it draws random numbers",
    "shieldgemma2": "transformers does not load what it saves",
}
NOT_GENERATING = ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")


def _jobs() -> Iterator[tuple[str, str]]:
    """Without the causal class of a wrapper, which is that of its text type."""
    known = jobs()
    for model_type, task in known:
        nested = bool(CONFIG_MAPPING[model_type].sub_configs)
        whole = (model_type, "image_text") in known
        if task != "masked" and not (task == "causal" and nested and whole):
            yield model_type, task


JOBS = list(_jobs())


def compare(pair: Pair, back: Path, model_type: str) -> float:
    """Asserts that both compute the same, and returns the largest difference of a logit."""
    source, target = load(pair, pair.repeated), load(pair, back)
    difference = (logits(source, torch.float64) - logits(target, torch.float64)).abs().max().item()
    assert difference <= ROUNDED.get(model_type, 1e-10)
    if model_type not in NOT_GENERATING:
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
        one, other = (m.generate(tokens(m), **options) for m in (source, target))
        assert torch.equal(one, other)
    return difference


def check(model_type: str, task: str, folder: Path) -> str:
    """Repeats the K/V heads of a tiny model, converts back, and says what came of it."""
    if model_type in REASONS:
        return f"refused: {REASONS[model_type]}"
    try:
        pair = build_pair(model_type, task, folder / "models")
    except NoGroupsError:
        return "no fewer K/V heads in its own class"
    except NotBuildableError:
        assert model_type in NOT_RUN, f"{model_type} ({task}) is neither converted nor listed"
        return f"not run: {NOT_RUN[model_type]}"
    assert model_type not in NOT_RUN
    try:
        back = run(pair.repeated, folder / "back", pair.kv).target
    except CannotConvertError as error:
        assert any(reason in str(error) for reason in REASONS.values()), error
        return f"refused: {str(error).rpartition(': ')[2]}"
    except InvalidWeightsError:
        assert model_type in UNKNOWN_NAMES
        return "refused: the audit does not know the names of its weights"
    name = "model.safetensors"
    assert (back / name).read_bytes() == (pair.grouped / name).read_bytes()
    assert config_of(back) == config_of(pair.grouped)
    if model_type in NOT_COMPARED:
        return f"native, not compared: {NOT_COMPARED[model_type]}"
    return f"native, logits differ by {compare(pair, back, model_type):.1e}"


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_type_of_each_kind_comes_back(model_type: str, tmp_path: Path) -> None:
    task = next(task for known, task in JOBS if known == model_type)
    assert check(model_type, task, tmp_path).startswith("native")


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
