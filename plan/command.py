"""`plan`: from a model's name and options to a report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.audit.auditing import DOUBTS, audit_model, audit_source
from headcount.model.errors import HeadcountError, short
from headcount.model.pruned_heads import PrunedShare, parse_pruned_share
from headcount.report import FOR_PEOPLE
from headcount.report.report import Report, counts_in_words
from headcount.sources.hub_names import split_target

from .devices import parse_devices, with_count
from .engines.engine import find_engine
from .engines.registry import PLAIN, SERVING
from .planned_model import PlannedModel
from .report.report import plan_report
from .request import OF_ANY_PLAN, PlanRequest
from .result import PlanResult, plan_result

if TYPE_CHECKING:
    from headcount.audit.audited import Audit
    from headcount.sources.safetensors import TensorInfo

    from .gate import Requirement
    from .hardware.cost import Prices


# Findings that files lack something that loading would fill with random values.
_INCOMPLETE = frozenset({"H103", "H107", "H112", "H113", "H201", "H205", "H215"})


class PlanAnswer(NamedTuple):
    """The reports, whether everything that was required holds, and why not; `failed`: a model could
    not be planned."""

    reports: tuple[Report, ...]
    holds: bool
    reasons: tuple[str, ...] = ()
    failed: bool = False

    @property
    def report(self) -> Report:
        """The first."""
        return self.reports[0]


def plan_command(
    *names: str,
    parameters: int | None = None,
    require: str | None = None,
    target_users: int | None = None,
    device: str | None = None,
    tp: int | Sequence[int] | None = None,
    prices: Path | None = None,
    prune_heads: str | None = None,
    form: str = "table",
    **options: Any,
) -> PlanAnswer:
    """Plans the models `names`; `options` are those of the command line. Several have an overview
    before their reports, or in a `form` for programs in place of them. Raises HeadcountError."""
    if target_users is not None and options.get("batch_size", 1) != 1:
        raise HeadcountError("--target-users are spread over engines: leave out --batch-size")
    device, tp = _counted(device, tp, options.get("pp"))
    tps = tuple(sorted(set(tp))) if isinstance(tp, Sequence) else (tp or 1,)
    devices = parse_devices(device) if device else ()
    pruned = None if prune_heads is None else _pruned(prune_heads)
    is_search = bool(require or target_users) or len(tps) > 1
    request = _request(needs_engine=is_search, tp=tps[0], **options)
    if len(tps) > 1 and not find_engine(request.engine).starts:
        raise HeadcountError(
            f"several --tp are compared as an engine serves them: --engine {SERVING}, or another in"
            f" place of {request.engine}"
        )
    if target_users is not None and not find_engine(request.engine).starts:
        raise HeadcountError(
            f"--target-users want an engine that serves them: --engine {SERVING}, or another"
            f" in place of {request.engine}"
        )
    searched: dict[str, Any] = {
        "requirements": _requirements(require),
        "target_users": target_users,
        "devices": devices,
        "prices": _prices(prices),
        "tps": tps if len(tps) > 1 else (),
    }

    def planned_report(name: str) -> tuple[PlanResult, Report]:
        audit = audit_model(name)
        model = planned(audit, parameters)
        if model.on_hub and "@" in name:
            model = replace(model, revision=split_target(name)[1])
        result = replace(plan_result(model, request, **searched), pruned=pruned)
        return result, _with_findings(plan_report(result, with_charts=form == "html"), audit)

    if len(names) == 1:
        result, report = planned_report(names[0])
        return PlanAnswer(reports=(report,), holds=result.holds, reasons=tuple(_reasons(result)))
    return _several(names, planned_report, for_people=form in FOR_PEOPLE)


def _counted(
    device: str | None, tp: int | Sequence[int] | None, pp: int | None
) -> tuple[str | None, int | Sequence[int] | None]:
    """`4xh100` is h100 with tp 4. Raises HeadcountError where --tp or --pp say another number."""
    found = with_count(device) if device else None
    if found is None:
        return device, tp
    name, count = found
    if tp not in (None, count) or (pp or 1) > 1:
        raise HeadcountError(
            f"--device {short(device)} is --device {name} --tp {count}: beside another --tp, or"
            " --pp, name the device alone"
        )
    return name, count


# What few calls ask for is imported by those: a command starts in the time of its imports.
def _requirements(text: str | None) -> "tuple[Requirement, ...]":
    if text is None:
        return ()
    from .gate import parse_requirements

    return parse_requirements(text)


def _prices(path: Path | None) -> "Prices | None":
    if path is None:
        return None
    from .hardware.prices import read_prices

    return read_prices(path)


def _pruned(text: str) -> PrunedShare:
    found = parse_pruned_share(text)
    if found is None:
        raise HeadcountError(
            f"--prune-heads {text!r}: write 2 or 1/4 for so many query heads of each layer"
        )
    return found


def _reasons(result: PlanResult, of: str = "") -> Iterator[str]:
    """Why it does not hold, as it is said on stderr."""
    return (f"Does not hold: {of}{text}" for text in result.failures)


def _with_findings(report: Report, audit: "Audit") -> Report:
    findings = [finding.document() for finding in audit.findings]
    document = {**report.document, "findings": findings}
    mark = _doubts(audit)
    facts = (
        fact._replace(value=f"{fact.value}{mark}") if fact.key == "verdict" else fact
        for fact in report.facts
    )
    return report._replace(facts=tuple(facts), findings=audit.findings, document=document)


def _doubts(audit: "Audit") -> str:
    """What a verdict is marked with: findings by which what was planned may be another model than
    is meant, and errors."""
    found = [
        finding
        for finding in audit.findings
        if finding.severity == "error" or (finding.severity == "warning" and finding.code in DOUBTS)
    ]
    if not found:
        return ""
    codes = ", ".join(dict.fromkeys(finding.code for finding in found))
    what = "a config" if audit.checkpoint is None else "files"
    return f", by {what} with {counts_in_words(found)} ({codes})"


def _several(
    names: Sequence[str],
    planned_report: Callable[[str], tuple[PlanResult, Report]],
    *,
    for_people: bool,
) -> PlanAnswer:
    """One that cannot be planned has its error in the place of its report."""
    from headcount.audit.audit_report import error_report

    from .report.overview import overview_report

    results: list[PlanResult | None] = []
    reports: list[Report] = []
    reasons: list[str] = []
    for name in names:
        try:
            result, report = planned_report(name)
        except HeadcountError as error:
            results.append(None)
            reports.append(error_report(name, error, "planned"))
            reasons.append(f"Error: {reports[-1].title}: {error}")
            continue
        results.append(result)
        reports.append(report)
        reasons += _reasons(result, f"{result.plan.model.model_id}: ")
    overview = overview_report(names, results, reports)
    return PlanAnswer(
        reports=(overview, *(reports if for_people else ())),
        holds=all(result.holds for result in results if result is not None),
        reasons=tuple(reasons),
        failed=None in results,
    )


def planned(audit: "Audit", parameters: int | None = None) -> PlannedModel:
    """The model; a count of parameters that is given overrules what its files say. Raises
    HeadcountError for one that does not hold the model's layers."""
    least = sum(layer.parameters().total for layer in audit.spec.layers)
    if parameters is not None and parameters < least:
        raise HeadcountError(
            f"--parameters {parameters:,}: the attention and the state of the"
            f" {len(audit.spec.layers)} layers of {audit.source.id} alone have {least:,}"
        )
    lacking = None if parameters else _lacking(audit)
    whole = _of_config(audit, lacking) if lacking else audit
    is_whole = whole is audit and audit.weights_bytes is not None
    return PlannedModel(
        model_id=audit.source.id,
        spec=replace(whole.spec, parameters=parameters) if parameters else whole.spec,
        config=audit.config,
        weights_bytes=None if parameters else whole.loaded_bytes,
        prediction_bytes=_prediction_bytes(whole),
        has_experts=whole.has_experts,
        lacking=None if is_whole else lacking,
        on_hub=audit.source.kind == "hub",
        stands_in=audit.source.entry.stands_in if audit.source.entry else None,
        overruled=_overruled(audit, parameters),
        tensors=_tensors(whole),
        active_parameters=whole.active_parameters,
    )


def _tensors(audit: "Audit") -> "Mapping[str, TensorInfo] | None":
    """Of a GGUF file, which an engine may spread over device and host tensor by tensor."""
    if audit.checkpoint is None or audit.checkpoint.format != "gguf":
        return None
    return audit.checkpoint.tensors


def _prediction_bytes(audit: "Audit") -> int:
    """Of the layers that the config does not count among the model's own. What llama.cpp makes of
    them in a GGUF file is its own affair."""
    if audit.inventory is None or _tensors(audit) is not None:
        return 0
    return sum(line.nbytes for line in audit.inventory.by_part if line.name == "mtp")


def _overruled(audit: "Audit", parameters: int | None) -> str | None:
    known = audit.spec.parameters
    if parameters is None or known in (None, parameters):
        return None
    source = audit.spec.parameters_source
    return (
        f"--parameters {parameters:,} takes the place of the {known:,} that are known"
        f"{f' ({source})' if source else ''}: weights are reckoned from it, not from stored bytes."
    )


def _lacking(audit: "Audit") -> str | None:
    """What an incomplete set of files does not hold; None where they hold the model."""
    known = [f for f in audit.findings if f.code in _INCOMPLETE]
    if audit.checkpoint is None or not known:
        return None
    found = min(known, key=lambda f: f.severity != "error")
    return f"{found.where} ({found.code}: {found.message})"


def _of_config(audit: "Audit", lacking: str) -> "Audit":
    """The audit of the config alone where that describes more than the files hold. Raises
    HeadcountError where it does not say how much, or the files hold next to nothing of it."""
    whole = audit_source(replace(audit.source, checkpoint=None)) if audit.source.config else audit
    if whole.spec.parameters is None:
        raise HeadcountError(
            f"{audit.source.id}: the files are incomplete: {lacking}: what the whole model weighs"
            " is not known; complete them, or give the count, as in --parameters 7b"
        )
    held = audit.spec.parameters
    if held is not None and held < whole.spec.attention_parameters:
        raise HeadcountError(
            f"{audit.source.id}: all files hold {held:,} parameters, less than the attention that"
            f" the config describes; they lack {lacking}: they do not belong together, or most are"
            " missing"
        )
    return whole if held is None or held < whole.spec.parameters else audit


def _draft(name: str) -> PlannedModel:
    """What drafts: a model, or heads alone."""
    from headcount.audit.auditing import audit_source
    from headcount.sources.target import resolve

    from .options.head_drafts import head_draft

    found = resolve(name)
    return head_draft(found) or planned(audit_source(found))


# Options whose texts, or values, are read for a field of the request.
_READ = frozenset(
    {
        *("speculative_config", "limit_mm_per_prompt", "mm_processor_kwargs"),
        *("speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps"),
        *("speculative_eagle_topk", "speculative_num_draft_tokens"),
    }
)


def _request(
    *,
    needs_engine: bool,
    utilisation: float | None,
    engine: str | None = None,
    engine_version: str | None = None,
    offline: bool = False,
    **options: Any,
) -> PlanRequest:
    """What is not given is left to its default."""
    needs_engine = needs_engine or bool(engine_version) or offline or bool(options.get("kv_memory"))
    given = read_options(options)
    needs_engine = needs_engine or any(given[name] for name in given.keys() - OF_ANY_PLAN)
    found = find_engine(engine or (SERVING if needs_engine else PLAIN))
    return PlanRequest(
        engine=found.name,
        version=found.releases.parse(engine_version) if engine_version else None,
        utilisation=utilisation,
        usage="offline" if offline else "server",
        **given,
    )


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the command line that are given, as fields of a request: JSON is read, and what is
    said of an algorithm that drafts put together. Raises HeadcountError."""
    given = {name: value for name, value in options.items() if value is not None}
    if texts := {name: given.pop(name) for name in _READ & given.keys()}:
        from .options.given import parsed

        given |= parsed(texts, _draft)
    return given
