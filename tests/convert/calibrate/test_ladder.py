"""The calibrated ladder on tiny models that transformers builds, and runs with what comes of it."""

import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from calibrated_models import CONFIGS, VOCABULARY
from calibrating import calibrate, logits, with_tensors
from headcount.convert.calibrate import calibration as ladder_module
from headcount.convert.calibrate import layer_fit as layer_module
from headcount.convert.calibrate import state_rows as rows_module
from headcount.convert.calibrate.calibration_text import calibration_text
from headcount.convert.calibrate.first_tokens import with_first_tokens
from headcount.convert.calibrate.layered_model import LayeredModel, assign
from headcount.convert.calibrate.mlp_fit import MlpFit
from headcount.convert.merge.ladder import Ladder
from headcount.convert.plan.source import read_source
from headcount.convert.stream.reader import SourceReader
from headcount.model.errors import HeadcountError, WriteError
from headcount.running.tokens import load_tokenizer

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
MERGE = Ladder(method="merge")
REFIT = replace(MERGE, refit="output")
GOOD = replace(MERGE, grouping="similar", refit="mlp")
BEST = replace(GOOD, reconstruct=20)
IDS = torch.randint(1, VOCABULARY, (4, 48), generator=torch.Generator().manual_seed(1))
TOKENS = 1024


def _tensors(layers: Any) -> dict[str, torch.Tensor]:
    return {name: value for layer in layers for name, value in layer.tensors.items()}


def _same(one: Any, other: Any) -> bool:
    mine, theirs = _tensors(one), _tensors(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_all_rungs_of_every_type_give_tied_heads_that_its_class_runs(
    model_type: str, make_model: MakeModel, prose: Path
) -> None:
    folder = make_model(model_type)
    layers = calibrate(folder, prose, replace(BEST, reconstruct=3), tokens=TOKENS)
    assert [layer.index for layer in layers] == [0, 1, 2]
    assert all(bool(value.isfinite().all()) for value in _tensors(layers).values())
    before, after = logits(folder, IDS), logits(folder, IDS, layers)
    assert not torch.allclose(before, after)
    for layer in layers:
        assert layer.measured["attention"]["groups"] == [2, 2]
        errors = layer.measured["calibration"]["output_error"]
        assert errors["merged"] >= errors["refit"] >= errors["reconstructed"] * (1 - 1e-5)


def test_a_tied_model_keeps_its_function(make_model: MakeModel, prose: Path) -> None:
    folder = make_model("llama", num_key_value_heads=4, seed_of_pairs=1)
    layers = calibrate(folder, prose, GOOD, tokens=TOKENS)
    assert all(not layer.tensors for layer in layers)


def test_heads_that_differ_by_what_is_free_merge_without_loss(
    make_model: MakeModel, prose: Path
) -> None:
    """K heads of a pair differ by a turn of each frequency, V heads by an invertible matrix."""
    folder = make_model("llama", seed_of_pairs=2)
    before = logits(folder, IDS)
    merged = logits(folder, IDS, calibrate(folder, prose, MERGE, tokens=TOKENS))
    pooled = logits(folder, IDS, calibrate(folder, prose, Ladder(method="mean"), tokens=TOKENS))
    assert (merged - before).abs().max() < 2e-3 * before.std()
    assert (pooled - before).abs().max() > 0.1 * before.std()


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox"])
def test_each_rung_is_no_worse_on_held_out_rows(
    model_type: str, make_model: MakeModel, prose: Path
) -> None:
    """The first layer's attention, whose inputs are the same: as transformers computes it."""
    folder = make_model(model_type)
    source = read_source(folder)
    with SourceReader(source.checkpoint.files) as reader:
        layered = LayeredModel(source, reader)
        cut = calibration_text(source, layered.runnable, str(prose), 4096, 0)
        text = with_first_tokens(cut, load_tokenizer(folder), vocabulary=VOCABULARY, seed=0)
    held = torch.cat([text.ids[batch] for batch in text.held])
    wanted = _first_attention(AutoModelForCausalLM.from_pretrained(folder), held)
    errors = []
    for rung in (MERGE, REFIT, replace(REFIT, reconstruct=40)):
        layers = calibrate(folder, prose, rung, layers=(0,))
        made = _first_attention(with_tensors(folder, _tensors(layers)), held)
        errors.append(float((made - wanted).square().sum() / wanted.square().sum()))
        measured = layers[0].measured["calibration"].get("output_error", {})
        last = measured.get("reconstructed", measured.get("refit"))
        assert last is None or last == pytest.approx(errors[-1], rel=1e-3)
    assert errors[0] > errors[1] > errors[2]


def _first_attention(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """What the first attention's module gives."""
    seen = []
    names = ("self_attn", "attn", "attention")
    module = next(m for n, m in model.named_modules() if n.rpartition(".")[2] in names)
    module.register_forward_hook(lambda m, args, output: seen.append(output[0]))
    model.eval()(ids)
    return seen[0]


def test_the_mlp_makes_up_for_a_part_of_what_is_lost(make_model: MakeModel, prose: Path) -> None:
    folder = make_model("gpt2")
    for layer in calibrate(folder, prose, GOOD):
        errors = layer.measured["calibration"]["mlp_error"]
        assert errors["after"] < errors["before"]
        assert f"transformer.h.{layer.index}.mlp.c_proj.weight" in layer.tensors
        assert f"transformer.h.{layer.index}.mlp.c_proj.bias" in layer.tensors


def test_the_same_seed_gives_the_same_bytes(make_model: MakeModel, prose: Path) -> None:
    folder = make_model("llama")
    one, other = (calibrate(folder, prose, BEST, tokens=TOKENS) for _ in range(2))
    assert _same(one, other)
    assert not _same(one, calibrate(folder, prose, replace(BEST, seed=1), tokens=TOKENS))


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neox", "granite", "llama"])
def test_layers_that_are_done_are_run_and_not_computed_again(
    model_type: str, make_model: MakeModel, prose: Path
) -> None:
    folder = make_model(model_type)
    whole = calibrate(folder, prose, BEST, tokens=TOKENS)
    resumed = calibrate(
        folder, prose, BEST, tokens=TOKENS, done=lambda index: whole[index] if index < 2 else None
    )
    assert resumed[0] is whole[0] and resumed[1] is whole[1] and resumed[2] is not whole[2]
    assert _same(whole, resumed)


def test_hidden_states_beyond_the_budget_lie_on_disk(
    make_model: MakeModel, prose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_model("llama")
    in_memory = calibrate(folder, prose, BEST, tokens=TOKENS)
    made = []
    plain = rows_module.new_rows

    def new_rows(*args: Any, **kwargs: Any) -> Any:
        made.append(plain(*args, **kwargs))
        return made[-1]

    for module in (ladder_module, rows_module):
        monkeypatch.setattr(module, "new_rows", new_rows)
    monkeypatch.setattr(ladder_module, "MEMORY_BUDGET", 0)
    assert _same(in_memory, calibrate(folder, prose, BEST, tokens=TOKENS))
    assert len(made) == 5 and all(rows.on_disk for rows in made)  # four, and an MLP's features


class NearlyFull(io.BytesIO):
    """A disk with room for some bytes, which takes what fits of a write, as a real one does."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any) -> int:
        free = self._room - self.tell()
        if free <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(memoryview(data)[:free])


def test_a_full_place_for_hidden_states_is_told_from_a_full_target(
    make_model: MakeModel, prose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = iter([10**9, 10**9, 10**9, 5000])
    monkeypatch.setattr(ladder_module, "MEMORY_BUDGET", 0)
    monkeypatch.setattr(rows_module.tempfile, "TemporaryFile", lambda **_: NearlyFull(next(rooms)))
    with pytest.raises(WriteError, match=r"hidden states.*No space left.*set TMPDIR"):
        calibrate(make_model("llama"), prose, BEST, tokens=TOKENS)


def test_rows_are_read_as_they_were_written_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last write of all may be the one that fits in part: nothing after it would notice."""
    monkeypatch.setattr(rows_module.tempfile, "TemporaryFile", lambda **_: NearlyFull(100))
    rows = rows_module.new_rows(4, torch.zeros(2, 4), held=1, budget=0)
    values = torch.randn(3, 2, 4)
    rows[0:3] = values
    assert torch.equal(rows[1:3], values[1:3])
    with pytest.raises(WriteError, match="No space left"):
        rows[3:4] = values[:1]


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neox", "granite", "llama"])
def test_after_a_fit_of_an_mlp_the_states_are_what_the_layer_gives_with_it(
    model_type: str, make_model: MakeModel, prose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer is not run again for that; here it is."""
    compared = []

    class Compared(MlpFit):
        def run(self) -> Any:
            states, batches = self._states.converted, self._task.text.batches
            given = [states[batch] for batch in batches]
            made, errors = super().run()
            if not self._is_last:
                before = self._task.calls(batches[0]).run(self._task.layer, given[0])
                assign(self._task.layer, made)
                for batch, hidden in zip(batches, given, strict=True):
                    now = self._task.calls(batch).run(self._task.layer, hidden)
                    torch.testing.assert_close(states[batch], now)
                assert not torch.allclose(states[batches[0]], before)
                compared.append(errors)
            return made, errors

    monkeypatch.setattr(layer_module, "MlpFit", Compared)
    calibrate(make_model(model_type), prose, GOOD, tokens=TOKENS)
    assert len(compared) == 2


def test_a_temperature_sharpens_scores_that_were_made_flat(
    make_model: MakeModel, prose: Path
) -> None:
    """The mean of K heads that have little in common is smaller than each of them."""
    folder = make_model("llama")
    layers = calibrate(folder, prose, Ladder(method="mean", temperature=True), tokens=TOKENS)
    for layer in layers:
        found = layer.measured["calibration"]["temperature"]
        assert 0.25 <= found["least"] <= found["most"] <= 4
        assert found["divergence"]["after"] < found["divergence"]["before"]


ZEROS = {
    "olmo2": "model.layers.1.self_attn.o_proj.weight",  # a norm of the attention's output follows
    "gemma2": "model.layers.1.self_attn.v_proj.weight",
    "llama": "model.layers.1.input_layernorm.weight",
}


@pytest.mark.parametrize("ladder", [GOOD, BEST], ids=["good", "best"])
@pytest.mark.parametrize("model_type", sorted(ZEROS))
def test_an_attention_that_gives_nothing_is_merged_like_others(
    model_type: str, ladder: Ladder, make_model: MakeModel, prose: Path, tmp_path: Path
) -> None:
    """As in layers that are pruned, or that were added and not trained yet."""
    folder = Path(shutil.copytree(make_model(model_type), tmp_path / "zeros"))
    tensors = load_file(folder / "model.safetensors")
    tensors[ZEROS[model_type]].zero_()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    layers = calibrate(
        folder, prose, replace(ladder, reconstruct=ladder.reconstruct and 3), tokens=TOKENS
    )
    assert [layer.index for layer in layers] == [0, 1, 2]
    errors = layers[1].measured["calibration"]["output_error"]
    assert all(error == 0 for error in errors.values()) or model_type == "llama"
    assert all(bool(value.isfinite().all()) for value in _tensors(layers).values())
    assert bool(logits(folder, IDS, layers).isfinite().all())


def test_an_encoder_decoder_wants_a_tokenizer_too(tmp_path: Path, prose: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=32, d_kv=8, num_heads=4, d_ff=48, num_layers=2, vocab_size=64)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(HeadcountError, match="no tokenizer there, so that pairs cannot be cut"):
        calibrate(tmp_path, prose, GOOD)


def test_without_a_tokenizer_the_text_cannot_be_cut(make_model: MakeModel, prose: Path) -> None:
    with pytest.raises(HeadcountError, match="no tokenizer"):
        calibrate(make_model("llama", tokens=False), prose, GOOD)


def test_too_short_a_text_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("Not much to see here.")
    with pytest.raises(HeadcountError, match="21 tokens are too few"):
        calibrate(make_model("llama"), tmp_path / "short.txt", GOOD)
