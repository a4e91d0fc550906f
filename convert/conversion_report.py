"""A finished conversion as people read it: what moved, and by how much."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from headcount.model import limits
from headcount.model.units import format_indices
from headcount.report.report import Column, Fact, Report, Table

from .conversion import ConversionReport, LayerError
from .digest_record import DIGEST_OF_TENSORS
from .fitted_table import fitted_notes, fitted_tables
from .plan.describe import (
    budget_in_words,
    cache_in_words,
    mean_costs,
    method_in_words,
    pruned_in_words,
)
from .plan.existing import DIGEST
from .plan.plan import ConversionPlan
from .plan.rounding import rounding_of
from .plan.side_files import LeftFile
from .rewrite.layer import INPUTS

_COLUMNS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="before", title="K/V heads", unit="count"),
    Column(key="after", title="Now", unit="count"),
    Column(key="key_error", title="K moved", unit="percent"),
    Column(key="value_error", title="V moved", unit="percent"),
)
_OF_MEAN = (
    Column(key="key_error_of_mean", title="K by mean", unit="percent"),
    Column(key="value_error_of_mean", title="V by mean", unit="percent"),
)
_LATENTS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="kept_before", title="Elements", unit="count"),
    Column(key="latent_rank", title="Latent", unit="count"),
    Column(key="key_error", title="K lost", unit="percent"),
    Column(key="value_error", title="V lost", unit="percent"),
)
_ROTATED = Column(key="rotated_error", title="K not turned", unit="percent")
_OF_LATENTS = (
    "Elements: kept of a token and layer, as keys and values before. Lost: roots of the shares that"
    " are lost of the squares of the scores (K) and of the output (V), before anything is refitted."
)
_OF_ROTATED = (
    "Not turned: root of the share of the keys, as scores weigh it, that is read at its mean"
    " rotation and not at that of its position; K lost leaves it out."
)
_MOVED = "Moved: |merged - member| / |member| over all K (V) heads of a layer; 0 % is lossless."
_LOST = (
    "Moved: root of the share that is lost of the square of the scores (K) and of the output (V) of"
    " a layer's merged heads; by mean: what their mean would lose."
)
_DONE = {False: "converted and audited clean", True: "already done, nothing was written"}


def conversion_report(report: ConversionReport, *, is_evaluated: bool = False) -> Report:
    """What was done, and, unless it is evaluated by itself, what tells what that lost."""
    return Report(
        title=f"{report.target}: {_DONE[report.done_before]}",
        facts=(
            *_kept(report.plan),
            *_cache(report.plan),
            *_format(report.plan),
            Fact(key="nbytes", title="Weights", value=report.plan.nbytes, unit="bytes"),
        ),
        tables=(
            *_layers(report),
            *fitted_tables(report),
            *(table._replace(brief=0) for table in _files(report)),
        ),
        notes=(
            *_explained(report),
            *_inputs(report),
            *fitted_notes(report),
            *_missing(report.plan.left_files),
            *_cost(report),
            *_repeats(report),
            *_lost(report),
            *_digests(report),
            *report.plan.notes,
            *(() if is_evaluated else _next(report)),
        ),
        document=report.document(),
        title_is_answer=True,
    )


def _kept(plan: ConversionPlan) -> Iterator[Fact]:
    """What is kept of a token before and after, and how it was made."""
    if not plan.layers:
        yield Fact(key="heads", title="K/V heads", value="as they were")
        return
    if plan.request.latent is None:
        yield Fact(key="heads", title="K/V heads", value=_heads(plan), note=_query_heads(plan))
    else:
        pairs = dict.fromkeys((layer.kept_before, layer.latent_rank) for layer in plan.layers)
        kept = ", ".join(f"{before} -> {rank}" for before, rank in pairs)
        yield Fact(key="latent_rank", title="Elements of a token", value=kept, note="in each layer")
    yield from _pruned(plan)
    yield Fact(key="method", title="Method", value=method_in_words(plan))
    if plan.budget is not None:
        reached, *how = budget_in_words(plan.budget)
        yield Fact(key="budget", title="Budget", value=reached, note="; ".join(how))


def _cache(plan: ConversionPlan) -> Iterator[Fact]:
    if plan.layers:
        yield Fact(key="cache", title="KV cache", value=cache_in_words(plan))


def _format(plan: ConversionPlan) -> Iterator[Fact]:
    """What a GGUF file is, for those that load it."""
    if plan.gguf is not None:
        kinds = ", ".join(sorted({tensor.type for tensor in plan.gguf.tensors}))
        yield Fact(
            key="format", title="Format", value=f"GGUF, {plan.gguf.architecture}", note=kinds
        )


def _explained(report: ConversionReport) -> Iterator[str]:
    """What the columns of the layers say."""
    if report.plan.request.latent is not None:
        yield _OF_LATENTS
        if _not_turned(report):
            yield _OF_ROTATED
    elif report.plan.layers:
        yield _MOVED if report.plan.rewriting is None else _LOST


def _layers(report: ConversionReport) -> Iterator[Table]:
    """What moved in each layer, where any did."""
    plan = report.plan
    rewritten, pairs = plan.rewriting is not None, zip(plan.layers, report.layers, strict=True)
    columns: tuple[Column, ...] = _LATENTS
    if plan.request.latent is not None:
        turned = _not_turned(report)
        columns = (*_LATENTS, _ROTATED) if turned else _LATENTS
        rows = tuple(
            (
                *(planned.index, planned.kept_before, planned.latent_rank),
                *_errors(layer, False),
                *((turned[planned.index],) if turned else ()),
            )
            for planned, layer in pairs
        )
    else:
        columns = (*_COLUMNS, *_OF_MEAN) if rewritten else _COLUMNS
        rows = tuple(
            (planned.index, planned.before, planned.after, *_errors(layer, rewritten))
            for planned, layer in pairs
        )
    if rows:
        yield Table(key="layers", title="Layers", columns=columns, rows=rows)


def _not_turned(report: ConversionReport) -> dict[int, float]:
    """In percent, by layer; empty where keys keep their rotation."""
    made = {
        layer["index"]: (layer["rewritten"] or {}).get("latent") or {}
        for layer in report.record["layers"]
    }
    return {
        index: 100 * found["rotated_error"] ** 0.5
        for index, found in made.items()
        if "rotated_error" in found
    }


def _errors(layer: LayerError, rewritten: bool) -> Iterator[float | None]:
    """In percent; those of the mean where layers were rewritten."""
    yield from (100 * layer.key, 100 * layer.value)
    if rewritten:
        for error in (layer.key_mean, layer.value_mean):
            yield None if error is None else 100 * error


def _inputs(report: ConversionReport) -> Iterator[str]:
    """Without a text: how it is known what the layers read."""
    layers = [(layer["index"], layer.get("rewritten") or {}) for layer in report.record["layers"]]
    known = [(index, found[INPUTS]) for index, found in layers if INPUTS in found]
    measured = {found["random_tokens"] for _, found in known if found["assumed"] is None}
    for tokens in sorted(measured):
        yield f"What layers read was measured on {tokens:,} random tokens, since no text was given."
    reasons = dict.fromkeys(found["reason"] for _, found in known if found["assumed"] is not None)
    for reason in reasons:
        indices = format_indices([index for index, found in known if found["reason"] == reason])
        yield (
            f"What layers {indices} read was taken for white, which costs more where a model has"
            f" attention sinks or massive activations; random tokens could not be run: {reason}"
        )


def _heads(plan: ConversionPlan) -> str:
    pairs = dict.fromkeys((layer.before, layer.after) for layer in plan.layers)
    return ", ".join(f"{before} -> {after}" for before, after in pairs)


def _pruned(plan: ConversionPlan) -> Iterator[Fact]:
    """The query heads that are gone."""
    pairs = dict.fromkeys((la.num_attention_heads, la.query_heads) for la in plan.layers)
    if any(layer.pruned for layer in plan.layers):
        counts = ", ".join(f"{before} -> {after}" for before, after in pairs)
        yield Fact(key="query_heads", title="Query heads", value=counts, note=pruned_in_words(plan))


def _query_heads(plan: ConversionPlan) -> str:
    shapes = dict.fromkeys((layer.query_heads, layer.head_dim) for layer in plan.layers)
    return ", ".join(f"{heads} query heads of {head_dim}" for heads, head_dim in shapes)


def _lost(report: ConversionReport) -> Iterator[str]:
    """What a narrower type has not merely rounded. Of a target that is an earlier version's nothing
    is known."""
    tensors: dict[str, dict[str, int]] = report.record.get("rounding", {}).get("lost", {})
    kind = rounding_of(report.plan).cast
    for what, words in (
        ("zeros", "became 0"),
        ("small", f"are so small in {kind} that they lost digits"),
    ):
        counts = {name: found[what] for name, found in tensors.items() if found[what]}
        if counts:
            most = max(counts, key=lambda name: counts[name])
            yield (
                f"Rounding to {kind}: {sum(counts.values()):,} numbers of {len(counts):,} tensors"
                f" {words}, most of them in {most}."
            )


def _files(report: ConversionReport) -> Iterator[Table]:
    """The files that were read, and those that were written, each with its digest."""
    columns = (
        Column(key="name", title="File"),
        Column(key="bytes", title="Bytes", unit="exact_bytes"),
        Column(key="digest", title="XXH3, 128 bits (* docs/verify.md)"),
    )
    for key, title, entries in _named(report):
        rows = tuple(
            (name, entry["bytes"], entry.get(DIGEST) or f"{entry[DIGEST_OF_TENSORS]} *")
            for name, entry in islice(entries.items(), limits.FILES_SHOWN.most)
        )
        yield Table(key=key, title=title, columns=columns, rows=rows)


def _named(report: ConversionReport) -> Iterator[tuple[str, str, Mapping[str, Mapping[str, Any]]]]:
    yield "inputs", "Read", report.record["digests"]["inputs"]
    yield "manifest", "Written", report.record["manifest"]


def _digests(report: ConversionReport) -> Iterator[str]:
    more = sum(max(len(entries) - limits.FILES_SHOWN.most, 0) for _, _, entries in _named(report))
    if more:
        yield f"conversion.json names the digests of {more} more files"


def _missing(left: Sequence[LeftFile]) -> Iterator[str]:
    """Files that the result needs by their names and has not, one by one; the others together."""
    for file in left:
        if file.is_part:
            yield f"Not copied, and may be missed: {file.name} ({file.reason}); copy it by hand"
    others = [file.name for file in left if not file.is_part]
    if others:
        most = limits.FILES_SHOWN.most
        more = f" and {len(others) - most:,} more" if len(others) > most else ""
        yield f"Not copied, as not part of the model: {', '.join(others[:most])}{more}"


def _cost(report: ConversionReport) -> Iterator[str]:
    """What averaging has cost heads that differed."""
    if any(layer.key or layer.value for layer in report.layers):
        yield from mean_costs(report.plan)


def _next(report: ConversionReport) -> Iterator[str]:
    """The command that measures a folder that is no longer what it was."""
    plan = report.plan
    is_whole = all(layer.lossless for layer in report.layers)
    if is_whole or plan.gguf is not None or plan.request.source_name is not None:
        return
    text = "--pairs FILE" if plan.config.get("is_encoder_decoder") else "--text FILE"
    folders = shlex.quote(str(report.target)), shlex.quote(str(plan.source.folder))
    yield (
        f"What was lost: headcount evaluate {folders[0]} --against {folders[1]} {text}, and with"
        " --card it is written into the model card"
    )


def _repeats(report: ConversionReport) -> Iterator[str]:
    """What the heads themselves say: copies of each other make a conversion lossless."""
    if not report.layers:
        return
    if all(layer.lossless for layer in report.layers):
        kind = rounding_of(report.plan).type
        rounded = "" if kind is None else f", up to rounding to {kind}"
        yield f"All merged heads were equal: the result computes what the source does{rounded}."
        return
    if any(layer.pruned or layer.latent_rank for layer in report.plan.layers):
        return
    pairs = zip(report.plan.layers, report.layers, strict=True)
    copies = sorted({layer.distinct for planned, layer in pairs if layer.distinct < planned.before})
    if copies:
        yield (
            f"The source holds copies of K/V heads: --kv-heads {copies[-1]} merges only heads that"
            " are equal, so that nothing is lost"
        )
