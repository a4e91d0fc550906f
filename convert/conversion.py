"""The conversion: plan, stream, verify, and only then the final name."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headcount.running.progress import progress_bar
from headcount.running.signals import SIGNALLED

from .audited_output import verify_output
from .digest_record import digest_record
from .finished_target import check_finished
from .latent.made_layer import LATENT
from .plan.document import plan_summary, request_document
from .plan.existing import check_foreign, read_existing
from .plan.job import job_of, local_job_of
from .plan.model_card import CARD
from .plan.plan import ConversionPlan, LayerHeads
from .plan.planner import plan_conversion
from .plan.request import ConversionRequest
from .plan.rounding import rounding_of
from .plan.side_files import RECORD
from .plan.source import CONFIG
from .plan.target import check_target
from .rewrite.layer import merged_documents
from .rewrite.store import NOTHING, Rewritten, redirected, rewrite_layers
from .stream.float_casts import Lost
from .stream.hashing import digest_of_bytes
from .stream.lock import TargetLock
from .stream.os_failures import writing
from .stream.outcome import Outcome
from .stream.reader import SourceReader
from .stream.shards import write_shards
from .stream.side_file_copy import copy_side_file
from .stream.work_folder import WorkFolder
from .stream.writer import Written, json_bytes, write_bytes

# Said when a signal ends the process after a target has got its name.
COMPLETE = "is complete; the same command shows its report"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerError:
    """How far a layer's K and V weights moved: |pooled - member| / |member| over all members. Where
    the values are the keys, both are the same. Of a layer that was rewritten, the root of the share
    of its scores' (`key`) and its output's (`value`) energy that is lost: with the mean of the same
    heads it would be `key_mean` and `value_mean`.

    `kept` are the source heads that a choosing method kept, None for the mean. `merged_equal`:
    every merged head equals those that it stands for. `lossless`: so it is, and no head was pruned.
    `distinct`: how many of the source's K/V heads, pruned ones apart, are no copies of their
    neighbours.
    """

    index: int
    key: float
    value: float
    kept: tuple[int, ...] | None
    merged_equal: bool
    lossless: bool
    distinct: int
    key_mean: float | None = None
    value_mean: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionReport:
    """A finished conversion: the plan, where the output is, what was measured on the way, and the
    content of conversion.json. `done_before`: an earlier run has written it, this one nothing."""

    plan: ConversionPlan
    target: Path
    layers: tuple[LayerError, ...]
    record: Mapping[str, Any]
    done_before: bool

    def document(self) -> dict[str, object]:
        """The content of conversion.json."""
        return dict(self.record)


def convert(request: ConversionRequest, *, progress: bool = True) -> ConversionReport:
    """Plans and applies. Raises HeadcountError, WriteError; the target exists only on success."""
    return apply_plan(plan_conversion(request), progress=progress)


def apply_plan(
    plan: ConversionPlan, *, progress: bool = True, resumable: bool = True
) -> ConversionReport:
    """Writes what `plan` says, beside the target, and renames it when it is whole and verified.

    What a killed run of the same job has left is used; a target that this job has written already
    is left as it is. `progress`: a bar on stderr, if that is a terminal. `resumable`: layers that a
    signal finds rewritten are kept for the next run, and one that comes too late to stop anything
    is answered with a line that says so. Raises BadValuesError for
    NaN, infinity or overflow in what is computed, SourceChangedError, SelfCheckError, TargetError,
    and WriteError.
    """
    request = plan.request
    check_target(request.source, request.target)
    work = WorkFolder(request.target, local_job_of(plan), resumable=resumable)
    try:
        return _apply(plan, work, progress)
    except SIGNALLED:
        if work.is_done and resumable:
            print(f"{request.target}: {COMPLETE}", file=sys.stderr)
        raise


def _apply(plan: ConversionPlan, work: WorkFolder, progress: bool) -> ConversionReport:
    request = plan.request
    with writing(request.target, plan.needed_nbytes), TargetLock(request.target), work:
        check_target(request.source, request.target)  # which may have changed before we had it
        existing = read_existing(request.target)
        if existing is not None and not request.overwrite:
            check_finished(plan, existing)
            return _report(plan, existing.record, done_before=True)
        record = _write(plan, work, progress)
        if existing is not None:
            check_foreign(existing)
        work.commit(replacing=existing is not None)
    return _report(plan, record, done_before=False)


def _write(plan: ConversionPlan, work: WorkFolder, progress: bool) -> dict[str, Any]:
    """The model, whole and verified, in the work folder; returns its record."""
    size = plan.total_nbytes
    work.start()
    rewritten = NOTHING
    if plan.rewriting is not None:
        rewritten = rewrite_layers(plan.rewriting, work, progress=progress)
    with progress_bar(None, "writing", "B", shown=progress, total=size) as bar:
        reader = SourceReader(plan.source.headers, rewritten.files)
        redirect = redirected(plan, rewritten)
        if redirect.gguf is None:
            outcome = write_shards(redirect, reader, work, bar.update)
        else:
            from .gguf.writing import write_gguf  # imports the package gguf

            outcome = write_gguf(redirect, redirect.gguf, reader, work, bar.update)
        manifest = {
            file.name: Written(nbytes=file.nbytes, digest=file.digest) for file in work.of_model
        }
        for side_file in plan.side_files:
            manifest[side_file.name] = copy_side_file(side_file, work.model, bar.update)
    plan.source.check()
    if plan.index is not None and plan.index_name is not None and plan.gguf is None:
        index = json_bytes(plan.index)
        manifest[plan.index_name] = write_bytes(work.model / plan.index_name, index)
    manifest[CARD] = write_bytes(work.model / CARD, plan.card.encode())
    config = json_bytes(plan.config)
    if plan.gguf is None:
        manifest[CONFIG] = Written(nbytes=len(config), digest=digest_of_bytes(config))
    entries = {name: manifest[name].document() for name in sorted(manifest)}
    record = {
        **_record(plan, _layer_errors(plan, outcome, rewritten), rewritten, outcome.lost),
        "digests": digest_record(plan, work, rewritten, entries),
        "manifest": entries,
    }
    write_bytes(work.model / RECORD, json_bytes(record))
    if plan.gguf is None:
        write_bytes(work.model / CONFIG, config)
    verify_output(plan, work.model)
    return record


def _layer_errors(
    plan: ConversionPlan, outcome: Outcome, rewritten: Rewritten
) -> tuple[LayerError, ...]:
    if plan.request.latent is not None:
        return tuple(_of_latent(layer, rewritten.measured[layer.index]) for layer in plan.layers)
    pooled = (
        LayerError(
            index=layer.index,
            key=outcome.errors[layer.index, "k"],
            value=outcome.errors.get((layer.index, "v"), outcome.errors[layer.index, "k"]),
            kept=outcome.chosen.get(layer.index),
            merged_equal=layer.index not in outcome.moved,
            lossless=layer.index not in outcome.moved and not layer.pruned,
            distinct=outcome.repeats.distinct(layer.index),
        )
        for layer in plan.layers
    )
    return tuple(_as_rewritten(layer, rewritten) for layer in pooled)


def _of_latent(layer: LayerHeads, measured: Mapping[str, Any]) -> LayerError:
    """What a latent has lost of a layer. Products of matrices round, so that none is lossless."""
    found = measured[LATENT]
    return LayerError(
        index=layer.index,
        key=float(f"{found['key_error'] ** 0.5:.4g}"),
        value=float(f"{found['value_error'] ** 0.5:.4g}"),
        kept=None,
        merged_equal=False,
        lossless=False,
        distinct=layer.before,
    )


def _as_rewritten(pooled: LayerError, rewritten: Rewritten) -> LayerError:
    """What rewriting has lost of a layer, if it was: pooling what is equal loses nothing."""
    merged = merged_documents(rewritten.measured.get(pooled.index, {}))
    if not merged:
        return pooled

    def lost(name: str) -> float:
        return float(f"{max(one[name] for one in merged) ** 0.5:.4g}")

    return replace(
        pooled,
        key=lost("key_error"),
        value=lost("value_error"),
        key_mean=lost("key_mean_error"),
        value_mean=lost("value_mean_error"),
        merged_equal=False,
        lossless=False,
        distinct=rewritten.distinct[pooled.index],
    )


def _record(
    plan: ConversionPlan,
    layers: tuple[LayerError, ...],
    rewritten: Rewritten,
    lost: Mapping[str, Lost],
) -> dict[str, Any]:
    """The content of conversion.json but for its digests."""
    measured = {
        layer.index: {
            "relative_error": {"k": layer.key, "v": layer.value},
            "kept": None if layer.kept is None else list(layer.kept),
            "merged_equal": layer.merged_equal,
            "lossless": layer.lossless,
            "distinct_key_value_heads": layer.distinct,
            "relative_error_of_mean": None
            if layer.key_mean is None
            else {"k": layer.key_mean, "v": layer.value_mean},
            "rewritten": rewritten.measured.get(layer.index),
        }
        for layer in layers
    }
    summary = plan_summary(plan)
    planned = summary["layers"]
    assert isinstance(planned, list)
    merged = [{**entry, **measured[entry["index"]]} for entry in planned]
    return {
        **summary,
        "lossless": all(layer.lossless for layer in layers),
        "rounding": {
            **rounding_of(plan)._asdict(),
            "lost": {name: lost[name]._asdict() for name in sorted(lost)},
        },
        "layers": merged,
        "job": job_of(plan),
        "request": request_document(plan.request),
    }


def _report(
    plan: ConversionPlan, record: Mapping[str, Any], *, done_before: bool
) -> ConversionReport:
    layers = tuple(
        LayerError(
            index=layer["index"],
            key=layer["relative_error"]["k"],
            value=layer["relative_error"]["v"],
            kept=None if layer["kept"] is None else tuple(layer["kept"]),
            merged_equal=layer["merged_equal"],
            lossless=layer["lossless"],
            distinct=layer["distinct_key_value_heads"],
            key_mean=(layer["relative_error_of_mean"] or {}).get("k"),
            value_mean=(layer["relative_error_of_mean"] or {}).get("v"),
        )
        for layer in record["layers"]
    )
    return ConversionReport(
        plan=plan,
        target=plan.request.target,
        layers=layers,
        record=record,
        done_before=done_before,
    )
