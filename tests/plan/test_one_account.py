"""One planner: an engine that one value makes is planned, and no document holds two answers."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.budget import Budget, Term
from headcount.plan.devices import Device
from headcount.plan.engines import registry
from headcount.plan.engines.cache_names import CacheNames
from headcount.plan.engines.engine import Engine
from headcount.plan.engines.launch import Launch
from headcount.plan.engines.loaded_weights import loaded_weights, stage_weights
from headcount.plan.engines.paged import paged_cache_type
from headcount.plan.engines.pool import SequencePool
from headcount.plan.engines.version import Releases
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import Workload

GIB = 2**30
ENGINES = ("vllm", "sglang", "llama.cpp", "transformers")


@dataclass(frozen=True)
class Tape(SequencePool):
    """Every token of every layer takes 1,000 bytes."""

    layers: int

    def bytes_per_token(self, within: int | None) -> int:
        return 1000 * self.layers

    def sequence_bytes(self, context: int) -> int:
        return context * self.bytes_per_token(None)


def budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    assert device is not None
    (weights,) = stage_weights(model, work)
    allowed = Term(key="all", title="All", bytes=device.usable_memory, formula="all of it")
    spools = Term(key="spools", title="Spools", bytes=GIB, formula="1 GiB of spools")
    return (Budget(allowed=allowed, fixed=(weights, spools)),)


def launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    words = f"tape --of {model.model_id} --since {work.version.text} --length {kv_tokens}"
    return Launch(command=words)


TAPE = Engine(
    name="tape",
    budget=budget,
    pool=lambda model, work: Tape(layers=len(model.spec.layers)),
    launch=launch,
    cache_type=paged_cache_type(CacheNames(engine="Tape", option="--wound", since={"fp8": ()})),
    weights=loaded_weights,
    releases=Releases(oldest=(1, 0), newest=(3, 1)),
    narrower_caches=("fp8",),
)


def run(*args: str) -> Any:
    result = CliRunner().invoke(main, ["plan", *args])
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout) if "json" in args else result.output


def test_a_made_up_engine_goes_from_the_registry_to_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Llama-3-8B: 32 layers, on an H100."""
    from headcount.plan.command import plan_command

    monkeypatch.setitem(registry.ENGINES, "tape", TAPE)
    options: dict[str, Any] = {"device": "h100", "utilisation": None, "engine": "tape"}
    answer = plan_command("llama-3-8b", context=8192, require="concurrency>=4", **options)
    document: Any = answer.report.document
    assert document["memory"]["kv_cache_bytes"] == 8192 * 32_000
    assert document["memory"]["overhead_bytes"] == {"spools": GIB}
    found = document["engine"]
    assert (found["name"], found["version"]) == ("tape", "3.1")
    assert found["launch_command"].startswith("tape --of meta-llama/Meta-Llama-3-8B --since 3.1")
    assert answer.holds and document["fits"]
    assert {table.key for table in answer.report.tables} == {"memory", "limits", "what_if"}
    searched: Any = plan_command("llama-3-8b", target_users=3, **{**options, "device": None})
    assert searched.report.document["engine"]["smallest"]
    assert one_account(document) and one_account(searched.report.document)


def one_account(found: Any) -> bool:
    """Every figure that stands in two places is the same in both."""
    memory, engine = found["memory"], found["engine"]
    others = sum(memory["overhead_bytes"].values())
    assert (
        memory["total_bytes"] == (memory["weights_bytes"] or 0) + memory["kv_cache_bytes"] + others
    )
    assert memory["free_bytes"] == memory["budget_bytes"] - memory["total_bytes"]
    is_held = memory["free_bytes"] >= 0 and not found["refusals"]
    assert found["fits"] is engine["fits"] is is_held
    assert engine["available_kv_bytes"] == memory["free_bytes"] + memory["kv_cache_bytes"]
    assert engine["max_context"] == found["limits"]["max_context"]
    assert found["limits"]["max_batch_size"] in (engine["max_concurrency"], None)
    for key in ("context", "batch_size", "kv_dtype", "tp", "device", "utilisation"):
        assert engine[key] == found["request"][key], key
    if engine["budget"]:
        assert engine["budget"][0]["bytes"] == memory["budget_bytes"]
        assert engine["budget"][1]["bytes"] == memory["weights_bytes"]
    for row in found["what_if"]:
        if row["current"]:
            assert row["total_bytes"] == memory["total_bytes"]
            assert row["max_batch_size"] == found["limits"]["max_batch_size"]
    if engine["options"]:
        assert found["fits"] is bool(engine["smallest"])
    return True


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    "args",
    [
        ("qwen3-32b", "--device", "t4"),
        ("gpt-oss-20b", "--device", "h100", "--batch-size", "40"),
        ("qwen3-next", "--device", "h200", "--tp", "2"),
        ("gemma-4-e2b", "--device", "h100", "--pp", "2"),
        ("llama-3.1-70b", "--device", "h100", "--tp", "2", "--pp", "3", "--context", "9k"),
        ("deepseek-v3", "--kv-memory", "20GiB"),
        ("bert-base", "--device", "t4"),
        ("bloom-560m", "--device", "t4"),
        ("qwen3-32b", "--target-users", "8"),
        ("llama-3.1-405b", "--target-users", "900", "--device", "a30"),
    ],
)
def test_a_document_holds_one_answer_to_each_question(name: str, args: tuple[str, ...]) -> None:
    assert one_account(run(*args, "--engine", name, "--format", "json"))


def test_a_row_of_a_device_is_the_plan_that_is_shown_of_it() -> None:
    """Qwen3-32B for 20 requests of 16k tokens fits no one of these devices alone."""
    args = ("qwen3-32b", "--target-users", "20", "--context", "16k", "--device", "l40s,h100")
    found = run(*args, "--format", "json")
    assert found["fits"] and found["schema_version"] == 1
    shown = found["request"]["device"]
    (row,) = [row for row in found["devices"] if row["device"] == shown]
    assert (row["fits"], row["verdict"]) == (found["fits"], found["verdict"])
    assert row["free_bytes"] == found["memory"]["free_bytes"]
    assert row["max_context"] == found["limits"]["max_context"]
    assert row["max_batch_size"] == found["limits"]["max_batch_size"]
    best = found["hardware"][0]
    assert {option["device"] for option in found["hardware"]} == {"l40s", "h100"}
    assert (best["device"], best["tp"]) == (shown, found["request"]["tp"])
    assert (row["smallest_tp"], row["smallest_devices"]) == (best["tp"], best["devices"])
    assert best["devices"] == found["engine"]["devices"] > 1
    assert run("gpt2", "--device", "h100", "--format", "json")["hardware"] == []


def test_what_keeps_no_cache_has_a_document_beside_others() -> None:
    """BERT: no number of sequences is too many for a cache that it does not keep."""
    found = run("bert-base", "gpt2", "--device", "h100,l4", "--format", "json")
    at_once = {row["model"].rpartition("/")[2]: row["concurrency"] for row in found["hardware"]}
    assert at_once.pop("bert-base-uncased") is None
    assert all(count > 100 for count in at_once.values())


def test_a_stage_whose_layers_read_others_caches_needs_none() -> None:
    """Gemma 4 E2B: the last 20 of 35 layers keep nothing."""
    args = ("gemma-4-e2b", "--device", "h100", "--engine", "vllm", "--format", "json")
    one, two = run(*args), run(*args, "--pp", "2")
    assert two["fits"]
    assert (
        two["engine"]["rank_cache_bytes_per_token"] == one["engine"]["rank_cache_bytes_per_token"]
    )


def test_the_plain_plan_is_the_engine_generic() -> None:
    args = ("llama-3-8b", "--device", "h100", "--context", "8k")
    assert run(*args, "--engine", "generic") == run(*args)
    assert "engine" not in run(*args, "--format", "json")
    assert "Requires fits" in run(*args, "--engine", "generic", "--require", "fits")
    assert (
        "need an engine"
        in CliRunner().invoke(main, ["plan", *args, "--engine", "generic", "--pp", "2"]).output
    )


def test_engines_on_the_command_line_are_those_of_the_registry() -> None:
    result = CliRunner().invoke(main, ["plan", "gpt2", "--engine", "abacus"])
    assert result.exit_code == 2
    assert all(f"'{name}'" in result.output for name in registry.ENGINES)


def test_a_search_over_one_device_has_no_second_row_of_it() -> None:
    """With as many as were asked for it would say another thing than the plan that is shown."""
    searched = ("llama-3-70b", "--device", "h100", "--target-users", "32", "--context", "4k")
    done = CliRunner().invoke(main, ["plan", *searched, "--format", "json"])
    document = json.loads(done.stdout)
    assert document["fits"] and document["request"]["tp"] > 1
    assert document["devices"] == []
