"""The report of a plan: verdict, tables that add up, notes, and the JSON document."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec
from headcount.plan.command import plan_command
from headcount.plan.devices import all_devices, find_device, parse_device
from headcount.plan.plan import Plan
from headcount.plan.planned_model import PlannedModel
from headcount.plan.report.report import plan_report
from headcount.plan.report.tables import limit_contexts
from headcount.plan.request import PlanRequest
from headcount.plan.result import plan_result
from headcount.report.report import Report, Table
from headcount.sources.catalogue import catalogue, find_row, read_entry

ReadSpec = Callable[[str], ModelSpec]
MakePlan = Callable[..., Plan]
MakeReport = Callable[..., Report]


@pytest.fixture
def report(read_model: ReadSpec) -> MakeReport:
    def make(name: str, **request: Any) -> Report:
        row = find_row(name)
        assert row is not None
        config = read_entry(row).config
        spec = read_model(name)
        model = PlannedModel(model_id=name, spec=spec, config=config)
        return plan_report(plan_result(model, PlanRequest(**request)))

    return make


def table(report: Report, key: str) -> Table:
    return next(table for table in report.tables if table.key == key)


def rows_of(report: Report, key: str) -> Any:
    return table(report, key).rows


def facts(report: Report) -> dict[str, object]:
    return {fact.key: fact.value for fact in report.facts}


def dig(report: Report, *path: str) -> Any:
    found: Any = report.document
    for key in path:
        found = found[key]
    return found


def test_the_verdict_comes_first(report: MakeReport) -> None:
    fits = report("llama-3-8b", context=8192, device=find_device("h100"))
    assert fits.facts[0].value == "fits: 17.11 GiB of 71.26 GiB, 54.15 GiB free"
    assert fits.facts[0].note == "on one device, NVIDIA H100 SXM5 80GB: 0.90 x 79.18 GiB usable"
    short = report("llama-3-70b", context=8192, device=parse_device("80GiB"))
    assert str(short.facts[0].value).startswith("does not fit: 136.07 GiB of 72.00 GiB, 64.07")
    pair = report("llama-3-70b", context=8192, device=find_device("h200"), tp=2)
    assert "on each of 2 devices" in pair.facts[0].note


def test_without_a_device_it_counts_where_the_plan_fits(report: MakeReport) -> None:
    found = report("llama-3-8b", context=8192)
    devices = dig(found, "devices")
    fitting = sum(device["fits"] for device in devices)
    assert found.facts[0].note == f"enough for {fitting} of {len(devices)} devices of the table"
    assert 0 < fitting < len(devices) == len(all_devices())
    assert dig(found, "fits") is None
    assert "max_context" not in facts(found)


def test_the_memory_table_adds_up(report: MakeReport) -> None:
    for request in ({}, {"tp": 4}, {"batch_size": 300}, {"device": find_device("h100")}):
        found = report("llama-3-8b", **request)
        rows = {row[0]: row[1] for row in rows_of(found, "memory")}
        total = rows["Weights"] + rows["KV cache"] + rows["Runtime"] + rows["Activations"]
        assert rows["Total"] == total == dig(found, "memory", "total_bytes")
        shares = [row[2] for row in rows_of(found, "memory")[:4]]
        assert sum(shares) == pytest.approx(100)
        if "device" in request:
            assert rows["Planned with"] - rows["Total"] == rows["Free"]


def test_the_document(report: MakeReport) -> None:
    found = report("qwen3-8b", context=4096, batch_size=2, kv_dtype="fp8", device=find_device("l4"))
    assert next(iter(found.document)) == "schema_version"
    assert json.loads(json.dumps(found.document, allow_nan=False)) == found.document
    assert dig(found, "model", "model_type") == "qwen3"
    assert dig(found, "request") == {
        "context": 4096,
        "encoder_tokens": 0,
        "batch_size": 2,
        "dtype": None,
        "kv_dtype": "float8_e4m3fn",
        "tp": 1,
        "device": "l4",
        "utilisation": 0.9,
    }
    memory = dig(found, "memory")
    assert memory["kv_cache_bytes"] == 147_456 // 2 * 4096 * 2
    parts = memory["weights_bytes"] + memory["kv_cache_bytes"]
    assert memory["total_bytes"] == parts + sum(memory["overhead_bytes"].values())
    assert memory["usable_bytes"] == find_device("l4").usable_memory
    assert dig(found, "fits") == (memory["free_bytes"] >= 0)
    assert dig(found, "limits", "max_batch_size") == facts(found)["max_batch_size"]
    assert dig(found, "devices") == []
    assert [row["num_key_value_heads"] for row in dig(found, "what_if")] == [32, 8, 4, 2, 1]


def test_what_fits_where_has_the_smallest_number_of_devices(
    report: MakeReport, plan: MakePlan
) -> None:
    found = report("llama-3-70b", context=8192)
    rows = {row["device"]: row for row in dig(found, "devices")}
    assert rows["h100"]["smallest_tp"] == 2
    assert rows["h200"]["smallest_tp"] == 2  # 136.1 GiB of 125.8
    assert rows["b200"]["smallest_tp"] == 1
    assert rows["rtx-4090"]["smallest_tp"] == 8
    assert rows["t4"]["smallest_tp"] is None
    for key in ("t4", "rtx-4090", "h100", "h200", "b200", "m3-ultra-512gb"):
        row = rows[key]
        alone = plan("llama-3-70b", context=8192, device=find_device(key))
        assert row["fits"] == alone.fits == (row["smallest_tp"] == 1)
        assert row["free_bytes"] == alone.free_bytes
        if row["smallest_tp"]:
            held = plan("llama-3-70b", context=8192, device=find_device(key), tp=row["smallest_tp"])
            assert held.fits
    printed = table(found, "devices")
    shown = [rows[str(row[0])] for row in printed.rows]
    assert sorted(row["device"] for row in shown) == sorted(rows)
    fits = [row["fits"] for row in shown]
    assert fits == sorted(fits, reverse=True)  # what suffices first
    lacking = [row["free_bytes"] for row in shown if not row["fits"]]
    assert lacking == sorted(lacking, reverse=True)


def test_what_fits_where_begins_at_the_tp_asked_for(report: MakeReport) -> None:
    rows = {row["device"]: row for row in dig(report("gpt2", tp=2), "devices")}
    assert {row["smallest_tp"] for row in rows.values()} == {2}
    odd = {row["smallest_tp"] for row in dig(report("falcon-7b"), "devices")}
    assert odd <= {1, None}  # 71 heads: neither 2, 4 nor 8 divide them


def test_cards_that_are_several_devices_are_named(report: MakeReport) -> None:
    (note,) = [note for note in report("gpt2").notes if "several devices to a framework" in note]
    for name in ("mi250x (2)", "max-1550 (2)", "trainium (2)", "trainium2 (4)", "inferentia2 (2)"):
        assert f" {name}" in note
    assert not any("to a framework" in n for n in report("gpt2", device=find_device("h100")).notes)


def test_decoding_is_bounded_by_bandwidth(report: MakeReport) -> None:
    """Llama-3-8B on an H100: all weights but the input embedding, and the cache, at 3.35 TB/s."""
    found = report("llama-3-8b", context=8192, device=find_device("h100"))
    read = 16_060_522_496 - 128_256 * 4096 * 2 + 2**30
    assert facts(found)["decode_tokens_per_second"] == pytest.approx(3.35e12 / read)
    more = report("llama-3-8b", context=8192, batch_size=4, device=find_device("h100"))
    assert facts(more)["decode_tokens_per_second"] == pytest.approx(3.35e12 / (read + 3 * 2**30))
    tied = report("gpt2", context=1024, device=find_device("h100"))
    cache = 36_864 * 1024
    assert dig(tied, "decode_tokens_per_second") == pytest.approx(
        3.35e12 / (2 * 124_439_808 + cache)
    )
    assert dig(report("gpt2", device=parse_device("8GiB")), "decode_tokens_per_second") is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mixtral-8x7b", "active experts"),
        ("deepseek-v3", "active experts"),
        ("dbrx", "active experts"),
        ("gpt-oss-20b", "active experts"),
        ("hunyuan-a13b", "active experts"),
        ("bert-base-uncased", "an encoder does not decode"),
        ("t5-small", "encoder's weights"),
        ("google/gemma-3-27b-it", "vision or audio tower"),
        ("gemma-3n-e4b", "per-layer embeddings"),
    ],
)
def test_no_bound_where_a_step_reads_less(report: MakeReport, name: str, reason: str) -> None:
    found = report(name, device=find_device("h100"))
    assert dig(found, "decode_tokens_per_second") is None
    assert any(reason in note for note in found.notes)


def test_a_context_beyond_the_maximum_is_planned_with_a_warning(report: MakeReport) -> None:
    found = report("llama-3-8b", context=16_384, device=find_device("h100"))
    assert "beyond the model's maximum of 8,192" in found.notes[0]
    assert found.notes[0].startswith("Warning: ")
    assert dig(found, "warnings") == [found.notes[0].removeprefix("Warning: ")]
    assert dig(found, "memory", "kv_cache_bytes") == 16_384 * 131_072
    assert facts(found)["max_context"] == 16_384
    assert next(f for f in found.facts if f.key == "max_context").note.endswith("as asked for")
    assert dig(report("llama-3-8b", context=8192), "warnings") == []


def test_a_model_without_maximum_says_what_is_assumed(report: MakeReport) -> None:
    found = report("bloom-560m")
    assert any("8,192 tokens are assumed" in warning for warning in dig(found, "warnings"))


def test_unknown_quantisation_is_an_error(read_model: ReadSpec) -> None:
    config = {"quantization_config": {"quant_method": "of next year"}}
    spec = read_model("gpt2")

    def warnings(**arguments: Any) -> Any:
        request = PlanRequest(dtype=arguments.pop("dtype", None))
        model = PlannedModel(model_id="x", spec=spec, config=config, **arguments)
        return dig(plan_report(plan_result(model, request)), "warnings")

    with pytest.raises(HeadcountError, match="of the kind 'of next year'"):
        warnings()
    assert warnings(weights_bytes=10**8) == []
    assert warnings(dtype="fp16") == []


def test_tensor_parallel_says_what_is_copied(report: MakeReport) -> None:
    found = report("qwen3-235b-a22b", context=1000, tp=8)
    assert dig(found, "per_rank", "kv_copies") == 2
    assert dig(found, "per_rank", "replicated_cache_bytes") == 192_512 * 1000
    assert facts(found)["kv_copies"] == 2
    assert any("are copies" in note for note in found.notes)
    assert not any("are copies" in note for note in report("qwen3-235b-a22b", tp=4).notes)


def test_the_limits_table_holds_largest_batches(report: MakeReport, plan: MakePlan) -> None:
    request: dict[str, Any] = {"context": 3000, "device": find_device("rtx-4090")}
    planned = plan("llama-3.1-8b", **request)
    rows = rows_of(report("llama-3.1-8b", **request), "limits")
    assert planned.budget is not None and planned.budget_bytes is not None
    contexts = [row[0] for row in rows]
    assert contexts == [1024, 2048, 3000, 4096, 8192, 16_384, 32_768, 65_536, 131_072]
    for context, cache, batch in rows:
        assert cache == context * 131_072
        assert batch == 0 or planned.holds(context, batch)
        assert not planned.holds(context, batch + 1)


def test_limit_contexts_stay_within_the_model(plan: MakePlan) -> None:
    assert limit_contexts(plan("gpt2")) == (1024,)
    assert limit_contexts(plan("gpt2", context=100)) == (100, 1024)
    assert limit_contexts(plan("bert-base-uncased")) == (512,)


def test_every_model_that_is_audited_is_planned(read_model: ReadSpec) -> None:
    """With and without a device; JSON must take the document."""
    rows = [row for row in catalogue() if row.model_type in ARCHITECTURES and row.parameters]
    assert len(rows) > 200
    for row in rows[::5]:
        spec, config = read_model(row.id), read_entry(row).config
        for device in (None, find_device("b200")):
            request = PlanRequest(device=device)
            model = PlannedModel(model_id=row.id, spec=spec, config=config)
            found = plan_report(plan_result(model, request))
            json.dumps(found.document, allow_nan=False)
            assert dig(found, "memory", "total_bytes") > 0
            for printed in found.tables:
                assert all(len(r) == len(printed.columns) for r in printed.rows)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("OLMo-2-0325-32B-Instruct", True),
        ("OLMo-2-1124-13B-Instruct", False),
        ("gemma-2-9b-it", False),
    ],
)
def test_a_plan_by_another_models_config_says_so(name: str, says: bool) -> None:
    """A checkpoint whose own dtype and length are not known; they decide what is planned."""
    notes = plan_command(name, device="h100", utilisation=0.9).report.notes
    assert says == any("Warning: The catalogue lacks the config of" in note for note in notes)
