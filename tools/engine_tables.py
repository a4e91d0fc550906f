"""Puts the tables of docs/engines.md and planning.md in them.

They are made from the logs of tests/support/engines/start_up_logs.json.

python tools/engine_tables.py --write     # or --check, which fails if the page is out of date
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support" / "engines"))

from headcount.plan.budget import Term  # noqa: E402
from headcount.plan.plan import plan_model  # noqa: E402
from headcount.plan.request import PlanRequest  # noqa: E402
from peer_formulas import (  # noqa: E402
    accelerate_weights,
    flat_request_bytes,
    hf_mem_request_bytes,
)
from start_up_logs import (  # noqa: E402
    GIB,
    RECORDS,
    Record,
    carries_enough,
    device_of,
    ends,
    plan_of,
    subject,
)

ENGINES, PLANNING = ROOT / "docs" / "engines.md", ROOT / "docs" / "planning.md"


def budget_table() -> Iterator[str]:
    """Available K/V memory, predicted without a figure of the log, against the logged one."""
    yield (
        "| model, device | vLLM | weights GiB: log / plan | for the cache GiB: log / plan | +/- |"
        " error |"
    )
    yield "|---|---|---:|---:|---:|---:|"
    errors = []
    for record in RECORDS:
        if carries_enough(record) is not None:
            continue
        plan = plan_of(record)
        logged, found = record["avail_kv_gib"], plan.available_bytes / GIB
        error = (found - logged) / abs(logged)
        errors.append(abs(error))
        weights = record.get("weights_gib")
        yield (
            f"| {name(record)} | {record['vllm']} | {f'{weights:.2f}' if weights else '-'} /"
            f" {plan.taken[0].bytes / GIB:.2f} | {logged:.2f} / {found:.2f} |"
            f" {plan.error_bytes / GIB:.2f} | {error:+.1%} |"
        )
    yield ""
    yield (
        f"Of {len(errors)} logs: {median(errors):.1%} at the median, {max(errors):.1%} at worst."
    )
    left_out = [r for r in RECORDS if carries_enough(r) is not None]
    listed = "; ".join(f"{name(record)} ({carries_enough(record)})" for record in left_out)
    yield f"Left out, because the log does not carry enough: {listed}."


def name(record: Record) -> str:
    """Model and devices, short."""
    tp = f"{record['tp']} x " if record["tp"] > 1 else ""
    star = " *" if record.get("held_out") else ""
    return f"{record['logged_model'].rsplit('/', 1)[-1]}, {tp}{record['device'] or '?'}{star}"


def peers_table() -> Iterator[str]:
    """Requests at once, each from the cache memory that the log says is there."""
    yield "| model, device | log | headcount | flat 2 L kv hd | hf-mem's formula |"
    yield "|---|---:|---:|---:|---:|"
    errors: dict[str, list[float]] = {"headcount": [], "flat": [], "hf-mem": []}
    for record in RECORDS:
        if not record["catalogue"] or not record.get("concurrency"):
            continue
        logged, found = record["concurrency"], requests(record)
        cells = []
        for peer, value in found.items():
            errors[peer].append(abs(value / logged - 1))
            cells.append(f"{value:.2f} ({value / logged - 1:+.0%})")
        yield f"| {name(record)} | {logged:.2f} | {' | '.join(cells)} |"
    yield summary(errors, "median", median)
    yield summary(errors, "worst", max)


def requests(record: Record) -> dict[str, float]:
    """Requests of the record's context in its logged memory; peers know no tensor parallelism, so
    they are given the memory of all ranks."""
    low, high = ends(record)
    plan = plan_of(record, kv_memory=(low + high) // 2)
    tokens, config = record["max_model_len"], subject(record).config
    width = plan.workload.kv_bits // 8
    memory = record["avail_kv_gib"] * GIB * record["tp"]
    return {
        "headcount": plan.concurrency,
        "flat": memory / flat_request_bytes(config, tokens, width),
        "hf-mem": memory / hf_mem_request_bytes(config, tokens, width),
    }


def summary(errors: dict[str, list[float]], words: str, of: Callable[[list[float]], float]) -> str:
    cells = " | ".join(f"{of(found):.0%}" for found in errors.values())
    return f"| {words} error | | {cells} |"


def weights_table() -> Iterator[str]:
    """Weights of a rank."""
    yield "| model, device | log GiB | headcount | accelerate estimate-memory / ranks |"
    yield "|---|---:|---:|---:|"
    for record in RECORDS:
        if carries_enough(record) is not None or not record.get("weights_gib"):
            continue
        logged = record["weights_gib"]
        peer = accelerate_weights(subject(record).spec)
        assert peer is not None
        own, other = plan_of(record).taken[0].bytes / GIB, peer / GIB / record["tp"]
        yield (
            f"| {name(record)} | {logged:.2f} | {own:.2f} ({own / logged - 1:+.1%}) |"
            f" {other:.2f} ({other / logged - 1:+.0%}) |"
        )


def estimates_table() -> Iterator[str]:
    """What a start took beside weights and cache, and what the plan without an engine estimates."""
    yield "| model, device | sequences | logged GiB | estimate | error |"
    yield "|---|---:|---:|---:|---:|"
    for record in RECORDS:
        sequences, weights = record.get("max_num_seqs"), record.get("weights_gib")
        if carries_enough(record) is not None or not weights or not sequences:
            continue
        found = sum(term.bytes for term in estimated(record)) / GIB
        logged = budget_gib(record) - weights - record["avail_kv_gib"]
        error = f"{100 * (found / logged - 1):+.0f} %"
        yield f"| {name(record)} | {sequences:,} | {logged:.2f} | {found:.2f} | {error} |"


def budget_gib(record: Record) -> float:
    device = device_of(record)
    assert device is not None
    return device.usable_memory * float(record["util"]) / GIB


def estimated(record: Record) -> list[Term]:
    """The two terms of a plan without an engine that are estimates."""
    request = PlanRequest(
        device=device_of(record),
        context=record["max_model_len"],
        batch_size=record["max_num_seqs"],
        tp=record["tp"],
    )
    terms = plan_model(subject(record), request).taken
    return [term for term in terms if term.key in ("runtime", "activations")]


TABLES = {
    ENGINES: {"budget": budget_table, "peers": peers_table, "weights": weights_table},
    PLANNING: {"estimates": estimates_table},
}


def filled(path: Path) -> str:
    """The page at `path` with each table between its marks."""
    page = path.read_text(encoding="utf-8")
    for key, table in TABLES[path].items():
        begin, end = f"<!-- {key}: made by tools/engine_tables.py -->", f"<!-- end of {key} -->"
        before, rest = page.split(begin)
        _, after = rest.split(end)
        lines = "\n".join(table())
        page = f"{before}{begin}\n{lines}\n{end}{after}"
    return page


def main() -> None:
    if sys.argv[1:] not in (["--write"], ["--check"]):
        sys.exit(__doc__)
    for path in TABLES:
        wanted = filled(path)
        if sys.argv[1] == "--write":
            path.write_text(wanted, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{path}: out of date; run python tools/engine_tables.py --write")


if __name__ == "__main__":
    main()
