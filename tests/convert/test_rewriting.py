"""Heads are merged in the source's own tensors, and then pooled in every home.

The truth are models that compute the same as one with fewer heads: what is merged well comes back.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, LlamaConfig, LlamaForCausalLM

from conversions import contents, load_whole, run
from grouped_models import build_pair, load
from grouped_models import logits as logits_of
from headcount.cli import main
from headcount.convert.conversion_report import conversion_report
from headcount.convert.plan.errors import BadValuesError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.model.errors import HeadcountError
from mha_types import KV, logits, tie, tiny_model
from turned import turned_model, widened

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])
LIMIT = 1e-6  # what these classes compute in float32 differs by some 1e-8
ROUNDED = 1e-4  # classes that compute norms and rotations in float32


@pytest.mark.parametrize("method", ["renorm", "align", "merge"])
def test_equal_heads_stay_as_they_are_byte_for_byte(
    grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path, method: str
) -> None:
    original = grouped("llama", 12, 4, "bfloat16")
    report = run(repeated(original, 3), tmp_path / "back", 4, method=method)
    name = "model.safetensors"
    assert (report.target / name).read_bytes() == (original / name).read_bytes()
    assert all(layer.lossless and layer.key == layer.value == 0 for layer in report.layers)


@pytest.mark.parametrize("model_type", ["llama", "cohere", "phi3", "gpt_oss", "falcon"])
@pytest.mark.parametrize("method", ["align", "merge"])
def test_heads_that_differ_by_what_is_free_are_merged_without_a_loss(
    model_type: str, method: str, tmp_path: Path
) -> None:
    """Native classes; fused projections of two kinds among them."""
    pair = build_pair(model_type, "causal", tmp_path / "models")
    source = widened(pair.repeated)
    turned_model(source, tmp_path / "turned")
    options = {"method": method, "grouping": "similar"}
    report = run(tmp_path / "turned", tmp_path / "back", pair.kv, **options)
    before = logits_of(load(pair, source), torch.float64)
    after = logits_of(load(pair, report.target), torch.float64)
    if method == "merge":
        assert (after - before).abs().max().item() <= ROUNDED
        assert all(layer.key < 1e-6 and layer.value < 1e-6 for layer in report.layers)
    assert all(layer.key_mean is not None for layer in report.layers)
    assert all(layer.key_mean > 0.1 < layer.value_mean for layer in report.layers)
    assert all(layer.key <= layer.key_mean for layer in report.layers)
    mean = run(tmp_path / "turned", tmp_path / "mean", pair.kv)
    of_mean = logits_of(load(pair, mean.target), torch.float64)
    assert (of_mean - before).abs().max().item() > 0.1


@pytest.mark.parametrize(
    ("model_type", "home", "kv"),
    [
        ("gpt2", "custom", KV),
        ("gpt2", "rehome", 1),
        ("gpt_neox", "rehome", KV),
        ("codegen", "rehome", KV),
        ("gptj", "custom", KV),
        ("bloom", "custom", KV),
        ("opt", "rehome", 1),
    ],
)
def test_every_home_holds_what_was_merged(
    model_type: str, home: str, kv: int, tmp_path: Path
) -> None:
    model = tiny_model(model_type, "causal")
    tie(model, kv)
    model.save_pretrained(tmp_path / "tied")
    free = turned_model(tmp_path / "tied", tmp_path / "turned")
    grouping = "similar" if free["order"] else "contiguous"
    report = run(
        tmp_path / "turned",
        tmp_path / "out",
        kv,
        method="merge",
        grouping=grouping,
        home=home,
    )
    result = load_whole(report.target, trust_remote_code=False, dtype=torch.float64)
    assert (logits(result) - logits(model)).abs().max().item() <= LIMIT


def test_a_model_of_ours_is_merged_further(tmp_path: Path) -> None:
    model = tiny_model("gpt_neox", "causal")
    tie(model)
    model.save_pretrained(tmp_path / "tied")
    run(tmp_path / "tied", tmp_path / "four", 4, home="custom")
    free = turned_model(tmp_path / "four", tmp_path / "turned")
    assert free["keys"] and free["values"] and free["order"]
    options = {"method": "merge", "grouping": "similar", "home": "custom"}
    report = run(tmp_path / "turned", tmp_path / "two", KV, **options)
    result = load_whole(report.target, dtype=torch.float64)
    assert (logits(result) - logits(model)).abs().max().item() <= LIMIT


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_cross_attention_is_merged_too(model_type: str, tmp_path: Path) -> None:
    model = tiny_model(model_type, "seq2seq")
    tie(model)
    model.save_pretrained(tmp_path / "tied")
    turned_model(tmp_path / "tied", tmp_path / "turned", order=False)
    report = run(tmp_path / "turned", tmp_path / "out", KV, method="merge")
    result = load_whole(report.target, AutoModelForSeq2SeqLM, dtype=torch.float64)
    assert (logits(result) - logits(model)).abs().max().item() <= LIMIT
    for layer in report.document()["layers"]:
        assert layer["rewritten"].keys() == {"attention", "cross_attention", "inputs"}
        assert layer["rewritten"]["inputs"]["assumed"] == "white"  # no plain decoder


def test_grouped_heads_are_merged_further(tmp_path: Path) -> None:
    """GQA to fewer K/V heads: four K/V heads of two query heads each become two."""
    model = _llama(heads=8, kv=4)
    for layer in model.model.layers:
        for name in ("k_proj", "v_proj"):
            heads = getattr(layer.self_attn, name).weight.data.unflatten(0, (2, 2, -1))
            heads[:, 1] = heads[:, 0]
    model.save_pretrained(tmp_path / "tied")
    free = turned_model(tmp_path / "tied", tmp_path / "turned")
    assert free == {"keys": 2, "values": 2, "order": 2}
    options = {"method": "merge", "grouping": "similar"}
    report = run(tmp_path / "turned", tmp_path / "out", 2, **options)
    assert _difference(model, report.target) <= ROUNDED


def test_runs_of_unequal_length(tmp_path: Path) -> None:
    """Eight heads become three, with a ninth query head as padding."""
    model = _llama(heads=8, kv=8, hidden_size=72)
    for layer in model.model.layers:
        for name in ("k_proj", "v_proj"):
            heads = getattr(layer.self_attn, name).weight.data.unflatten(0, (8, -1))
            for first, last in ((0, 3), (3, 6), (6, 8)):
                heads[first:last] = heads[first].clone()
    model.save_pretrained(tmp_path / "tied")
    turned_model(tmp_path / "tied", tmp_path / "turned")
    options = {"method": "merge", "grouping": "similar"}
    report = run(tmp_path / "turned", tmp_path / "out", 3, **options)
    assert _difference(model, report.target) <= ROUNDED
    sizes = [layer["rewritten"]["attention"]["groups"] for layer in report.document()["layers"]]
    assert sizes == [[3, 3, 2]] * 2


def test_only_layers_that_change_are_rewritten(tmp_path: Path) -> None:
    model = tiny_model("gpt2", "causal")
    model.save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", {1: 2}, method="merge", home="custom")
    layers = report.document()["layers"]
    assert [layer["index"] for layer in layers if layer["rewritten"]] == [1]
    old, new = (load_file(tmp_path / n / "model.safetensors") for n in ("source", "out"))
    moved = {name for name in old if name in new and not torch.equal(old[name], new[name])}
    assert moved and all(".h.1.attn." in name for name in moved)


def test_the_better_the_method_the_less_is_lost(tmp_path: Path) -> None:
    """What the record says of each method, and that the mean it names is the same everywhere."""
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    lost = {}
    for method in ("mean", "align", "merge"):
        options = {"method": method, "grouping": "similar"}
        report = run(tmp_path / "source", tmp_path / method, 2, **options)
        lost[method] = [(layer.key, layer.value, layer.key_mean) for layer in report.layers]
        ladder = report.document()["ladder"]
        assert ladder["grouping"] == "similar" and ladder["calibration"] is None
    for mean, align, merge in zip(*lost.values(), strict=True):
        assert merge[0] <= align[0] <= mean[0] == mean[2] == merge[2]
        assert merge[1] < align[1] < mean[1]


def test_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    one, many = (
        contents(run(tmp_path / "source", tmp_path / str(n), 2, method="merge", workers=n).target)
        for n in (1, 4)
    )
    assert one == many
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "source"]


def test_a_finished_merge_is_found_and_another_one_is_not_it(tmp_path: Path) -> None:
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    first = run(tmp_path / "source", tmp_path / "out", 2, method="merge")
    again = run(tmp_path / "source", tmp_path / "out", 2, method="merge")
    assert again.done_before and again.layers == first.layers
    changes: dict[str, dict[str, Any]] = {
        r"conversion \(--method: merge then, align now\)": {"method": "align"},
        r"\(--grouping: contiguous then, similar now\)": {"method": "merge", "grouping": "similar"},
    }
    for told, options in changes.items():
        with pytest.raises(HeadcountError, match=told):
            run(tmp_path / "source", tmp_path / "out", 2, **options)


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    model = _llama(heads=8, kv=8)
    model.model.layers[1].self_attn.q_proj.weight.data[3, 4] = float("nan")
    model.save_pretrained(tmp_path / "source")
    with pytest.raises(BadValuesError, match=r"layers\.1\.self_attn\.q_proj\.weight.*NaN"):
        run(tmp_path / "source", tmp_path / "out", 2, method="merge")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_plan_says_what_is_not_free(tmp_path: Path) -> None:
    tiny_model("bloom", "causal").save_pretrained(tmp_path / "source")
    request = ConversionRequest(
        source=tmp_path / "source",
        target=tmp_path / "out",
        num_key_value_heads=2,
        method="merge",
        grouping="similar",
    )
    notes = plan_conversion(request).notes
    assert any("neighbouring heads" in note and "ALiBi" in note for note in notes)
    assert not any("keys are weighted" in note for note in notes)


def test_space_for_rewritten_layers_is_asked_for(tmp_path: Path) -> None:
    _llama(heads=8, kv=8).to(torch.bfloat16).save_pretrained(tmp_path / "source")
    plans = [
        plan_conversion(
            ConversionRequest(
                source=tmp_path / "source",
                target=tmp_path / "out",
                num_key_value_heads=2,
                method=method,
            )
        )
        for method in ("mean", "merge")
    ]
    assert plans[0].needed_nbytes == plans[0].total_nbytes == plans[1].total_nbytes
    assert plans[1].needed_nbytes - plans[1].total_nbytes == 2 * 4 * 64 * 64 * 4  # layers q,k,v,o


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--refit", "mlp"], "--refit mlp needs text"),
        (["--quality", "good"], "add --calibration FILE"),
        (["--temperature"], "--temperature needs text"),
        (["--reconstruct", "10", "--method", "merge"], "--reconstruct needs text"),
        (["--method", "first", "--grouping", "similar"], "nothing to work on"),
        (["--calibration", "builtin"], "changes nothing"),
        (["--method", "merge", "--calibration", "no.txt"], "no.txt: no such file; --calibration"),
    ],
)
def test_rungs_that_do_not_go_together(options: list[str], words: str, tmp_path: Path) -> None:
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    command = ["convert", str(tmp_path / "source"), str(tmp_path / "out"), "--kv-heads", "2"]
    result = CliRunner().invoke(main, [*command, *options])
    assert result.exit_code == 2 and words in result.output
    assert not (tmp_path / "out").exists()


def test_cross_attention_is_not_calibrated_without_a_tokenizer(tmp_path: Path) -> None:
    tiny_model("bart", "seq2seq").save_pretrained(tmp_path / "source")
    command = ["convert", str(tmp_path / "source"), str(tmp_path / "out"), "--kv-heads", "2"]
    options = ["--quality", "good", "--calibration", "builtin"]
    result = CliRunner().invoke(main, [*command, *options])
    assert result.exit_code == 2 and "no tokenizer there" in result.output
    assert not (tmp_path / "out").exists()


def test_a_report_tells_what_the_mean_would_lose(tmp_path: Path) -> None:
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", 2, method="merge", grouping="similar")
    shown = conversion_report(report)
    assert [column.title for column in shown.tables[0].columns][-2:] == ["K by mean", "V by mean"]
    words = "merge, similar heads, from the weights alone"
    assert any(fact.value == words for fact in shown.facts)
    for row in shown.tables[0].rows:
        assert 0 < row[3] < row[5] and 0 < row[4] < row[6]  # K and V, each below the mean's


def test_options_come_before_the_quality(tmp_path: Path) -> None:
    _llama(heads=8, kv=8).save_pretrained(tmp_path / "source")
    command = ["convert", str(tmp_path / "source"), str(tmp_path / "out"), "--kv-heads", "2"]
    given = ["--quality", "best", "--refit", "none", "--reconstruct", "0", "--format", "json"]
    result = CliRunner().invoke(main, [*command, *given])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["method"] == "merge"
    assert record["ladder"]["grouping"] == "similar" and record["ladder"]["refit"] == "none"


def _llama(*, heads: int, kv: int, hidden_size: int = 64) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=hidden_size,
        head_dim=8,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).double().eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return model


def _difference(model: Any, target: Path) -> float:
    result = load_whole(target, dtype=torch.float64)
    with torch.no_grad():
        return float((result(TOKENS).logits - model(TOKENS).logits).abs().max())
