"""Cache memory that vLLM logged at measured starts, held against what is planned.

    python bench/engine_budget.py FILE [--half fit|test] [--verbose]

FILE is JSON with `runs`: of each the model, vLLM's version, the device, tp, pp, the utilisation,
and `kv_cache_memory_gib` as logged, with the terms that were logged beside it. No figure of a run
goes into its plan. Runs are split by their model: one of the test half is in no run of the other,
so that constants which were fitted on the one are tested on models that they have not seen.

Prints each run's predicted and logged cache memory, the error, the bar of the plan and whether the
logged figure lies inside, then mean and worst error of both halves. Runs of a pipeline are held
against its first stage, whose worker logs. Runs whose model is not in the catalogue are counted.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.sources.catalogue import catalogue, find_row

GIB = 2**30
Run = Mapping[str, Any]
# What names of stored formats add to a model's, and the settings that their files have.
_CHANNELS = {"num_bits": 8, "strategy": "channel", "symmetric": True, "group_size": None}
FORMATS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (
        r"[-.]quantized\.w8a8$",
        {"quant_method": "compressed-tensors", "format": "int-quantized"}
        | {"config_groups": {"a": {"targets": ["Linear"], "weights": {**_CHANNELS, "type": "int"}}}}
        | {"ignore": ["lm_head"]},
    ),
    (
        r"[-.]quantized\.w4a16$",
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
    ),
    (
        r"-fp8-dynamic$",
        {"quant_method": "compressed-tensors", "format": "float-quantized"}
        | {
            "config_groups": {
                "a": {"targets": ["Linear"], "weights": {**_CHANNELS, "type": "float"}}
            }
        }
        | {"ignore": ["lm_head"]},
    ),
)
# Fine-tunes of a catalogue model, whose sizes are its own.
SAME_SIZES = {"kimi-dev-72b": "Qwen/Qwen2.5-72B", "qwen2.5-72b-instruct": "Qwen/Qwen2.5-72B"}


@dataclass(frozen=True, kw_only=True)
class Held:
    """One run beside its plan, in bytes."""

    run: Run
    predicted: int
    logged: float
    bar: int
    terms: Mapping[str, int]

    @property
    def error(self) -> float:
        return (self.predicted - self.logged) / abs(self.logged)

    @property
    def inside(self) -> bool:
        return abs(self.predicted - self.logged) <= self.bar


def half_of(name: str) -> str:
    """`fit` or `test`, the same for all runs of a model however it was stored."""
    base = base_name(name).casefold()
    return "test" if sha256(base.encode()).digest()[0] % 2 else "fit"


def base_name(name: str) -> str:
    """The name of the model without its owner, and without what names its format."""
    text = name.rsplit("/", 1)[-1].removeprefix("Meta-")
    for pattern, _ in FORMATS:
        text = re.sub(pattern, "", text, flags=re.IGNORECASE)
    return text


def model_of(name: str) -> PlannedModel | None:
    """The catalogue's model, stored as the name says; None where the catalogue has none."""
    row = next((row for text in _names(name) if (row := find_row(text))), None)
    if row is None:
        return None
    model = planned(audit_model(row.id))
    found = next((s for p, s in FORMATS if re.search(p, name, re.IGNORECASE)), None)
    if found is None:
        return model
    config = {**model.config, "quantization_config": dict(found)}
    return PlannedModel(model_id=name, spec=model.spec, config=config)


def _names(name: str) -> Iterator[str]:
    """What the catalogue may call it."""
    base = base_name(name)
    yield from (SAME_SIZES.get(base.casefold(), name), base)
    owners = {known.id.split("/")[0] for known in catalogue()}
    for text in (base, re.sub(r"-(Instruct|it)$", "", base)):
        yield from (f"{owner}/{text}" for owner in sorted(owners))


def plan_of(run: Run, model: PlannedModel) -> Plan:
    """The plan of what was started."""
    dtype = {"torch.float32": "float32"}.get(str(run.get("dtype")))
    if run.get("quantization") == "fp8" and "quantization_config" not in model.config:
        dtype = "float8_e4m3fn"
    kv_dtype = run.get("kv_cache_dtype", "auto")
    return plan_model(
        model,
        PlanRequest(
            engine=ENGINE.name,
            version=ENGINE.releases.parse(run["vllm"]),
            device=find_device(run["gpu"].removesuffix("-80GB")),
            context=run["max_model_len"],
            tp=run.get("tp") or run["tensor_parallel_size"],
            pp=run.get("pp") or run["pipeline_parallel_size"],
            dtype=dtype,
            kv_dtype=None if kv_dtype == "auto" else kv_dtype,
            utilisation=run["gpu_memory_utilization"],
        ),
    )


def held(run: Run) -> Held | None:
    """None where the run's model is not in the catalogue."""
    model = model_of(run["model"])
    if model is None:
        return None
    plan = plan_of(run, model)
    budget = plan.budgets[0]
    return Held(
        run=run,
        predicted=plan.available[0],
        logged=run["kv_cache_memory_gib"] * GIB,
        bar=budget.error_bytes,
        terms={term.key: term.bytes for term in budget.fixed},
    )


def rows(found: Sequence[Held]) -> Iterator[str]:
    for item in found:
        run = item.run
        name = f"{run['model'].rsplit('/', 1)[-1][:38]} {run['vllm']}"
        layout = f"{run.get('tp', 1)}x{run.get('pp', 1)}"
        yield (
            f"{name:46} {layout:4} {item.predicted / GIB:7.2f} {item.logged / GIB:7.2f}"
            f" {item.error:+7.2%} {item.bar / GIB:6.2f} {'inside' if item.inside else 'OUTSIDE'}"
        )


def terms(item: Held) -> Iterator[str]:
    """The terms of a plan beside those that the run logged."""
    run = item.run
    logged = {
        "weights": run["weight_memory_gib"],
        "activations": run["activation_memory_gib"],
        "non_torch": run.get("non_torch_forward_gib", run.get("non_torch_forward_memory_gib")),
        "cuda_graphs": run.get("cuda_graph_estimated_gib"),
    }
    for key, size in item.terms.items():
        yield f"    {key:14} {size / GIB:6.2f}  logged {logged.get(key)}"


def summary(words: str, found: Sequence[Held]) -> str:
    if not found:
        return f"{words}: no run"
    errors = [abs(item.error) for item in found]
    inside = sum(item.inside for item in found)
    return (
        f"{words}: {len(found)} runs of {len({base_name(i.run['model']) for i in found})} models,"
        f" mean error {mean(errors):.2%}, worst {max(errors):.2%}, inside the bars {inside} of"
        f" {len(found)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--half", choices=("fit", "test"), help="print the runs of this half only")
    parser.add_argument("--verbose", action="store_true", help="each term beside the logged one")
    options = parser.parse_args()
    runs = json.loads(options.file.read_text(encoding="utf-8"))["runs"]
    started = [run for run in runs if run.get("kv_cache_memory_gib") is not None]
    halves: dict[str, list[Held]] = {"fit": [], "test": []}
    unknown: set[str] = set()
    for run in started:
        try:
            item = held(run)
        except HeadcountError as error:
            raise SystemExit(f"{run.get('id')}: {error}") from error
        if item is None:
            unknown.add(run["model"])
        else:
            halves[half_of(run["model"])].append(item)
    for half, found in halves.items():
        if options.half in (None, half):
            print(f"{half} half: predicted and logged GiB, error, bar GiB")
            for item, row in zip(found, rows(found), strict=True):
                print(row)
                if options.verbose:
                    print("\n".join(terms(item)))
    for half, found in halves.items():
        print(summary(f"{half} half", found))
    print(summary("all", [item for found in halves.values() for item in found]))
    print(f"{len(runs) - len(started)} runs did not start; not in the catalogue: {sorted(unknown)}")


if __name__ == "__main__":
    main()
