"""`convert --budget`: each layer gets the heads, or the rank, that cost the model least."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from causal_models import build_model, sample_text
from conversions import contents, load_whole
from headcount.audit import audit_model
from headcount.cli import main
from headcount.running.measured_cache import measured_cache_bytes

pytestmark = pytest.mark.needs_convert
HEADS = ("--budget", "1/2", "--quality", "fast")
LATENTS = ("--latent", "--budget", "1/8")
# Per token of the four layers, in float32: 2 * 4 heads of 8.
BEFORE = 4 * 2 * 4 * 8 * 4


def run(*words: object, status: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The options of a calibration, and another text."""
    folder = tmp_path_factory.mktemp("text")
    content = sample_text()
    (folder / "one.txt").write_text(content[:9000], encoding="utf-8")
    (folder / "other.txt").write_text(content[9000:14000], encoding="utf-8")
    return str(folder / "one.txt"), folder / "other.txt"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A model of whose four layers every second one hardly says anything."""
    folder = tmp_path_factory.mktemp("source")
    model = build_model("llama", num_hidden_layers=4, num_key_value_heads=4)
    with torch.no_grad():
        for layer in model.model.layers[1::2]:
            layer.self_attn.o_proj.weight *= 0.02
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def record(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((target / "conversion.json").read_text())
    return found


@torch.no_grad()
def moved(source: Path, target: Path, tokens: torch.Tensor) -> float:
    """KL(source || target), in nats a token."""
    before, after = (load_whole(f)(tokens).logits.log_softmax(-1) for f in (source, target))
    return float((before.exp() * (before - after)).sum(-1).mean())


def cached(folder: Path) -> int:
    """Bytes that transformers keeps of a token."""
    model = load_whole(folder)
    with torch.no_grad():
        cache = model(torch.tensor([[3, 4, 5, 6, 7]]), use_cache=True).past_key_values
    return measured_cache_bytes(cache) // 5


@pytest.mark.parametrize("options", [HEADS, LATENTS])
def test_layers_that_say_more_get_more_and_it_is_better(
    options: tuple[str, ...],
    source: Path,
    text: tuple[str, Path],
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    """On another text than it was found on, at the same bytes or fewer."""
    calibrated = (*options, "--calibration", text[0], "--calibration-tokens", "2048")
    run("convert", source, tmp_path / "out", *calibrated, "--check")
    found = record(tmp_path / "out")["budget"]
    sizes = [layer["size"] for layer in found["layers"]]
    assert max(sizes[1::2]) < min(sizes[::2])
    bytes_of = found["cache_bytes_per_token"]
    assert bytes_of["source"] == BEFORE
    assert bytes_of["reached"] == cached(tmp_path / "out") <= bytes_of["asked"]
    spec = audit_model(str(tmp_path / "out")).spec
    assert spec.cache_bytes(tokens=1, bits=32) == bytes_of["reached"]
    equal = ("--kv-heads", "2", "--quality", "fast") if options == HEADS else ("--latent", "1/8")
    text_options = () if options == HEADS else calibrated[3:]
    run("convert", source, tmp_path / "equal", *equal, *text_options)
    assert bytes_of["reached"] <= cached(tmp_path / "equal")
    ids = tokenizer(text[1].read_text(encoding="utf-8"))["input_ids"]
    tokens = torch.tensor(ids)[: len(ids) // 64 * 64].view(-1, 64)
    by_layer, alike = (moved(source, tmp_path / name, tokens) for name in ("out", "equal"))
    assert by_layer < 0.7 * alike
    measured = found["measured"]
    assert measured["by_layer"]["kl_divergence"] < measured["equal"]["kl_divergence"]
    assert found["tokens"] > 0 and found["forward_passes"] > 0 and found["criterion"] == "text"


@pytest.mark.parametrize("options", [HEADS, LATENTS])
def test_weights_alone_can_say_it_too(
    options: tuple[str, ...], source: Path, tmp_path: Path
) -> None:
    """By what is lost of each layer, whatever that says; what it is the same as can be asked for
    by name."""
    said = run("convert", source, tmp_path / "out", *options, "--dry-run").output
    assert "--calibration measures the loss" in " ".join(said.split())
    named = said.partition("the same as ")[2].split("\n")[0].split()
    run("convert", source, tmp_path / "out", *options)
    assert record(tmp_path / "out")["budget"]["criterion"] == "weights"
    more = ("--quality", "fast") if options == HEADS else ()
    run("convert", source, tmp_path / "named", *named, *more)
    weights = [contents(tmp_path / name)["model.safetensors"] for name in ("out", "named")]
    assert weights[0] == weights[1]
    run("convert", source, "--verify", tmp_path / "out")


def test_a_second_run_finds_it_done_and_a_killed_one_gives_the_same_bytes(
    source: Path, text: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.convert.stream import writer

    options = (*LATENTS, "--calibration", text[0], "--calibration-tokens", "1024")
    run("convert", source, tmp_path / "whole", *options)
    assert "already done" in run("convert", source, tmp_path / "whole", *options).stdout
    finish = writer.NewFile.finish
    seen = []

    def dying(self: Any) -> Any:
        seen.append(self)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(writer.NewFile, "finish", dying)
        run("convert", source, tmp_path / "out", *options, status=130)
    assert not (tmp_path / "out").exists()
    run("convert", source, tmp_path / "out", *options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--budget", "15"), "leaves 12 bytes a token, and 256 are the least: one K/V head"),
        (("--latent", "--budget", "15"), "and 16 are the least: one element of a latent"),
        (("--budget", "4096"), "nothing is saved"),
        (("--budget", "5MiB"), "nothing is saved"),
        (("--budget", "1"), "leaves 0 bytes a token"),
        (("--budget", "3/2"), "between 0 and 1"),
        (("--budget", "some"), "is not a size"),
        (("--budget", "1/2", "--kv-heads", "2"), "--kv-heads does not go with --budget"),
        (("--budget", "1/2", "--prune-heads", "1"), "--prune-heads does not go with --budget"),
        (("--budget", "1/2", "--latent", "8"), "a size of --latent does not go with --budget"),
        (("--budget", "1/2", "--method", "first"), "--method first does not go with --budget"),
        (("--budget", "1/2", "--sweep", "2,1"), "--budget does not go with --sweep"),
        (("--latent", "--budget", "1/2", "--home", "mla"), "one size for all layers"),
        (("--latent", "--dry-run"), "--latent without a size"),
        (("--latent", "0-1:8"), "no rank for layer 2"),
        (("--latent", "0-9:8"), "there is no layer 4, which --latent names"),
        (("--latent", "0-3:8", "--home", "mla"), "one size for all layers"),
    ],
)
def test_what_cannot_be_is_refused(
    options: tuple[str, ...], said: str, source: Path, tmp_path: Path
) -> None:
    result = run("convert", source, tmp_path / "out", *options, status=2)
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_layers_that_cannot_be_measured_alone_are_refused(
    save_model: Callable[..., Path], tmp_path: Path
) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, num_heads=4, num_layers=2, d_ff=32)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    result = run("convert", tmp_path / "t5", tmp_path / "out", "--budget", "1/2", status=2)
    assert "no layer can be measured alone" in " ".join(result.output.split())
