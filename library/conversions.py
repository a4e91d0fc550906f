"""`headcount.convert`: a model with fewer K/V heads, in a folder of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.convert.latent.size import (
    CacheBudget,
    LatentSize,
    parse_cache_budget,
    parse_latent_size,
)
from headcount.convert.merge.ladder import QUALITIES, HeadGrouping, Quality, Refit
from headcount.convert.plan.pruning import parse_pruned_heads
from headcount.convert.plan.quality import with_quality
from headcount.convert.plan.request import (
    ConversionRequest,
    ElementType,
    Format,
    HomeChoice,
    KeyValueHeads,
    Method,
    PrunedHeads,
    beside_latent,
    parse_key_value_heads,
)
from headcount.model.errors import HeadcountError
from headcount.report.report import Finding, Report, in_one_document
from headcount.running.extra import need_extra

from .result import Result, bars, public
from .values import (
    Check,
    Name,
    Size,
    flag,
    model_name,
    named,
    nbytes,
    one_of,
    path,
    settled,
    text,
    tokens,
)

if TYPE_CHECKING:
    from headcount.convert.conversion import ConversionReport
    from headcount.convert.plan.plan import ConversionPlan
    from headcount.convert.source_folder import SourceFolder


@dataclass(frozen=True, kw_only=True)
class ConvertedLayer:
    """What became of a layer's K/V heads, and how far their weights moved; None of a plan that was
    not carried out. `key_error` and `value_error` are |merged - member| / |member| over all
    members, or the root of the lost share of a rewritten layer's energy (docs/methods.md)."""

    index: int
    num_key_value_heads_before: int
    num_key_value_heads: int
    key_error: float | None
    value_error: float | None
    lossless: bool | None


@dataclass(frozen=True, kw_only=True)
class ConversionCheck:
    """Source and result on the same random tokens. `max_difference` is the largest of the logits,
    `relative_difference` that of their norms; `lossless`: they had to be equal. `cast` is the type
    that the source's numbers were rounded to first, `masked_heads` counts its query heads that
    were pruned. What a model has no cache for is None. `problems` is what is wrong, in
    sentences."""

    dtype: str
    lossless: bool
    masked_heads: int
    cast: str | None
    prompt_tokens: int
    max_difference: float
    relative_difference: float
    top1_agreement: float
    generated_tokens: int | None
    predicted_cache_bytes: int | None
    measured_cache_bytes: int | None
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConversionResult(Result):
    """A conversion: the content of its conversion.json or, of a dry run, the plan. `target` is None
    where nothing was written; `lossless` says whether only equal heads were merged."""

    target: Path | None
    source_model_type: str
    model_type: str
    home: str
    source_bytes: int
    bytes: int
    lossless: bool | None
    done_before: bool
    layers: tuple[ConvertedLayer, ...] = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)
    findings: tuple[Finding, ...] = field(repr=False)
    check: ConversionCheck | None
    check_report: Report | None = field(repr=False)

    @property
    def _reports(self) -> tuple[Report, ...]:
        return (self.report, *([] if self.check_report is None else [self.check_report]))


@public
def convert(
    source: Name,
    target: Name,
    *,
    num_key_value_heads: KeyValueHeads | str | None = None,
    pruned_heads: PrunedHeads | str | None = None,
    across_layers: bool = False,
    latent: LatentSize | str | None = None,
    cache_budget: CacheBudget | str | None = None,
    quality: Quality | None = None,
    method: Method | None = None,
    grouping: HeadGrouping | None = None,
    temperature: bool | None = None,
    refit: Refit | None = None,
    reconstruct: int | None = None,
    calibration: Name | None = None,
    calibration_tokens: Size | None = None,
    calibration_row_tokens: Size | None = None,
    calibration_device: str | None = None,
    seed: int = 0,
    home: HomeChoice = "auto",
    dtype: ElementType | None = None,
    format: Format = "safetensors",
    max_shard_size: Size | None = None,
    allow_pickle: bool = False,
    merge_adapter: bool = False,
    workers: int = 2,
    overwrite: bool = False,
    dry_run: bool = False,
    check: bool = False,
    progress: bool = False,
) -> ConversionResult:
    """Turns the model in the folder `source`, or of the Hub, into one with fewer K/V heads, in the
    new folder `target`. Needs the extra `convert`.

    `num_key_value_heads` is a number for all layers, or one for each of some ({0: 8, 1: 4}, or
    "0-15:8,16-31:4"); `pruned_heads`, `latent` ("by-layer" within a budget) and `cache_budget`
    ("48KiB", "1/4") as the command line takes them, too. `quality`
    (fast, good, best) sets `method` to `reconstruct`, of which those that are given come first;
    `calibration` is a UTF-8 file or "builtin"; layers run on `calibration_device` (cuda,
    cuda:1…), else on the CPU. `source` is never written to; `target` appears when
    it is whole and audited clean, and a second call finds it done. `dry_run` plans and writes
    nothing. `check` also runs source and result on a few tokens: what it finds is in the result.
    `progress`: bars on standard error, if that is a terminal.

    The process that calls it does all the work, also in a program that a launcher has started in
    several: that all of them would call it, and when, only the program knows, and one that waited
    for others that never come would wait for good. Call it in one of them; to share the work, start
    the command with the launcher (docs/scale.md).

    Raises HeadcountError for what cannot be converted, or written (WriteError).
    """
    need_extra("headcount.convert")
    options = {
        "num_key_value_heads": num_key_value_heads,
        "pruned_heads": pruned_heads,
        "latent": latent,
        "cache_budget": cache_budget,
        "across_layers": across_layers,
        **{"quality": quality, "method": method, "grouping": grouping, "refit": refit},
        **{"temperature": temperature, "reconstruct": reconstruct, "calibration": calibration},
        "calibration_tokens": calibration_tokens,
        "calibration_row_tokens": calibration_row_tokens,
        "calibration_device": calibration_device,
        "max_shard_size": max_shard_size,
        **{"seed": seed, "home": home, "dtype": dtype, "format": format, "workers": workers},
        "overwrite": overwrite,
    }
    with bars(progress):
        return _converted(
            model_name(source),
            path("target", target),
            conversion_options(options),
            allow_pickle=allow_pickle,
            merge_adapter=merge_adapter,
            dry_run=dry_run,
            checks=flag("check", check),
        )


_CHECKS: Mapping[str, Check] = {
    "quality": one_of(QUALITIES),
    "calibration": named,
    "calibration_tokens": tokens,
    "calibration_row_tokens": tokens,
    "calibration_device": text,
    "max_shard_size": nbytes,
}


def conversion_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a ConversionRequest, and `quality`, of which those are checked that are no more
    than a word or a size. Raises HeadcountError."""
    return settled(given, _CHECKS)


def _converted(
    source: str,
    target: Path,
    options: Mapping[str, Any],
    *,
    allow_pickle: bool,
    merge_adapter: bool,
    dry_run: bool,
    checks: bool,
) -> ConversionResult:
    from headcount.convert.plan.planner import plan_conversion
    from headcount.convert.plan_report import conversion_plan_report
    from headcount.convert.source_folder import source_folder

    def planned(found: "SourceFolder") -> "ConversionPlan":
        return plan_conversion(conversion_request(found, target, options))

    with source_folder(
        source,
        target,
        whole=not dry_run,
        allow_pickle=allow_pickle,
        merge_adapter=merge_adapter,
        judge=planned,
    ) as found:
        plan = planned(found)
        reports: tuple[Report, ...] = (conversion_plan_report(plan),)
        done_before = False
        if not dry_run:
            # These import torch, which a plan does without.
            from headcount.convert.conversion import apply_plan
            from headcount.convert.conversion_report import conversion_report

            done = apply_plan(plan)
            reports, done_before = (conversion_report(done),), done.done_before
            if checks:
                check = {"check": checked_conversion(target, done)[0]}
                reports = in_one_document(reports[0], check)
    document: Mapping[str, Any] = reports[0].document
    check_of = document.get("check")
    return ConversionResult(
        report=reports[0],
        check_report=reports[1] if len(reports) > 1 else None,
        target=None if dry_run else target,
        source_model_type=document["source"]["model_type"],
        model_type=document["target"]["model_type"],
        home=document["target"]["home"],
        source_bytes=document["source"]["bytes"],
        bytes=document["target"]["bytes"],
        lossless=document.get("lossless"),
        done_before=done_before,
        layers=tuple(_layer(layer) for layer in document["layers"]),
        notes=tuple(document["notes"]),
        findings=tuple(plan.findings),
        check=None if check_of is None else ConversionCheck(**check_of),
    )


def checked_conversion(target: Path, done: "ConversionReport") -> "tuple[Report, str]":
    """Runs the source of a conversion and its result on a few tokens: the report, and what is
    wrong, in one line. Raises HeadcountError."""
    from headcount.convert.check import check_conversion
    from headcount.convert.check_report import check_report
    from headcount.convert.plan.rounding import rounding_of

    checked = check_conversion(
        done.plan.source.folder,
        target,
        lossless=all(layer.merged_equal for layer in done.layers),
        rounding=rounding_of(done.plan),
        pruned={layer.index: layer.pruned for layer in done.plan.layers if layer.pruned},
    )
    done.plan.source.check()
    return check_report(checked, done.plan), "; ".join(checked.problems)


def _layer(document: Mapping[str, Any]) -> ConvertedLayer:
    heads, moved = document["num_key_value_heads"], document.get("relative_error") or {}
    return ConvertedLayer(
        index=document["index"],
        num_key_value_heads_before=heads["before"],
        num_key_value_heads=heads["after"],
        key_error=moved.get("k"),
        value_error=moved.get("v"),
        lossless=document.get("lossless"),
    )


def conversion_request(
    found: "SourceFolder", target: Path, options: Mapping[str, Any]
) -> ConversionRequest:
    """The request of the fields `options`, with `quality` among them, for the source that was
    `found`. Texts are read as the command line's. Raises HeadcountError."""
    counts = {
        "num_key_value_heads": _read(parse_key_value_heads, options["num_key_value_heads"]),
        "pruned_heads": _read(parse_pruned_heads, options["pruned_heads"]),
        "latent": _read(parse_latent_size, options["latent"]),
        "cache_budget": _read(parse_cache_budget, options["cache_budget"]),
    }
    for name in counts:
        if isinstance(counts[name], bool):
            raise HeadcountError(f"{name} is {counts[name]}; a number is meant")
    for name in ("method", "grouping"):  # what is asked for, were it what merging does by itself
        if counts["latent"] is not None and options[name] is not None:
            raise HeadcountError(beside_latent(f"--{name} {options[name]}"))
    return ConversionRequest(
        source=found.path,
        source_name=found.name,
        source_made=found.made,
        target=target,
        **{**with_quality(options), **counts},
    )


def _read(parse: Any, value: object) -> Any:
    return parse(value) if isinstance(value, str) else value
