"""Hardware that serves: devices, pipelines, replicas, costs, and what is sure of it."""

import json
import re
from math import ceil
from pathlib import Path

import pytest

from headcount.plan.devices import all_devices, find_device
from headcount.plan.report.hardware import hundredths
from plan_runs import document, engine, run

GIB = 2**30


def test_devices_are_those_of_all_stages() -> None:
    """627 GiB of DeepSeek-V3 do not fit on 8 x 79.18 GiB x 0.92 = 583."""
    found = engine(
        *("deepseek-v3", "--target-users", "16", "--context", "8k"),
        *("--device", "h100", "--pp", "2"),
    )
    (least,) = found["smallest"]
    assert (least["tp"], least["pp"], least["replicas"], least["devices"]) == (8, 2, 1, 16)
    assert found["devices"] == 16
    assert least["total_memory"] == 16 * 80 * GIB
    assert {option["pp"] for option in found["options"]} == {2}


def test_a_pipeline_is_found_where_a_machine_does_not_suffice() -> None:
    result = run("deepseek-v3", "--target-users", "4", "--context", "4k", "--device", "h100")
    assert "fits on 16 x h100: least memory (4 requests at once, vllm " in result.stdout
    assert "16 x NVIDIA H100 SXM5 80GB (tp 8 x pp 2)" in result.stdout
    assert "--pipeline-parallel-size 2" in result.stdout


def test_a_plan_that_only_may_fit_is_offered_what_surely_does() -> None:
    """At the longest context that fits by the estimates, which err either way."""
    base = ("qwen3-8b", "--engine", "vllm", "--device", "a100-40gb", "--batch-size", "4")
    most = engine(*base)["max_context"]
    found = engine(*base, "--context", str(most))
    assert (found["fits"], found["verdict"]) == (True, "borderline")
    assert {change["verdict"] for change in found["changes"]} == {"fits"}
    change = found["smallest_change"]
    assert change["change"] == "utilisation"
    sure = engine(*base, "--context", str(most), "--utilisation", str(change["value"]))
    assert (sure["verdict"], sure["changes"]) == ("fits", [])
    assert "Surely fits with" in run(*base, "--context", str(most)).stdout


@pytest.mark.parametrize(
    ("args", "notes"),
    [(("--tp", "8"), 0), (("--tp", "16"), 2), (("--tp", "8", "--pp", "2"), 1)],
)
def test_more_devices_than_a_machine_has_are_said(args: tuple[str, ...], notes: int) -> None:
    """A DGX H100, and its like, has 8."""
    found = engine("llama-3-70b", "--engine", "vllm", "--device", "h100", *args)["notes"]
    said = [note for note in found if "machine" in note]
    assert len(said) == notes
    assert not notes or said[0].startswith("16 devices are more than the 8 of one machine: vllm")
    assert notes < 2 or "tp 8 with --pp 2 keeps that within one" in said[1]


USERS = ("qwen3-32b", "--context", "32k", "--engine", "vllm", "--device", "h200", "--tp", "2")


def test_replicas_are_as_many_as_serve_all_users_if_the_estimates_err() -> None:
    """Qwen3-32B caches 262,144 B a token: a request of 32,768 tokens takes 4 GiB of each of 2
    ranks, in 2,048 blocks of 2 MiB. One block of all is never used."""
    alone = engine(*USERS)
    blocks = alone["available_kv_low"] // (16 * 131_072) - 1
    each = blocks // 2048
    found = engine(*USERS, "--target-users", "64")
    option = next(o for o in found["options"] if (o["tp"], o["pp"]) == (2, 1))
    assert option["replicas"] == ceil(64 / each) > 1
    assert option["devices"] == 2 * option["replicas"]
    assert option["batch_size"] == ceil(64 / option["replicas"]) <= each
    assert option["verdict"] == "fits"
    assert option["available_kv_bytes"] == alone["available_kv_bytes"]


def test_what_runs_at_once_is_no_more_than_the_engine_is_told() -> None:
    """64 requests of 2,048 tokens fit many times; with 24 sequences a step, 24 of them run."""
    args = ("qwen3-8b", "--device", "h200", "--context", "2k", "--max-num-seqs", "24")
    one = document(*args, "--batch-size", "24", "--require", "fits")
    assert one["engine"]["holds"] and one["limits"]["max_batch_size"] == 24
    assert one["engine"]["max_concurrency"] == 24 < 100 < one["engine"]["concurrency"]
    over = run(*args, "--batch-size", "25", "--require", "fits,concurrency>=25")
    assert over.exit_code == 1
    assert "does not fit: 24 of 25 requests run at once" in over.stdout
    assert "Would fit with  " in over.stdout and "25 sequences a step" in over.stdout
    assert "concurrency>=25: 24" in over.stderr
    searched = engine(*args, "--target-users", "64")
    assert searched["smallest"][0]["replicas"] == 3


def test_slots_that_are_given_are_those_of_the_command() -> None:
    """llama-server with 2 slots lets 6 of 8 requests wait."""
    args = ("qwen3-8b", "--engine", "llama.cpp", "--device", "h100", "--context", "4k")
    few = engine(*args, "--parallel", "2", "--batch-size", "8")
    assert (few["fits"], few["verdict"], few["max_concurrency"]) == (False, "does not fit", 2)
    assert "-c 8192 --parallel 2" in few["launch_command"]
    change = few["smallest_change"]
    assert (change["change"], change["value"]) == ("parallel", 8)
    enough = engine(*args, "--parallel", "8", "--batch-size", "8")
    assert enough["fits"] and "-c 32768 --parallel 8" in enough["launch_command"]
    searched = engine(*args, "--parallel", "2", "--target-users", "8")
    assert searched["smallest"][0]["replicas"] == 4


def test_a_search_tells_the_engine_to_run_more_sequences_than_by_itself() -> None:
    """A request of 512 tokens takes 112 KiB x 512 = 56 MiB: the 70 GiB that are left of 80 hold
    1,280 of them, of which by itself vLLM runs 256 (default_max_num_seqs of an A100). It takes no
    more sequences than tokens of a step, 2,048 there (SchedulerConfig of vllm/config/scheduler.py):
    three engines for 5,000."""
    args = ("qwen3-0.6b", "--engine", "vllm", "--device", "a100-80gb")
    found = engine(*args, "--context", "512", "--target-users", "700")
    assert (found["devices"], found["replicas"], found["verdict"]) == (1, 1, "fits")
    assert "--max-num-seqs 700" in found["launch_command"]
    many = engine(*args, "--context", "64", "--target-users", "5000")
    assert (many["replicas"], many["batch_size"]) == (3, 1667)
    assert "--max-num-seqs 1667" in many["launch_command"]
    few = engine(*args, "--context", "512", "--target-users", "200")
    assert "--max-num-seqs" not in few["launch_command"]
    asked = engine(*args, "--context", "512", "--target-users", "700", "--max-num-seqs", "350")
    assert asked["replicas"] == 2
    batch = engine(*args, "--device", "a100-80gb,t4", "--context", "512", "--batch-size", "700")
    assert batch["verdict"] == "fits" and "--max-num-seqs 700" in batch["launch_command"]


def test_more_sequences_than_tokens_of_a_step_are_refused() -> None:
    """verify_max_model_len of vllm/config/scheduler.py; the default is lowered since 0.10.2
    (_set_default_args of vllm/engine/arg_utils.py), before which such a start failed."""
    args = ("qwen3-0.6b", "--device", "h100", "--context", "1k", "--max-num-batched-tokens", "512")
    over = engine(*args, "--max-num-seqs", "513")
    assert over["verdict"] == "does not start"
    assert engine(*args, "--max-num-seqs", "512")["verdict"] == "fits"
    assert engine(*args)["max_concurrency"] == 512
    assert engine(*args, "--engine-version", "0.9.2")["verdict"] == "does not start"


def test_an_engine_runs_no_more_at_once_than_by_its_default() -> None:
    """256 on a device of 40 GB (vLLM), however short the requests."""
    args = ("qwen3-0.6b", "--engine", "vllm", "--device", "a100-40gb", "--context", "64")
    assert engine(*args, "--batch-size", "256")["fits"]
    over = engine(*args, "--batch-size", "300")
    assert not over["fits"]
    assert over["smallest_change"] == {
        **over["smallest_change"],
        **{"change": "max_num_seqs", "value": 300},
    }
    assert "--max-num-seqs 300" in run(*args, "--max-num-seqs", "300").stdout


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        # Weights of 15.27 GiB; the limits are those of the plan of one request, less its bars.
        (("--context", "8k"), "fits"),
        (("--context", "40k", "--batch-size", "3"), "fits"),
        (("--context", "40k", "--batch-size", "9"), "does not fit"),
    ],
)
def test_a_verdict_beyond_the_error_is_sure(args: tuple[str, ...], verdict: str) -> None:
    found = document("qwen3-8b", "--engine", "vllm", "--device", "a100-40gb", *args)
    assert found["verdict"] == found["engine"]["verdict"] == verdict


def test_a_verdict_within_its_error_is_borderline() -> None:
    """The context at which a request takes what is left by the estimates: more is left if they err
    one way, less if they err the other."""
    base = ("qwen3-8b", "--engine", "vllm", "--device", "a100-40gb", "--batch-size", "4")
    most = engine(*base)["max_context"]
    for context, fits in ((most, True), (most + 16, False)):
        args = (*base, "--context", str(context))
        found = document(*args)
        left = found["memory"]["free_bytes"]
        error = found["engine"]["available_kv_high"] - found["engine"]["available_kv_bytes"]
        assert -error < left < error
        assert (found["fits"], found["verdict"]) == (fits, "borderline")
        required = run(*args, "--require", "fits")
        assert required.exit_code == 1
        assert "borderline: 4 of " in required.stdout
        assert "fits: borderline" in required.stderr


def test_a_requirement_is_judged_by_what_is_left_if_the_estimates_err() -> None:
    base = ("qwen3-8b", "--engine", "vllm", "--device", "a100-40gb", "--context", "32k")
    found = engine(*base)
    low = found["available_kv_low"] / (32_768 * 147_456)
    sure, unsure = f"{low - 0.02:.2f}", f"{(low + found['concurrency']) / 2:.2f}"
    assert run(*base, "--require", f"concurrency>={sure}").exit_code == 0
    (held,) = engine(*base, "--require", f"concurrency>={unsure}")["requirements"]
    assert held["found"] > float(unsure) > held["low"] == pytest.approx(low, rel=0.001)
    assert not held["holds"]


def test_requirements_choose_what_is_offered() -> None:
    args = ("qwen3-8b", "--context", "32k", "--require", "concurrency>=40")
    result = run(*args, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)["engine"]
    assert found["holds"]
    offered = found["smallest"]
    assert offered and all(option["concurrency"] >= 40 for option in offered)
    assert {option["device"] for option in offered} < {o["device"] for o in found["options"]}


def test_nothing_that_suffices_is_said_on_stderr() -> None:
    result = run("qwen3-8b", "--context", "32k", "--require", "concurrency>=4000")
    assert result.exit_code == 1
    assert "no device of the table suffices" in result.stdout
    assert result.stderr.startswith("Does not hold: concurrency>=4000: ")
    assert "the nearest to it" in result.stderr
    best = max(
        option["concurrency"]
        for option in engine("qwen3-8b", "--context", "32k", "--require", "concurrency>=4000")[
            "options"
        ]
    )
    assert f"{best:,.2f}"[:3] in result.stderr


def test_a_search_is_over_what_the_engine_runs_on() -> None:
    left_out = {
        *("p100", "v100-16gb", "v100-32gb", "inferentia2", "trainium", "trainium2", "gaudi-2"),
        *("gaudi-3", "m2-ultra-192gb", "m3-ultra-512gb"),
        *(d.key for d in all_devices() if d.key.startswith(("tpu-", "m3-max", "m4-max"))),
    }
    result = run("qwen3-8b", "--target-users", "4", "--context", "4k", "--format", "json")
    found = json.loads(result.stdout)
    searched = {option["device"] for option in found["engine"]["options"]}
    assert {device.key for device in all_devices()} - searched == left_out
    (note,) = [note for note in found["assumptions"] if note.startswith("Not searched")]
    assert all(key in note for key in left_out)
    older = engine("qwen3-8b", "--engine-version", "0.14.0")
    assert "v100-32gb" in {option["device"] for option in older["options"]}


def test_several_devices_are_searched_and_no_others() -> None:
    found = document("llama-3-8b", "--device", "h100,MI300X,40GiB", "--context", "8k")
    assert [row["device"] for row in found["devices"]] == ["h100", "mi300x", "40GiB"]
    assert [row["fits"] for row in found["devices"]] == [True, True, True]
    both = engine("llama-3-8b", "--device", "h100,l4", "--target-users", "2", "--context", "8k")
    assert {option["device"] for option in both["options"]} == {"h100", "l4"}
    assert both["smallest"][0]["device"] == "l4"
    bad = run("llama-3-8b", "--device", "h100,l4", "--kv-memory", "3GiB")
    assert bad.exit_code == 2 and "leave out --kv-memory" in bad.output


def prices(path: Path, text: str, name: str = "prices.csv") -> str:
    file = path / name
    file.write_text(text, encoding="utf-8")
    return str(file)


SERVED = ("qwen3-32b", "--target-users", "64", "--context", "32k", "--device", "h200,b200,h100")


@pytest.mark.parametrize(
    "text",
    [
        "name,price\nH200,2\nb200, 30.5\n",
        "device,usd per hour\nH200,2\nb200, 30.5\n",
        "b200,30.5\n\nh200-sxm,2",
        '{"h200": 2, "b200": 30.5}',
        '[{"name": "h200", "price": 2}, {"name": "B200", "price": "30.5"}]',
    ],
)
def test_prices_choose_and_add_up(tmp_path: Path, text: str) -> None:
    found = engine(*SERVED, "--prices", prices(tmp_path, text))
    assert [option["device"] for option in found["smallest"]] == ["h200", "b200", "h100"]
    first, second, last = found["smallest"]
    assert first["an_hour"] == 2 * first["devices"]
    assert second["an_hour"] == 30.5 * second["devices"]
    assert second["a_month"] == pytest.approx(30.5 * second["devices"] * 365 * 24 / 12)
    assert (last["an_hour"], last["a_month"]) == (None, None)
    dear = run(*SERVED, "--prices", prices(tmp_path, "h200,900\nb200,1\nh100,3\n"))
    assert "fits on 4 x b200: least cost" in dear.stdout
    assert "4.00 (2,920.00 a month)" in dear.stdout


def test_a_card_that_is_two_devices_is_paid_once(tmp_path: Path) -> None:
    """61.02 GiB of Qwen3-32B in bfloat16 do not fit in the 63.98 GiB x 0.92 of one GCD: two, which
    are one card of 128 GiB. An 8B model fits on one GCD; its card is paid all the same, and two
    replicas, one on each, cost no more."""
    given = ("--device", "mi250x", "--prices", prices(tmp_path, "mi250x,3\n"))
    found = engine("qwen3-32b", "--target-users", "8", "--context", "16k", *given)
    (least,) = found["smallest"]
    assert (least["tp"], least["devices"], least["cards"]) == (2, 2, 1)
    assert (least["an_hour"], least["total_memory"]) == (3.0, 128 * GIB)
    alone = engine("qwen3-8b", "--context", "16k", "--engine", "vllm", *given)
    assert (alone["devices"], alone["cards"], alone["an_hour"]) == (1, 1, 3.0)
    split = engine("qwen3-8b", "--target-users", "20", "--context", "16k", *given)["options"]
    pair = next(n for n in split if (n["tp"], n["replicas"]) == (1, 2))
    assert (pair["devices"], pair["cards"], pair["an_hour"]) == (2, 1, 3.0)


def test_one_plan_has_its_cost_too(tmp_path: Path) -> None:
    args = ("llama-3-70b", "--device", "h100", "--tp", "4", "--context", "8k")
    given = ("--prices", prices(tmp_path, "h100,2.5\n"))
    assert "10.00 (7,300.00 a month)" in run(*args, *given).stdout
    text = run("llama-3-70b", "--device", "h100,l4", "--context", "8k", *given).stdout
    assert "Cost an hour" not in text and "5.00" in text  # 2 x H100, in the table
    rows = document("llama-3-70b", "--device", "h100,l4", "--context", "8k", *given)["devices"]
    assert [(row["smallest_tp"], row["an_hour"]) for row in rows] == [(2, 5.0), (8, None)]
    found = engine(*args, *given, "--engine", "vllm", "--pp", "2")
    assert (found["devices"], found["an_hour"], found["a_month"]) == (8, 20.0, 14_600.0)
    assert run("llama-3-8b", "--kv-memory", "9GiB", *given).exit_code == 2
    assert run("llama-3-8b", "--target-users", "9", "--batch-size", "2").exit_code == 2


def test_without_prices_nothing_is_said_of_cost() -> None:
    result = run(*SERVED)
    assert "A month" not in result.stdout and "cost" not in result.stdout
    assert "an_hour" not in engine(*SERVED)["options"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h1000,2\n", "no device is named 'h1000'"),
        ("h200,cheap\n", "the price of h200 is 'cheap'"),
        ("h200,-1\n", "the price of h200 is '-1'"),
        ("h200,nan\n", "the price of h200 is 'nan'"),
        ("h200,1\nh200-sxm,2\n", "h200 has two prices"),
        ("h200,1,2\n", "a row NAME,PRICE"),
        ("", "has no price"),
        ("name,price\n", "has no price"),
        ('{"h200": true}', "the price of h200 is True"),
        ('{"h200": ', "not JSON"),
        ('{"h200": 1, "h200": 2}', "stands twice"),
        ("[1]", "entry 1 is none"),
        ("a heading, and\nhidden=word,too\n", "a row has neither"),
        ("h200,2\nroot:x:0:0\n", "row 2 is none"),
        ('[{"name": "h200"}]', "NAME,PRICE"),
        ("[]", "has no price"),
        ("h200," + "9" * 400, "a number is meant"),
    ],
)
def test_prices_that_cannot_be_read_are_told(tmp_path: Path, text: str, words: str) -> None:
    result = run(*SERVED, "--prices", prices(tmp_path, text))
    assert result.exit_code == 2
    assert words in result.output
    assert "root:x" not in result.output and "hidden" not in result.output  # any file may be named
    assert run(*SERVED, "--prices", str(tmp_path / "none.csv")).exit_code == 2


MODELS = ("qwen3-32b", "gpt-oss-120b", "--target-users", "64", "--context", "32k")


def test_several_models_are_one_document() -> None:
    found = document(*MODELS, "--device", "h100,mi300x")
    assert list(found) == ["schema_version", "hardware", "plans"]
    alone = document("gpt-oss-120b", *MODELS[2:], "--device", "h100,mi300x")
    assert found["plans"][1] == alone
    rows = [(row["model"], row["device"]) for row in found["hardware"]]
    assert sorted(rows) == sorted(
        (model, device)
        for model in ("Qwen/Qwen3-32B", "openai/gpt-oss-120b")
        for device in ("h100", "mi300x")
    )
    for row in found["hardware"]:
        assert row["devices"] == row["tp"] * row["pp"] * row["replicas"]
        assert row["total_memory"] == row["devices"] * find_device(row["device"]).memory


def test_several_models_are_one_table() -> None:
    result = run(*MODELS, "--device", "h100,mi300x", "--format", "csv")
    header, *rows = result.stdout.splitlines()
    assert header.split(",")[:5] == ["report", "model", "device", "devices", "verdict"]
    assert len(rows) == 4
    page = run(*MODELS, "--device", "h100,mi300x", "--format", "html").stdout
    assert page.count("<!DOCTYPE html>") == 1
    assert "<h1>Plan of 2 models for 64 requests of 32,768 tokens at once, vllm " in page
    assert page.count("<h1>Plan of ") == 3
    assert '<a href="#report-2">' in page and '<section id="report-2">' in page


def test_the_whole_table_shows_the_best_of_each_model() -> None:
    found = document("qwen3-0.6b", "gpt2", "--target-users", "4", "--context", "1k")
    models = [row["model"] for row in found["hardware"]]
    assert {models.count(model) for model in set(models)} == {6}


def test_one_device_and_no_search_are_a_table_too() -> None:
    found = document("llama-3-8b", "llama-3-70b", "--device", "h100", "--context", "8k")
    assert [row["verdict"] for row in found["hardware"]] == ["fits", "does not fit"]
    assert "engine" not in found["plans"][0]


def test_a_model_that_cannot_be_planned_leaves_the_others() -> None:
    result = run("llama-3-8b", "no-such-model", "--device", "h100", "--format", "json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["plans"][0]["fits"] and "error" in found["plans"][1]
    assert "no-such-model" in result.stderr
    shown = run("llama-3-8b", "no-such-model", "--device", "h100").stdout
    assert "'no-such-model' is no model of the catalogue" in shown


def test_a_batch_of_a_replica_is_what_surely_fits() -> None:
    """4.56 fit by the estimate, and 3.86 surely: a fourth is not counted on."""
    words = ("deepseek-v3", "--target-users", "16", "--device", "h100", "--pp", "2")
    batch, sure, estimated = re.findall(
        r"Batch size +(\d+) \(of each replica: ([\d.]+) surely fit, ([\d.]+) as estimated\)",
        run(*words).stdout,
    )[0]
    found = engine(*words)
    assert float(estimated) == round(found["concurrency"], 2)
    assert int(batch) <= float(sure) < int(batch) + 1 < float(estimated)
    assert found["replicas"] * int(batch) >= 16 > 5 * int(batch)


@pytest.mark.parametrize(
    ("args", "sure", "perhaps", "ends"),
    [
        # vLLM's plan of the same start alone says 18.54 to 21.34 of 20 requests
        (("deepseek-v3", "--device", "h100,h200"), 24, ("h200", 8), (18.54, 21.34)),
        (("llama-3.1-70b", "--device", "rtx-pro-6000"), 8, ("rtx-pro-6000", 4), (19.99, 21.07)),
    ],
)
def test_less_that_is_borderline_is_said(
    args: tuple[str, ...], sure: int, perhaps: tuple[str, int], ends: tuple[float, float]
) -> None:
    asked = (*args, "--context", "32k", "--target-users", "20")
    found = engine(*asked)
    assert (found["devices"], found["verdict"]) == (sure, "fits")
    less = found["perhaps"]
    assert (less["device"], less["cards"], less["verdict"]) == (*perhaps, "borderline")
    assert (less["concurrency_low"], less["concurrency_high"]) == ends
    screen = run(*asked).stdout
    words = f"Borderline +{less['cards']} x {less['device']} .tp {less['tp']}: "
    assert re.search(f"{words}{ends[0]:.2f} to {ends[1]:.2f} of 20 requests", screen)
    (row,) = [row for row in document(*asked)["hardware"] if row["device"] == less["device"]]
    assert row["verdict"] == "fits" and row["cards"] > row["perhaps"]["cards"]


def test_what_is_borderline_has_its_cost(tmp_path: Path) -> None:
    """4 of them at 2.1 an hour, where 8 surely serve."""
    prices = tmp_path / "prices.csv"
    prices.write_text("rtx-pro-6000,2.1\n")
    asked = ("llama-3.1-70b", "--context", "32k", "--target-users", "20")
    asked = (*asked, "--device", "rtx-pro-6000", "--prices", str(prices))
    found = engine(*asked)
    assert (found["an_hour"], found["perhaps"]["an_hour"]) == (16.8, 8.4)
    assert "requests, 8.40 an hour)" in run(*asked).stdout


def test_nothing_is_said_where_less_surely_does_not_serve() -> None:
    """16 GB of weights at 16 bit are on one card of 24 GB or on none."""
    found = engine("llama-3-8b", "--device", "rtx-4090", "--target-users", "2", "--context", "2k")
    assert (found["devices"], found["perhaps"]) == (1, None)


def test_several_tp_are_a_row_each_and_the_least_that_fits_is_named() -> None:
    """131.42 GiB of weights at 16 bit: one H100 has 79.18 GiB, and two of them 72.85 GiB each to
    plan with, of which 65.7 are weights, 5 the cache of a request of 32k and 5 the rest."""
    asked = ("llama-3.1-70b", "--device", "h100", "--context", "32k", "--tp", "8,1,2,4")
    found = document(*asked)
    rows = {row["tp"]: row["verdict"] for row in found["hardware"]}
    assert rows == {1: "does not fit", 2: "does not fit", 4: "fits", 8: "fits"}
    assert (found["engine"]["tp"], found["engine"]["devices"]) == (4, 4)
    assert {option["pp"] for option in found["engine"]["options"]} == {1}
    text = run(*asked).stdout
    assert "fits on 4 x h100: least memory (one request at once, tp 1, 2, 4 or 8, vllm " in text
    assert len(re.findall(r"^h100 +[1248] ", text, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("tp", "more", "words"),
    [
        ("1,x", (), "'x' is not a valid integer"),
        ("0,1", (), "0 is not in the range"),
        ("1,3", (), "tp 3 does not split"),
        ("1,2", ("--engine", "generic"), "several --tp are compared as an engine serves them"),
        ("1,2", ("--kv-memory", "8GiB", "--engine", "vllm"), "leave out --kv-memory"),
    ],
)
def test_several_tp_that_cannot_be_compared_are_told(
    tp: str, more: tuple[str, ...], words: str
) -> None:
    device = () if "--kv-memory" in more else ("--device", "h100")
    refused = run("llama-3-8b", *device, "--tp", tp, *more)
    assert refused.exit_code == 2
    assert words in refused.stderr


@pytest.mark.parametrize("text", ["4xh100", "4 x h100", "h100x4", "h100 x 4", "4*H100"])
def test_a_count_of_devices_is_a_tp(text: str) -> None:
    asked = document("llama-3-8b", "--device", text)["request"]
    assert (asked["device"], asked["tp"]) == ("h100", 4)


def test_a_count_goes_with_one_device_and_one_number() -> None:
    assert document("gpt2", "--device", "rtx5080")["request"]["device"] == "rtx-5080"
    assert document("llama-3-8b", "--device", "2x80GiB")["request"]["tp"] == 2
    for args in (("4xh100", "--tp", "2"), ("4xh100", "--pp", "2", "--engine", "vllm")):
        refused = run("llama-3-8b", "--device", *args)
        assert refused.exit_code == 2 and "is --device h100 --tp 4" in refused.stderr
    assert document("llama-3-8b", "--device", "4xh100", "--tp", "4")["request"]["tp"] == 4
    refused = run("llama-3-8b", "--device", "4xh100,h200")
    assert refused.exit_code == 2 and "--device h100,... --tp 4" in refused.stderr


def test_a_search_says_that_tp_is_the_least_it_tries() -> None:
    asked = ("llama-3.1-70b", "--device", "h100", "--context", "32k", "--target-users", "20")
    text = run(*asked, "--tp", "4").stdout
    assert "fits on 8 x h100: least memory (20 requests at once, tp 4 or more, vllm " in text
    assert "or more" not in run(*asked).stdout


@pytest.mark.parametrize(
    ("arguments", "said", "more"),
    [
        (("llama-3-70b", "--device", "h100"), "2 devices (tensor parallel, --tp 2)", ("--tp", "2")),
        (
            ("llama-3-8b", "--device", "l4", "--batch-size", "5"),
            "a context of 6,093 tokens",
            ("--context", "6093"),
        ),
    ],
)
def test_without_an_engine_too_it_is_said_what_would_fit(
    arguments: tuple[str, ...], said: str, more: tuple[str, ...]
) -> None:
    over = run(*arguments).stdout
    assert "does not fit" in over and f"Would fit with      {said}" in over
    then = run(*arguments, *more).stdout
    assert "Verdict: fits" in then and "Would fit with" not in then
    assert "Would fit with" not in run("llama-3-70b").stdout  # no device, nothing to fit


def test_what_would_hardly_do_is_offered_last_and_no_start_that_fails() -> None:
    base = ("llama-3.1-70b", "--engine", "vllm", "--device", "h100", "--tp", "2")
    over = run(*base, "--context", "32k").stdout
    assert "does not fit: 0.35 of 1 requests" in over and "Start with" not in over
    offered = engine(*base, "--context", "32k")["changes"]
    assert [change["change"] for change in offered] == ["tp", "dtype", "context"]
    assert offered[-1]["value"] * 4 < 32 * 1024
    fits = run(*base[:-1], "4", "--context", "32k").stdout
    assert "Verdict: fits" in fits and "Start with" in fits


def test_what_was_not_measured_on_rocm_is_wide_and_says_so() -> None:
    """Two devices take no less than one does, in two logs on MI300X."""
    base = ("llama-3.1-70b", "--engine", "vllm", "--device", "mi325x", "--context", "8k", "--tp")
    one, two = (
        next(term for term in engine(*base, tp)["budget"] if term["key"] == "non_torch")
        for tp in ("1", "2")
    )
    assert two["bytes"] > one["bytes"] and two["error_bytes"] > one["error_bytes"]
    assert "MI300X" in one["source"] and "not measured with tp on ROCm" in two["source"]


def test_nearly_enough_is_not_rounded_to_enough() -> None:
    assert [hundredths(n, 20) for n in (19.998, 20.0, 13.946, 20.996)] == [19.99, 20, 13.95, 21.0]
    base = ("llama-3.1-70b", "--engine", "vllm", "--device", "rtx-pro-6000", "--tp", "4")
    said = run(*base, "--context", "32k", "--batch-size", "20").stdout
    assert "borderline: 20 of 20.54 possible requests, 19.99 to 21.07" in said
