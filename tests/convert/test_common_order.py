"""Heads of T5's kind, whose one table of score biases makes all layers agree on their order.

The truth are models with equal heads that lie apart: what finds them loses nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from conversions import contents, load_whole, run
from headcount.convert.homes.finding import find_home
from headcount.convert.merge.ladder import QUALITIES
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.layer import RewrittenLayer
from headcount.convert.rewrite.uncalibrated import uncalibrated_layers
from mha_types import HEAD_DIM, HEADS, logits, settle, tiny_model

pytestmark = pytest.mark.needs_convert

LIMIT = 1e-6
KV = HEADS // 2
FAST = {"method": "merge", "grouping": "similar"}
# Which heads are alike, pair by pair: none are neighbours.
APART = ((0, 4), (1, 5), (2, 6), (3, 7))
MIRRORED = ((0, 7), (1, 6), (2, 5), (3, 4))
CROSSED = ((0, 2), (1, 3), (4, 6), (5, 7))


def planted(model_type: str, *plants: tuple[tuple[int, int], ...]) -> Any:
    """A model of three decoder layers: the pairs of self-attention i are `plants[i]`, those of
    cross-attention i `plants[i + 1]`, the last ones' neighbour the first."""
    model = tiny_model(model_type, "seq2seq", num_decoder_layers=3)
    for index, block in enumerate(model.decoder.block):
        for kind, attention in enumerate(
            (block.layer[0].SelfAttention, block.layer[1].EncDecAttention)
        ):
            for projection in (attention.k, attention.v):
                heads = projection.weight.data.unflatten(0, (HEADS, HEAD_DIM))
                for one, other in plants[(index + kind) % len(plants)]:
                    heads[other] = heads[one]
    return model


def difference(model: Any, target: Path) -> float:
    result = load_whole(target, AutoModelForSeq2SeqLM, dtype=torch.float64)
    settle(result)
    return float((logits(result) - logits(model)).abs().max())


@pytest.mark.parametrize("model_type", ["t5", "mt5", "longt5", "switch_transformers"])
def test_layers_that_share_a_table_find_one_order(model_type: str, tmp_path: Path) -> None:
    model = planted(model_type, APART)
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    assert difference(model, report.target) <= LIMIT
    neighbours = run(tmp_path / "source", tmp_path / "neighbours", KV, method="merge")
    assert difference(model, neighbours.target) > 1e-2
    assert not any("neighbouring heads" in note for note in report.plan.notes)


def test_layers_with_tables_of_their_own_each_find_theirs(tmp_path: Path) -> None:
    model = planted("umt5", APART, MIRRORED, CROSSED)
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    assert difference(model, report.target) <= LIMIT
    layers = report.document()["layers"]
    orders = [layer["rewritten"]["attention"]["order"] for layer in layers]
    assert orders == [
        [head for pair in pairs for head in pair] for pairs in (APART, MIRRORED, CROSSED)
    ]


def test_layers_that_disagree_find_what_is_best_for_their_sum(tmp_path: Path) -> None:
    """Two of three layers have the same pairs; the cross-attentions have each their own."""
    model = planted("t5", APART, MIRRORED, APART)
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    found = [layer["rewritten"] for layer in report.document()["layers"]]
    for layer, pairs in zip(found, (MIRRORED, APART, APART), strict=True):
        assert layer["attention"]["order"] == [head for pair in APART for head in pair]
        assert layer["cross_attention"]["order"] == [head for pair in pairs for head in pair]
    errors = [layer["attention"]["value_error"] for layer in found]
    assert errors[0] == errors[2] == 0 < errors[1]


def test_heads_that_are_equal_already_move_where_another_layer_needs_it(tmp_path: Path) -> None:
    """All heads are one in a layer, pairs that lie apart in two: all move, as the table does."""
    model = planted("t5", APART)
    pairs = model.decoder.block[1].layer[0].SelfAttention
    for projection in (pairs.k, pairs.v):
        heads = projection.weight.data.unflatten(0, (HEADS, HEAD_DIM))
        heads[:] = heads[:1]
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    assert difference(model, report.target) <= LIMIT


def test_a_table_of_cross_attention_of_old_files_does_no_harm(tmp_path: Path) -> None:
    """Files of the first T5 models hold one, which their class has long ceased to read."""
    model = planted("t5", APART)
    model.save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    tensors = load_file(path)
    own = next(name for name in tensors if "decoder" in name and "relative_attention_bias" in name)
    stray = own.replace("layer.0.SelfAttention", "layer.1.EncDecAttention")
    save_file({**tensors, stray: torch.rand_like(tensors[own])}, path, metadata={"format": "pt"})
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    result = AutoModelForSeq2SeqLM.from_pretrained(report.target, dtype=torch.float64).eval()
    settle(result)
    assert float((logits(result) - logits(model)).abs().max()) <= LIMIT


def test_all_heads_equal_already_stay_where_they_are(tmp_path: Path) -> None:
    model = planted("t5", ((0, 1), (2, 3), (4, 5), (6, 7)))
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", KV, **FAST)
    assert difference(model, report.target) <= 1e-12
    assert all(layer.lossless for layer in report.layers)


def test_layers_that_get_other_numbers_of_heads_keep_their_order(tmp_path: Path) -> None:
    planted("t5", APART).save_pretrained(tmp_path / "source")
    heads = {0: KV, 1: 2, 2: KV}
    request = ConversionRequest(
        source=tmp_path / "source", target=tmp_path / "out", num_key_value_heads=heads, **FAST
    )
    notes = [note for note in plan_conversion(request).notes if "neighbouring heads" in note]
    assert len(notes) == 1 and "do not all get as many K/V heads" in notes[0]
    report = run(tmp_path / "source", tmp_path / "out", heads, **FAST)
    for layer in report.document()["layers"]:
        assert layer["rewritten"]["attention"]["order"] == list(range(HEADS))


def test_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    planted("t5", APART, MIRRORED).save_pretrained(tmp_path / "source")
    one, many = (
        contents(run(tmp_path / "source", tmp_path / str(n), KV, workers=n, **FAST).target)
        for n in (1, 4)
    )
    assert one == many


def test_threads_are_as_before_between_layers(tmp_path: Path) -> None:
    planted("t5", APART).save_pretrained(tmp_path / "source")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in rewritten(tmp_path / "source", {}):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def rewritten(source: Path, done: dict[int, RewrittenLayer]) -> Iterator[RewrittenLayer]:
    model = read_source(source)
    heads = find_home(model, KV).heads
    return uncalibrated_layers(model, heads, QUALITIES["fast"], done.get)


def test_a_run_that_goes_on_keeps_the_order_that_was_chosen(tmp_path: Path) -> None:
    planted("t5", APART, MIRRORED, APART).save_pretrained(tmp_path / "source")
    whole = list(rewritten(tmp_path / "source", {}))
    for known in ({0: whole[0]}, {0: whole[0], 1: whole[1]}):
        for again, before in zip(rewritten(tmp_path / "source", known), whole, strict=True):
            assert again.measured == before.measured
            assert again.tensors.keys() == before.tensors.keys()
            assert all(torch.equal(t, before.tensors[n]) for n, t in again.tensors.items())
    # Another processor may have chosen otherwise, where that is as good.
    attention = {**whole[0].measured["attention"], "order": [0, 7, 1, 6, 2, 5, 3, 4]}
    other = replace(whole[0], measured={**whole[0].measured, "attention": attention})
    for layer in list(rewritten(tmp_path / "source", {0: other}))[1:]:
        assert layer.measured["attention"]["order"] == attention["order"]
