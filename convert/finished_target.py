"""Is a target already what a conversion would write?"""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import HeadcountError

from .gguf.gguf_file import NAME
from .plan.errors import TargetError
from .plan.existing import DIGEST, Existing
from .plan.model_card import CARD
from .plan.plan import ConversionPlan
from .plan.same_job import check_same_job
from .plan.side_files import RECORD
from .plan.source import CONFIG
from .stream.hashing import digest_of


def check_finished(plan: ConversionPlan, existing: Existing) -> None:
    """Raises TargetError unless `existing` is the whole output of this plan, byte for byte.

    The values of the source's tensors are not read: a source file that was written, moved or
    touched after the output counts as changed.
    """
    check_same_job(existing, plan)
    _check_age(plan, existing)
    if existing.manifest.keys() != _names(plan) or not _is_measured(plan, existing.record):
        raise _other(existing, "its conversion.json was changed since it was written")
    for name, entry in existing.manifest.items():
        try:
            same = digest_of(existing.folder / name) == entry[DIGEST]
        except HeadcountError:
            same = False
        if not same:
            raise _other(existing, f"{name} is missing or was changed since it was written")
    for file in plan.side_files:
        if digest_of(file.path, file.identity) != existing.manifest[file.name][DIGEST]:
            raise _other(existing, f"the source's {file.name} is another one now")
    plan.source.check()


def _names(plan: ConversionPlan) -> set[str]:
    beside = {CARD, *(file.name for file in plan.side_files)}
    if plan.gguf is not None:
        return {NAME, *beside}
    index = set() if plan.index_name is None else {plan.index_name}
    return {CONFIG, *index, *(file.name for file in plan.files), *beside}


def _check_age(plan: ConversionPlan, existing: Existing) -> None:
    written = (existing.folder / RECORD).stat().st_mtime_ns
    for path, identity in plan.source.files:
        # An older file that takes another's place keeps its time of writing, not that of change.
        changed = 0 if plan.request.source_made else identity.changed_ns
        if max(identity.modified_ns, changed) > written:
            raise _other(existing, f"the source's {path.name} was written or moved there later")


def _is_measured(plan: ConversionPlan, record: Mapping[str, Any]) -> bool:
    """Whether the record, which has no digest itself, says what a report needs of each layer and
    file."""
    layers, digests = record.get("layers"), record.get("digests")
    if not isinstance(layers, list) or not all(map(_is_layer, layers)):
        return False
    if not isinstance(digests, dict) or not isinstance(digests.get("inputs"), dict):
        return False
    return [layer["index"] for layer in layers] == [layer.index for layer in plan.layers]


def _is_layer(layer: Any) -> bool:
    if not isinstance(layer, dict) or not isinstance(layer.get("relative_error"), dict):
        return False
    return (
        type(layer.get("index")) is int
        and all(isinstance(layer["relative_error"].get(part), float | int) for part in "kv")
        and isinstance(layer.get("kept", ""), list | None)
        and all(type(layer.get(key)) is bool for key in ("merged_equal", "lossless"))
        and type(layer.get("distinct_key_value_heads")) is int
    )


def _other(existing: Existing, what: str) -> TargetError:
    return TargetError(
        f"{existing.folder}: holds an earlier conversion, but {what}; name another folder, or"
        " replace it with --overwrite"
    )
