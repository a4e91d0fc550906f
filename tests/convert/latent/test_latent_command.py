"""`convert --latent` on the command line: what it reports, records, refuses and verifies."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.convert.latent.size import (
    BytesPerToken,
    latent_document,
    latent_from_document,
    parse_latent_size,
)
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]


def run(*words: object, status: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result


def test_a_conversion_is_reported_checked_and_verified(
    save_model: SaveModel, tmp_path: Path
) -> None:
    source, target = save_model("llama", tokens="none"), tmp_path / "out"
    report = run("convert", source, target, "--latent", "1/2", "--check", "--format", "json")
    converted = json.loads(report.stdout)
    assert [layer["latent_rank"] for layer in converted["layers"]] == [16, 16]
    assert converted["request"]["latent"] == "1/2"
    found = converted["check"]
    assert found["measured_cache_bytes"] == found["predicted_cache_bytes"] > 0
    run("convert", source, "--verify", target)
    audit = json.loads(run("audit", target, "--format", "json").stdout)
    assert audit["totals"]["cache_bytes_per_token"] == 2 * 16 * 4
    assert not [f for f in audit["findings"] if f["severity"] != "note"]
    done = run("convert", source, target, "--latent", "1/2")
    assert "already done" in done.stdout
    run("convert", source, target, "--latent", "1/4", status=2)


def test_a_calibrated_one_is_verified_by_digest(
    save_model: SaveModel, text_file: Path, tmp_path: Path
) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    options = ("--latent", 8, "--quality", "good", "--calibration", text_file)
    said = run("convert", source, target, *options).stdout
    assert "Output before" in said and "Output: of what" in said
    assert "Scores: " not in said and "Not turned" not in said  # no column of theirs is there
    run("convert", source, "--verify", target)


def test_a_dry_run_says_what_will_be_kept(save_model: SaveModel, tmp_path: Path) -> None:
    source = save_model("gpt2", tokens="none")
    said = run("convert", source, tmp_path / "out", "--latent", "16", "--dry-run").stdout
    assert "elements of a token 64 -> a latent of 16" in said
    assert (
        "KV cache     512 B -> 128 B a token (float32), 4 times smaller than the source's" in said
    )
    assert "a share is written" not in said
    two = run("convert", source, tmp_path / "out", "--latent", "2", "--dry-run").stdout
    assert "keeps 2 of the 64 elements, of keys and values," in two and "--latent 1/2" in two
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--latent", "0"), "at least one element"),
        (("--latent", "3/2"), "above 0, and at most 1"),
        (
            ("--latent", "33"),
            "keeps 32 elements of a token (16 of keys, 16 of values): a latent of 33 saves nothing;"
            " --latent can be 1 to 32, at which nothing is lost",
        ),
        (("--latent", "9999999"), "a latent of 9,999,999 saves nothing; --latent can be 1 to 32,"),
        (("--latent", "9" * 61), "is no size of a latent"),
        (("--latent", "1MiB"), "save nothing"),
        (("--latent", "some"), "is no size of a latent"),
        (("--latent", "8", "--kv-heads", "1"), "--kv-heads does not go with --latent"),
        (("--latent", "8", "--prune-heads", "1"), "--prune-heads does not go with --latent"),
        (("--latent", "8", "--method", "merge"), "--method merge does not go with --latent"),
        (("--latent", "8", "--method", "mean"), "--method mean does not go with --latent"),
        (("--latent", "8", "--home", "native"), "--home native does not go with --latent"),
        (("--latent", "8", "--quality", "good"), "needs text"),
        (("--latent", "8", "--sweep", "2,1"), "--latent does not go with --sweep"),
        (("--home", "latent", "--kv-heads", "1"), "--home latent: say how large"),
    ],
)
def test_what_does_not_go_is_refused(
    options: tuple[str, ...], said: str, save_model: SaveModel, tmp_path: Path
) -> None:
    source = save_model("llama", tokens="none")
    result = run("convert", source, tmp_path / "out", *options, status=2)
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_a_latent_is_no_larger_than_what_keys_and_values_are_made_of(
    save_model: SaveModel, tmp_path: Path
) -> None:
    """GPT-2 has as many keys as its hidden states have elements, and as many values."""
    source = save_model("gpt2", tokens="none")
    said = run("convert", source, tmp_path / "out", "--latent", "65", status=2).output
    assert "keeps 64 elements of a token (32 of keys, 32 of values): a latent of 65 saves" in said
    assert "can be 1 to 32: keys and values are made of 32 elements, so that no more is" in said


def test_a_result_is_no_source(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama", tokens="none"), tmp_path / "out"
    run("convert", source, target, "--latent", "8")
    for options in (("--latent", "4"), ("--kv-heads", "1")):
        result = run("convert", target, tmp_path / "again", *options, status=2)
        assert "latents already" in result.output


def test_only_transformers_is_planned_to_load_it(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama", tokens="none"), tmp_path / "out"
    run("convert", source, target, "--latent", "8")
    words = ("plan", target, "--device", "a100-80gb", "--context", "32")
    generic = run(*words, "--details").stdout
    assert "a latent of 8" in generic
    for engine in ("vllm", "llama.cpp", "sglang"):
        assert "would not start" in run(*words, "--engine", engine).output
    run(*words, "--engine", "transformers")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128", 128),
        ("1/4", Fraction(1, 4)),
        ("0.25", Fraction(1, 4)),
        ("25%", Fraction(1, 4)),
        ("48KiB", BytesPerToken(48 * 1024)),
        ("100b", BytesPerToken(100)),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: Any) -> None:
    assert parse_latent_size(text) == size
    assert latent_from_document(json.loads(json.dumps(latent_document(size)))) == size


@pytest.mark.parametrize("text", ["", "1/0", "-1", "a", "1e3", "1/2/3", "12KiX"])
def test_what_is_no_size_is_an_error(text: str) -> None:
    with pytest.raises(HeadcountError):
        parse_latent_size(text)
