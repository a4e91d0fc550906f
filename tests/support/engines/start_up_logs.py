"""Start-up logs of real runs, and the plan of each from its model, device, version and flags.

`start_up_logs.json` has the figures that the runs printed, typed by hand. No figure of a log goes
into a plan: those are only compared.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.audit.auditing import audit_model, audit_source
from headcount.plan.devices import Device, find_device
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.sources.found import FoundModel

GIB = 2**30
parse_version = ENGINE.releases.parse
HALF_STEP = 0.005  # GiB that the rounding of a log hides
Record = Mapping[str, Any]
RECORDS: tuple[Record, ...] = tuple(
    json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))["records"]
)


def ids(records: list[Record]) -> list[str]:
    """Names of parametrised cases."""
    return [str(record["id"]) for record in records]


def block_size(record: Record) -> int | None:
    """What the log says, but beside recurrent state, where it is a result."""
    is_hybrid = (record.get("geometry") or {}).get("kind") == "hybrid_mamba"
    return None if is_hybrid else record.get("block_size")


def device_of(record: Record) -> Device | None:
    """None where the log names none."""
    return find_device(record["device"]) if record["device"] else None


def ends(record: Record) -> tuple[int, int]:
    """The least and the most bytes that the log's rounded figure may stand for."""
    logged = record["avail_kv_gib"]
    return int((logged - HALF_STEP) * GIB), int((logged + HALF_STEP) * GIB)


def subject(record: Record) -> PlannedModel:
    """The catalogue's model, with the weights of the run where those were stored otherwise."""
    audit = audit_model(record["catalogue"])
    if "config_changes" in record:
        audit = audit_source(_changed(audit.source, record["config_changes"]))
    config = dict(audit.config)
    if record.get("weights") == "fp8":
        config["quantization_config"] = {"quant_method": "fp8"}
    return PlannedModel(model_id=audit.source.id, spec=audit.spec, config=config)


def _changed(source: FoundModel, changes: Mapping[str, Any]) -> FoundModel:
    """A smaller sister of a catalogue model: no longer the one whose parameters are known."""
    config = json.loads(json.dumps(source.config))
    config.get("text_config", config).update(changes)
    return replace(source, config=config, entry=None)


def plan_of(record: Record, kv_memory: int | None = None) -> Plan:
    """The plan of the record's run; `kv_memory` in place of its budget."""
    model = subject(record)
    is_quantised = "quantization_config" in model.config
    return plan_model(
        model,
        PlanRequest(
            engine=ENGINE.name,
            version=parse_version(record["vllm"]),
            device=device_of(record),
            kv_memory=kv_memory,
            context=record["max_model_len"],
            tp=record["tp"],
            dtype=None if is_quantised else record.get("dtype"),
            kv_dtype=record.get("kv_dtype"),
            block_size=block_size(record),
            max_num_batched_tokens=record.get("max_num_batched_tokens"),
            max_num_seqs=record.get("max_num_seqs"),
            usage=record.get("usage", "server"),
            utilisation=record.get("util"),
            enforce_eager=record.get("enforce_eager", False),
            sampler=record.get("sampler"),
            caches_prefixes=record.get("caches_prefixes"),
        ),
    )


def carries_enough(record: Record) -> str | None:
    """None if the budget can be predicted; else what is missing."""
    if record["catalogue"] is None:
        return "the model is not in the catalogue"
    if "weights_unknown" in record:
        return str(record["weights_unknown"])
    if record["device"] is None:
        return "the log does not name the device"
    if record.get("util") is None:
        return "the log does not say the utilisation"
    return None


def vllm_log(record: Record) -> str:
    """The lines of a record as vLLM prints them."""
    lines = [
        f"INFO 11-02 Initializing a V1 LLM engine (v{record['vllm']}) with config:"
        f" model='{record['logged_model']}', dtype=torch.{record.get('dtype', 'bfloat16')},"
        f" max_seq_len={record['max_model_len']}, tensor_parallel_size={record['tp']},"
        f" quantization=None, enforce_eager={record.get('enforce_eager', False)},"
        f" kv_cache_dtype={record.get('kv_dtype', 'auto')},"
        f" enable_prefix_caching={record.get('caches_prefixes')}",
        "INFO Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
        f"\x1b[32mINFO\x1b[0m Available KV cache memory: {record['avail_kv_gib']} GiB",
    ]
    if record.get("util"):
        lines.append(f"non-default args: {{'gpu_memory_utilization': {record['util']}}}")
    for name in ("max_num_batched_tokens", "max_num_seqs"):
        if name in record:
            lines.append(f"INFO {name}={record[name]}.")
    if record.get("sampler") == "flashinfer":
        lines.append("INFO Using FlashInfer for top-p & top-k sampling.")
    if block_size(record):
        lines.append(f"block_size={record['block_size']}")
    elif "block_size" in record:
        lines.append(f"Setting attention block size to {record['block_size']} tokens to ensure")
    if "kv_tokens" in record:
        lines.append(f"INFO GPU KV cache size: {record['kv_tokens']:,} tokens")
    if "concurrency" in record:
        length, fits = record["max_model_len"], record["concurrency"]
        lines.append(f"Maximum concurrency for {length:,} tokens per request: {fits:.2f}x")
    if "num_gpu_blocks" in record:
        lines.append(f"num_gpu_blocks is: {record['num_gpu_blocks']}")
    if "weights_gib" in record:
        lines.append(f"Model loading took {record['weights_gib']} GiB and 3.2 seconds")
    return "\n".join(lines) + "\n"
