"""`convert --check`: what it says of results that are right, and of one that is not."""

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
from grouped_models import build_pair
from headcount.cli import main
from headcount.convert.check import check_conversion
from headcount.model.errors import HeadcountError
from mha_types import tiny_model

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
BuildModel = Callable[..., Any]


def test_equal_heads_give_equal_logits(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = repeated(grouped("llama", 12, 4), 3)
    run(source, tmp_path / "out", 4)
    checked = check_conversion(source, tmp_path / "out", lossless=True)
    assert checked.problems == ()
    assert checked.relative_difference < 1e-5
    assert checked.top1_agreement == 1
    # 16 tokens were read, and 7 of the 8 that were made: K and V of 2 layers, 4 heads of 8 floats.
    assert checked.measured_cache_bytes == 23 * 2 * 2 * 4 * 8 * 4
    assert checked.predicted_cache_bytes == checked.measured_cache_bytes


def test_other_heads_are_measured_and_are_no_problem(grouped: MakeFolder, tmp_path: Path) -> None:
    source = grouped("llama", 12, 12)
    run(source, tmp_path / "out", 4)
    checked = check_conversion(source, tmp_path / "out", lossless=False)
    assert checked.problems == ()
    assert checked.relative_difference > 0.01


@pytest.mark.parametrize(("positions", "read", "made"), [(11, 7, 5), (3, 3, 1), (1, 1, 1)])
def test_a_model_of_few_positions_reads_no_more_than_it_has(
    build_model: BuildModel, tmp_path: Path, positions: int, read: int, made: int
) -> None:
    model = build_model("gpt2", n_head=6, max_position_embeddings=positions)
    model.save_pretrained(tmp_path / "source")
    run(tmp_path / "source", tmp_path / "out", 2)
    checked = check_conversion(tmp_path / "source", tmp_path / "out", lossless=False)
    assert checked.problems == ()
    assert (checked.prompt_tokens, checked.generated_tokens) == (read, made)
    # K and V of 2 layers, 2 heads of 8 floats, for each token but the last.
    assert checked.measured_cache_bytes == (read + made - 1) * 2 * 2 * 2 * 8 * 4


def test_logits_that_should_be_equal_and_are_not(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = repeated(grouped("llama", 12, 4), 3)
    run(source, tmp_path / "out", 4)
    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.self_attn.k_proj.weight"
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    checked = check_conversion(source, tmp_path / "out", lossless=True)
    assert len(checked.problems) == 1
    assert "the logits differ by" in checked.problems[0]


@pytest.mark.parametrize(
    ("model_type", "auto_class", "sizes"),
    [
        ("bart", "AutoModelForSeq2SeqLM", {"d_model": 48, "decoder_attention_heads": 6}),
        ("t5", "AutoModelForSeq2SeqLM", {"d_model": 48, "num_heads": 6, "d_kv": 8}),
        ("gpt2", "AutoModelForCausalLM", {"n_embd": 48, "n_head": 6, "n_layer": 2}),
        (
            "whisper",
            "AutoModelForSpeechSeq2Seq",
            {
                **{"d_model": 48, "decoder_attention_heads": 6, "encoder_attention_heads": 6},
                **{"max_source_positions": 20, "num_mel_bins": 8, "decoder_start_token_id": 1},
                **{"encoder_layers": 1, "decoder_layers": 1, "suppress_tokens": None},
                "begin_suppress_tokens": None,
            },
        ),
    ],
)
def test_classes_of_every_kind_are_run(
    tmp_path: Path, model_type: str, auto_class: str, sizes: dict[str, Any]
) -> None:
    import transformers

    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 96}
    config = transformers.AutoConfig.for_model(model_type, **tokens, **sizes)
    torch.manual_seed(0)
    model = getattr(transformers, auto_class).from_config(config)
    model.save_pretrained(tmp_path / "source")
    run(tmp_path / "source", tmp_path / "out", 2)
    checked = check_conversion(tmp_path / "source", tmp_path / "out", lossless=False)
    assert checked.problems == ()
    assert checked.measured_cache_bytes


def test_a_model_that_was_saved_without_its_cache_is_checked_with_it(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    """As after training with gradient checkpointing."""
    source = Path(shutil.copytree(repeated(grouped("llama", 12, 4), 3), tmp_path / "source"))
    for name in ("config.json", "generation_config.json"):
        values = {**json.loads((source / name).read_text()), "use_cache": False}
        (source / name).write_text(json.dumps(values))
    run(source, tmp_path / "out", 4)
    checked = check_conversion(source, tmp_path / "out", lossless=True)
    assert checked.problems == ()
    assert checked.measured_cache_bytes == checked.predicted_cache_bytes != 0


@pytest.mark.parametrize("model_type", ["evolla", "unlimited_ocr"])
def test_caches_of_classes_with_habits_of_their_own_are_found(
    model_type: str, tmp_path: Path
) -> None:
    pair = build_pair(model_type, "image_text", tmp_path / "models")
    run(pair.repeated, tmp_path / "out", pair.kv)
    checked = check_conversion(pair.repeated, tmp_path / "out", lossless=True)
    assert checked.problems == ()


def test_codes_of_several_codebooks_are_not_made(tmp_path: Path) -> None:
    tiny_model("musicgen_decoder", "causal", torch.float32).save_pretrained(tmp_path / "source")
    run(tmp_path / "source", tmp_path / "out", 2)
    with pytest.raises(HeadcountError, match=r"several codebooks.*inputs of your own"):
        check_conversion(tmp_path / "source", tmp_path / "out", lossless=False)


def test_the_command_says_what_it_found(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path
) -> None:
    source = repeated(grouped("llama", 12, 4), 3)
    command = ["convert", str(source), str(tmp_path / "out"), "--kv-heads", "4", "--check"]
    result = CliRunner().invoke(main, [*command, "--format", "json"])
    assert result.exit_code == 0, result.output
    check = json.loads(result.stdout)["check"]
    assert check["lossless"] is True
    assert check["problems"] == []
    assert check["predicted_cache_bytes"] == check["measured_cache_bytes"]


@pytest.mark.parametrize(
    ("more", "lossless"), [((), True), (("--kv-heads", "2"), False)], ids=["pruned", "merged"]
)
def test_a_source_without_its_pruned_heads_is_what_is_compared(
    grouped: MakeFolder, tmp_path: Path, more: tuple[str, ...], lossless: bool
) -> None:
    target = str(tmp_path / "out")
    command = ["convert", str(grouped("llama", 12, 4)), target, "--prune-heads", "4", *more]
    result = CliRunner().invoke(main, [*command, "--check", "--format", "json"])
    assert result.exit_code == 0, result.output
    check = json.loads(result.stdout)["check"]
    assert check["masked_heads"] == 8
    assert check["lossless"] is lossless
    assert (check["relative_difference"] < 1e-5) is lossless


def test_a_class_that_nobody_has_is_refused(grouped: MakeFolder, tmp_path: Path) -> None:
    run(grouped("llama", 12, 12), tmp_path / "out", 4)
    path = tmp_path / "out" / "config.json"
    config = {**json.loads(path.read_text()), "architectures": ["NobodysForCausalLM"]}
    path.write_text(json.dumps(config))
    with pytest.raises(HeadcountError, match="NobodysForCausalLM"):
        check_conversion(grouped("llama", 12, 12), tmp_path / "out", lossless=False)
