"""The conversion: plan, stream, verify, and only then the final name."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from headcount.audit.source.json_file import open_regular

from .plan.document import plan_summary
from .plan.plan import ConversionPlan, SideFile
from .plan.planner import plan_conversion
from .plan.request import ConversionRequest
from .plan.side_files import RECORD
from .plan.source import CONFIG, check_unchanged
from .plan.target import check_target
from .stream.failure import writing
from .stream.reader import SourceReader
from .stream.threads import one_thread
from .stream.weights import Outcome, WeightStream
from .stream.work_folder import WorkFolder
from .stream.writer import Advance, NewFile, check_written, json_bytes, write_bytes
from .verify import verify_output


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerError:
    """How far a layer's K and V weights moved: |pooled - member| / |member| over all members. Where
    the values are the keys, both are the same.

    `kept` are the source heads that a choosing method kept, None for the mean. `lossless`: every
    merged head equals the heads that it stands for. `distinct`: how many of the source's K/V heads
    are no copies of their neighbours.
    """

    index: int
    key: float
    value: float
    kept: tuple[int, ...] | None
    lossless: bool
    distinct: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionReport:
    """A finished conversion: the plan, where the output is, and what was measured on the way."""

    plan: ConversionPlan
    target: Path
    layers: tuple[LayerError, ...]

    def document(self) -> dict[str, object]:
        """The content of conversion.json."""
        return _record(self.plan, self.layers)


def convert(request: ConversionRequest, *, progress: bool = True) -> ConversionReport:
    """Plans and applies. Raises HeadcountError, WriteError; the target exists only on success."""
    return apply_plan(plan_conversion(request), progress=progress)


def apply_plan(plan: ConversionPlan, *, progress: bool = True) -> ConversionReport:
    """Writes what `plan` says, beside the target, and renames it when it is whole and verified.

    `progress`: a bar on stderr, if that is a terminal. Raises BadValuesError for NaN, infinity or
    overflow in what is pooled, SourceChangedError, SelfCheckError, and WriteError.
    """
    request = plan.request
    check_target(request.source, request.target)
    work = WorkFolder(request.target)
    for stale in work.remove_stale():
        print(f"removed {stale}, which a killed run had left", file=sys.stderr)
    hidden = not progress or not sys.stderr.isatty()
    bar = tqdm(total=plan.total_nbytes, unit="B", unit_scale=True, disable=hidden, file=sys.stderr)
    with writing(request.target, plan.total_nbytes), bar, work as folder:
        outcome = _write_weights(plan, folder, bar.update)
        layers = _layer_errors(plan, outcome)
        for side_file in plan.side_files:
            _copy_side_file(side_file, folder, bar.update)
        check_unchanged(plan.source)
        if plan.index is not None and plan.index_name is not None:
            write_bytes(folder / plan.index_name, json_bytes(plan.index))
        write_bytes(folder / RECORD, json_bytes(_record(plan, layers)))
        write_bytes(folder / CONFIG, json_bytes(plan.config))
        verify_output(plan, folder)
        work.commit()
    return ConversionReport(plan=plan, target=request.target, layers=layers)


def _write_weights(plan: ConversionPlan, folder: Path, advance: Advance) -> Outcome:
    with one_thread(), SourceReader(plan.request.source) as reader:
        stream = WeightStream(plan, reader, advance)
        for file in plan.files:
            stream.write(file, folder / file.name)
            check_written(folder / file.name, file)
        return stream.outcome


def _copy_side_file(side_file: SideFile, folder: Path, advance: Advance) -> None:
    descriptor = open_regular(side_file.path)
    try:
        with NewFile(folder / side_file.name, advance) as out:
            out.copy(descriptor, 0, side_file.nbytes)
    finally:
        os.close(descriptor)


def _layer_errors(plan: ConversionPlan, outcome: Outcome) -> tuple[LayerError, ...]:
    return tuple(
        LayerError(
            index=layer.index,
            key=outcome.errors[layer.index, "k"],
            value=outcome.errors.get((layer.index, "v"), outcome.errors[layer.index, "k"]),
            kept=outcome.chosen.get(layer.index),
            lossless=layer.index not in outcome.moved,
            distinct=outcome.repeats.distinct(layer.index),
        )
        for layer in plan.layers
    )


def _record(plan: ConversionPlan, layers: tuple[LayerError, ...]) -> dict[str, object]:
    measured = {
        layer.index: {
            "relative_error": {"k": layer.key, "v": layer.value},
            "kept": None if layer.kept is None else list(layer.kept),
            "lossless": layer.lossless,
            "distinct_key_value_heads": layer.distinct,
        }
        for layer in layers
    }
    summary = plan_summary(plan)
    planned = summary["layers"]
    assert isinstance(planned, list)
    merged = [{**entry, **measured[entry["index"]]} for entry in planned]
    return {**summary, "lossless": all(layer.lossless for layer in layers), "layers": merged}
