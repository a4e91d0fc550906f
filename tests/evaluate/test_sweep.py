"""`convert --sweep`: every trial is a conversion that was evaluated, and one at most is kept."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headcount.cli import main
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.evaluate.sweep.trial import (
    Measured,
    Trial,
    frontier,
    parse_counts,
    parse_methods,
    smallest_within,
)
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
WINDOW = ("--window", 32, "--max-tokens", 96)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def source(save_model: SaveModel) -> Path:
    return save_model("llama", num_attention_heads=4, num_key_value_heads=4)


def test_every_trial_is_what_convert_and_evaluate_say(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    options = ("--text", text_file, *WINDOW, "--format", "json")
    done = run(
        "convert", source, "--sweep", "4,2,1", "--sweep-methods", "mean,first,fast", *options
    )
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    trials = {(t["num_key_value_heads"], t["method"]): t for t in report["trials"]}
    methods = ("mean", "first", "fast")
    assert list(trials) == [(count, method) for count in (2, 1) for method in methods]
    assert (report["chosen"], report["max_delta_loss"]) == (None, None)
    single = tmp_path / "single"
    run("convert", source, single, "--kv-heads", 1, "--method", "first")
    alone = json.loads(run("evaluate", single, "--against", source, "--no-speed", *options).stdout)
    swept = trials[1, "first"]
    assert swept["loss"] == alone["model"]["loss"]
    assert swept["delta_loss"] == alone["delta_loss"]
    assert swept["kl_divergence"] == alone["kl_divergence"]
    assert swept["cache_bytes"] == alone["cache_bytes"]["measured"]
    assert report["original"]["cache_bytes"] == 4 * swept["cache_bytes"]
    assert report["original"]["loss"] == alone["against"]["loss"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "prose.txt", "single"]


def test_heads_and_latents_are_one_table(source: Path, text_file: Path, tmp_path: Path) -> None:
    """Each as `convert` makes it; on the frontier is what no other beats at as many bytes."""
    options = ("--text", text_file, *WINDOW, "--format", "json")
    asked = ("--sweep", "2,1,latent:1/4,latent:16,mla:1/2", "--sweep-methods", "mean,fast")
    done = run("convert", source, *asked, *options)
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    trials = {(t["latent"] or t["num_key_value_heads"], t["method"]): t for t in report["trials"]}
    heads = [(count, method) for count in (2, 1) for method in ("mean", "fast")]
    latents = [(text, "fast") for text in ("latent:1/4", "latent:16", "mla:1/2")]
    assert list(trials) == heads + latents
    for number, (home, size) in enumerate((("latent", "16"), ("mla", "1/2"))):
        single = tmp_path / f"single{number}"
        words = ("--latent", size, "--home", home, "--quality", "fast")
        assert run("convert", source, single, *words).exit_code == 0
        alone = run("evaluate", single, "--against", source, "--no-speed", *options)
        found = json.loads(alone.stdout)
        swept = trials[f"{home}:{size}", "fast"]
        assert swept["delta_loss"] == found["delta_loss"]
        assert swept["cache_bytes"] == found["cache_bytes"]["measured"]
    for one in report["trials"]:
        better = [
            other
            for other in report["trials"]
            if other["cache_bytes"] <= one["cache_bytes"]
            and other["kl_divergence"] < one["kl_divergence"]
        ]
        assert one["frontier"] is (not better)


def test_what_latents_do_not_go_with(source: Path, text_file: Path) -> None:
    for words, said in (
        (("--sweep", "2,latent:1/4", "--sweep-methods", "mean"), "latents are fitted by"),
        (("--sweep", "latent:1/4", "--by-layer"), "--by-layer"),
        (("--sweep", "latent:1/4", "--prune-heads", "1/2"), "--prune-heads"),
        (("--sweep", "2,other:1/4"), "latent:1/4 or mla:1/4"),
        (("--sweep", "2,latent:x"), "no size of a latent"),
    ):
        done = run("convert", source, *words, "--text", text_file, *WINDOW)
        assert done.exit_code == 2 and said in done.stderr, (words, done.stderr)


def test_a_chart_has_a_gap_where_a_method_has_no_trial(source: Path, text_file: Path) -> None:
    options = ("--text", text_file, *WINDOW, "--format", "html", "--sweep-methods", "fast")
    done = run("convert", source, "--sweep", "2,latent:1/4", *options)
    assert done.exit_code == 0, done.stderr
    assert "latents, fast" in done.stdout


def test_pruned_heads_are_one_more_way(source: Path, text_file: Path, tmp_path: Path) -> None:
    """Half of 4 heads leave 2 K/V heads, so that 4 and 2 are one conversion."""
    options = ("--text", text_file, *WINDOW, "--format", "json")
    done = run("convert", source, "--sweep", "4,2,1", "--prune-heads", "0,1/2", *options)
    assert done.exit_code == 0, done.stderr
    trials = {(t["num_key_value_heads"], t["method"]): t for t in json.loads(done.stdout)["trials"]}
    pruned = "mean, 1/2 pruned"
    assert list(trials) == [(2, pruned), (2, "mean"), (1, "mean"), (1, pruned)]
    single = tmp_path / "single"
    run("convert", source, single, "--kv-heads", 1, "--prune-heads", 2)
    alone = json.loads(run("evaluate", single, "--against", source, "--no-speed", *options).stdout)
    assert trials[1, pruned]["loss"] == alone["model"]["loss"]
    refused = run("convert", source, "--sweep", "2", "--prune-heads", "1/2", "--by-layer")
    assert (refused.exit_code, "leave out --prune-heads" in refused.stderr) == (2, True)


def test_the_smallest_cache_within_the_budget_is_kept(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    options = ("--max-delta-loss", 100, "--text", text_file, *WINDOW)
    done = run("convert", source, target, "--sweep", "1,2", *options)
    assert done.exit_code == 0, done.stderr
    assert "1 K/V heads by mean" in done.stdout
    assert json.loads((target / "config.json").read_text())["num_key_value_heads"] == 1
    assert run("audit", target, "--fail-on", "note").exit_code == 0
    again = run("convert", source, target, "--kv-heads", 1)
    assert "already done" in again.stdout
    assert not list(tmp_path.glob(".*"))


def test_nothing_is_kept_where_no_trial_is_within_it(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    options = ("--max-delta-loss", 1e-9, "--text", text_file, *WINDOW)
    done = run("convert", source, target, "--sweep", "2", *options)
    assert done.exit_code == 1
    assert "no conversion adds at most 1e-09 to the loss and has a KL" in done.stderr
    assert "none: nothing was written" in done.stdout
    assert not target.exists() and not list(tmp_path.glob(".*"))


def test_a_layer_alone_adds_what_its_conversion_alone_adds(
    save_model: SaveModel, text_file: Path, tmp_path: Path
) -> None:
    source = save_model("gpt2")
    options = ("--text", text_file, *WINDOW, "--format", "json")
    done = run("convert", source, "--sweep", "2", "--by-layer", *options)
    assert done.exit_code == 0, done.stderr
    layers = json.loads(done.stdout)["layers"]
    assert [layer["index"] for layer in layers] == [0, 1]
    for index in (0, 1):
        alone = tmp_path / f"layer-{index}"
        run("convert", source, alone, "--kv-heads", f"{index}:2", "--quality", "fast")
        scores = run("evaluate", alone, "--against", source, "--no-speed", *options)
        delta = json.loads(scores.stdout)["delta_loss"]
        assert layers[index]["delta_loss"] == pytest.approx(delta, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sweep", "4"), "nothing to compare"),
        (("--sweep", "2,3"), "--kv-heads can be"),
        (("--sweep", "2,x"), "write 8 for all layers"),
        (("--sweep", "2,1/4"), "'1/4': a share is the size of a latent: write latent:1/4 or mla"),
        (("--sweep", "0-1:2"), "a sweep takes numbers of K/V heads"),
        (("--sweep", "2", "--sweep-methods", "mean,best guess"), "is not one of"),
        (("--sweep", "2", "--max-delta-loss", "1"), "give both, or neither"),
        (("--sweep", "2", "--sweep-methods", "mean,first", "--refit", "mlp"), "further rungs"),
        (("--sweep", "2", "--sweep-methods", "mean,fast+text"), "add --calibration FILE"),
        (
            ("--sweep", "2", "--sweep-methods", "mean,fast", "--calibration", "builtin"),
            "name good, or fast+text",
        ),
    ],
)
def test_wrong_sweeps_are_refused(
    source: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("convert", source, *arguments)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("budget", "name", "message"),
    [
        ("nan", "out", "--max-delta-loss nan"),
        ("-0.1", "out", "--max-delta-loss -0.1: no conversion is within it"),
        ("1", "model", "exists; a sweep takes a name"),
    ],
)
def test_a_budget_that_is_none_and_a_target_that_exists_are_refused(
    source: Path, tmp_path: Path, budget: str, name: str, message: str
) -> None:
    done = run("convert", source, tmp_path / name, "--sweep", "2", "--max-delta-loss", budget)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_without_a_list_of_methods_a_sweep_converts_as_its_options_say(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    rungs = ("--refit", "output", "--calibration", "builtin", "--calibration-tokens", "512")
    options = ("--text", text_file, *WINDOW, "--format", "json")
    swept = json.loads(run("convert", source, "--sweep", "2", *rungs, *options).stdout)["trials"]
    run("convert", source, tmp_path / "alone", "--kv-heads", 2, *rungs)
    alone = run("evaluate", tmp_path / "alone", "--against", source, "--no-speed", *options)
    assert [trial["loss"] for trial in swept] == [json.loads(alone.stdout)["model"]["loss"]]


def test_what_reads_text_and_what_reads_the_weights_alone_have_two_names(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    text = ("--calibration", "builtin", "--calibration-tokens", "512")
    options = ("--text", text_file, *WINDOW, "--format", "json")
    named = ("--sweep-methods", "mean,fast,fast+text,good")
    done = run("convert", source, "--sweep", "2", *named, *text, *options)
    assert done.exit_code == 0, done.stderr
    trials = {t["method"]: t for t in json.loads(done.stdout)["trials"]}
    assert {name: t["calibrated"] for name, t in trials.items()} == {
        **{"mean": False, "fast": False, "fast+text": True, "good": True}
    }
    for name, given in (("fast", ()), ("fast+text", text)):
        target = tmp_path / name
        converted = run("convert", source, target, "--kv-heads", 2, "--quality", "fast", *given)
        said = "tokens of builtin" if given else "merge, similar heads, from the weights alone"
        assert said in converted.stdout
        record = json.loads((target / "conversion.json").read_text())
        assert record["request"]["calibrated"] is bool(given)
        card = "calibrated on a text" if given else "from the weights alone"
        assert card in (target / "README.md").read_text()
        alone = run("evaluate", target, "--against", source, "--no-speed", *options)
        assert trials[name]["loss"] == json.loads(alone.stdout)["model"]["loss"]
    assert trials["fast"]["loss"] != trials["fast+text"]["loss"]
    unnamed = ("convert", source, "--sweep", "2", "--quality", "fast", *text, *options)
    only = json.loads(run(*unnamed).stdout)["trials"]
    assert [(t["method"], t["loss"]) for t in only] == [("fast+text", trials["fast+text"]["loss"])]


def test_counts_and_methods_are_read_as_people_write_them() -> None:
    assert parse_counts("1, 8,4,8") == (8, 4, 1)
    assert parse_methods("mean, first,mean", ("first", "mean")) == ("mean", "first")
    with pytest.raises(HeadcountError, match="'best' is not one of first, mean"):
        parse_methods("best", ("first", "mean"))


@pytest.fixture
def one(source: Path, tmp_path: Path) -> Measured:
    """A trial whose loss tells more than its divergence."""
    request = ConversionRequest(source=source, target=tmp_path / "b", num_key_value_heads=2)
    trial = Trial(num_key_value_heads=2, method="mean", plan=plan_conversion(request))
    return Measured(
        trial=trial,
        num_key_value_heads=2,
        loss=3.0,
        delta_loss=0.5,
        kl_divergence=0.1,
        top1_agreement=0.9,
        cache_bytes=100,
        cache_tokens=10,
    )


def test_of_equal_caches_the_one_that_diverges_least_is_chosen(one: Measured) -> None:
    better = replace(one, kl_divergence=0.05)
    smaller = replace(one, cache_bytes=50, delta_loss=0.6)
    lucky = replace(one, delta_loss=-0.4, kl_divergence=0.2)
    assert smallest_within([one, better, lucky, smaller], 0.5) is better
    assert smallest_within([one, better, smaller], 0.6) is smaller
    assert smallest_within([replace(one, trial=None)], 1.0) is None


def test_a_lower_loss_hides_no_divergence_from_the_budget_and_the_frontier(one: Measured) -> None:
    """Figures of docs-llama-mha on a text that does not suit it, a quarter of the cache each."""
    sound = replace(one, delta_loss=0.0004, kl_divergence=0.0013)
    damaged = replace(one, delta_loss=-0.0371, kl_divergence=0.1542)
    larger = replace(damaged, cache_bytes=200)
    assert smallest_within([damaged, sound], 0.01) is sound
    assert smallest_within([damaged], 0.1) is None
    assert smallest_within([damaged], 0.16) is damaged
    assert frontier([larger, damaged, sound]) == [sound]
    smaller = replace(damaged, cache_bytes=50)
    assert frontier([sound, smaller]) == [sound, smaller]


def test_what_is_wrong_with_the_text_is_said_as_evaluate_says_it(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    """A random model is worse than the frequencies of the tokens."""
    single = tmp_path / "single"
    run("convert", source, single, "--kv-heads", 2)
    for tokens, words in ((1200, "the frequencies of the tokens alone"), (90, "only 90 tokens")):
        options = ("--window", 32, "--max-tokens", tokens, "--format", "json")
        probes = ("--no-speed", "--no-roles", "--behaviour", "none")
        alone = run("evaluate", single, "--against", source, *probes, *options)
        swept = run("convert", source, "--sweep", "2", *options)
        (warning,) = json.loads(swept.stdout)["warnings"]
        assert words in warning and json.loads(alone.stdout)["warnings"] == [warning]
        assert swept.stderr.count(f"Warning: {warning}") == 1
        assert alone.stderr == f"Warning: {warning}\n"


def test_one_text_to_fit_to_and_to_measure_on_is_warned_of(
    source: Path, text_file: Path, tmp_path: Path
) -> None:
    text_file.write_text(text_file.read_text() * 20)
    linked, other = tmp_path / "linked.txt", tmp_path / "other.txt"
    linked.symlink_to(text_file)
    other.write_text(text_file.read_text())
    fitted = ("--quality", "good", "--calibration", text_file, "--calibration-tokens", 256)
    for measured, twice in ((linked, 1), (other, 0)):
        options = ("--text", measured, "--window", 32, "--max-tokens", 200, "--format", "json")
        swept = run("convert", source, "--sweep", "2", *fitted, *options)
        assert swept.exit_code == 0, swept.stderr
        told = [one for one in json.loads(swept.stdout)["warnings"] if "both" in one]
        words = f"Warning: {text_file}: both --calibration and --text"
        assert (len(told), swept.stderr.count(words)) == (twice, twice)
        target = tmp_path / f"out{twice}"
        probes = ("--evaluate", "--behaviour", "none", "--no-speed", "--no-roles")
        alone = run("convert", source, target, "--kv-heads", 2, *fitted, *probes, *options)
        found = json.loads(alone.stdout)["evaluation"]["warnings"]
        assert alone.stderr.count(words) == twice  # before the work, by the names of the files
        said = f"{measured}: the model was fitted to it"  # after it, by what they hold
        assert sum(said in one for one in found) == alone.stderr.count(said) == 1


def test_a_screen_of_80_columns_shows_what_each_keeps_and_how_far_it_diverges(
    source: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("--sweep", "2,1,latent:1/4,mla:1/2", "--sweep-methods", "fast")
    done = run("convert", source, *asked, "--text", text_file, *WINDOW)
    lines = done.stdout.splitlines()
    head = next(line for line in lines if line.startswith("Kept"))
    assert all(title in head for title in ("Method", "Cache", "KL", "Top-1", "Frontier"))
    assert max(map(len, lines)) <= 80
    for kept in ("4 heads", "2 heads", "1 head ", "latent 1/4", "mla 1/2"):
        assert sum(line.startswith(kept) for line in lines) == 1, kept


def test_records_have_what_was_asked_for_in_columns_of_its_own(
    source: Path, text_file: Path
) -> None:
    options = ("--text", text_file, *WINDOW, "--format", "csv", "--sweep-methods", "fast")
    done = run("convert", source, "--sweep", "2,latent:1/4", *options)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    found = [(row["kv_heads"], row["latent"], row["method"]) for row in rows]
    assert found == [("4", "", "original"), ("2", "", "fast"), ("", "latent:1/4", "fast")]


def test_charts_mark_the_frontier_in_each(source: Path, text_file: Path) -> None:
    """At the bytes of a token, with the value that the chart is of."""
    options = ("--text", text_file, *WINDOW, "--sweep-methods", "mean,fast")
    asked = ("convert", source, "--sweep", "2,1", *options)
    report = json.loads(run(*asked, "--format", "json").stdout)
    best = [one for one in report["trials"] if one["frontier"]]
    page = run(*asked, "--format", "html").stdout
    charts = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)
    keys = ("kl_divergence", "delta_loss", "top1_agreement")
    assert len(charts) == len(keys)
    for key, text in zip(keys, charts, strict=True):
        (marks,) = (one for one in json.loads(text)["data"] if one["mode"] == "markers")
        assert marks["name"] == "frontier"
        scale = 100 if key == "top1_agreement" else 1
        expected = {one["cache_bytes"] / one["cache_tokens"]: scale * one[key] for one in best}
        found = {x: y for x, y in zip(marks["x"], marks["y"], strict=True) if y is not None}
        assert found == pytest.approx(expected, abs=1e-4)
