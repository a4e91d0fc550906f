"""`plan`: from a model's name and options to a report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headcount.audit.audit_report import error_report
from headcount.audit.auditing import audit_model, audit_source
from headcount.model.errors import HeadcountError
from headcount.model.pruned_heads import PrunedShare, parse_pruned_share
from headcount.report import FOR_PEOPLE
from headcount.report.report import Report
from headcount.sources.hub_names import split_target

from .devices import parse_devices
from .engines.engine import find_engine
from .engines.registry import PLAIN, SERVING
from .gate import parse_requirements
from .hardware.prices import read_prices
from .options.modalities import parse_image_size, parse_limits
from .options.speculation import Algorithm, Speculation, parse_speculative_config
from .planned_model import PlannedModel
from .report.overview import overview_report
from .report.report import plan_report
from .request import OF_ANY_PLAN, PlanRequest
from .result import PlanResult, plan_result

if TYPE_CHECKING:
    from headcount.audit.audited import Audit
    from headcount.sources.safetensors import TensorInfo


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
    prices: Path | None = None,
    prune_heads: str | None = None,
    form: str = "table",
    **options: Any,
) -> PlanAnswer:
    """Plans the models `names`; `options` are those of the command line. Several have an overview
    before their reports, or in a `form` for programs in place of them. Raises HeadcountError."""
    if target_users is not None and options.get("batch_size", 1) != 1:
        raise HeadcountError("--target-users are spread over engines: leave out --batch-size")
    devices = parse_devices(device) if device else ()
    pruned = None if prune_heads is None else _pruned(prune_heads)
    request = _request(needs_engine=bool(require or target_users), **options)
    searched: dict[str, Any] = {
        "requirements": parse_requirements(require) if require is not None else (),
        "target_users": target_users,
        "devices": devices,
        "prices": read_prices(prices) if prices is not None else None,
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
    return report._replace(findings=audit.findings, document=document)


def _several(
    names: Sequence[str],
    planned_report: Callable[[str], tuple[PlanResult, Report]],
    *,
    for_people: bool,
) -> PlanAnswer:
    """One that cannot be planned has its error in the place of its report."""
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


_T = TypeVar("_T")


def _parsed(parse: Callable[[str], _T], text: str | None) -> _T | None:
    return None if text is None else parse(text)


def _speculation(text: str) -> Speculation:
    return parse_speculative_config(text, _draft)


def _draft(name: str) -> PlannedModel:
    return planned(audit_model(name))


def _request(
    *,
    needs_engine: bool,
    utilisation: float | None,
    engine: str | None = None,
    engine_version: str | None = None,
    offline: bool = False,
    speculative_config: str | None = None,
    limit_mm_per_prompt: str | None = None,
    mm_processor_kwargs: str | None = None,
    speculative_algorithm: str | None = None,
    speculative_draft_model_path: str | None = None,
    speculative_num_steps: int | None = None,
    speculative_eagle_topk: int | None = None,
    speculative_num_draft_tokens: int | None = None,
    **options: Any,
) -> PlanRequest:
    """What is not given is left to its default."""
    needs_engine = needs_engine or bool(engine_version) or offline or bool(options.get("kv_memory"))
    parsed: dict[str, Any] = {
        "speculative_config": _parsed(_speculation, speculative_config),
        "limit_mm_per_prompt": _parsed(parse_limits, limit_mm_per_prompt),
        "mm_processor_kwargs": _parsed(parse_image_size, mm_processor_kwargs),
    }
    more = {
        "draft": speculative_draft_model_path,
        "steps": speculative_num_steps,
        "topk": speculative_eagle_topk,
        "tokens": speculative_num_draft_tokens,
    }
    if speculative_algorithm is not None:
        algorithm = Algorithm(name=speculative_algorithm, **more)  # type: ignore[arg-type]
        parsed["speculative_algorithm"] = algorithm.speculation(_draft)
    elif any(value is not None for value in more.values()):
        raise HeadcountError("--speculative-… of SGLang need --speculative-algorithm")
    options = {**options, **parsed}
    needs_engine = needs_engine or any(options[name] for name in options.keys() - OF_ANY_PLAN)
    found = find_engine(engine or (SERVING if needs_engine else PLAIN))
    return PlanRequest(
        engine=found.name,
        version=found.releases.parse(engine_version) if engine_version else None,
        utilisation=utilisation,
        usage="offline" if offline else "server",
        **{name: value for name, value in options.items() if value is not None},
    )
