"""What only the methods that read weights ask for: means need less, and find it by themselves."""

from headcount.audit.packed import FLOATS

from ...attention_map.attention_tensors import AttentionTensors
from ..errors import CannotConvertError
from ..heads import HeadsByLayer
from ..request import ConversionRequest
from ..source import ConversionSource

_OTHER_METHODS = "only --method mean, first, medoid and random can do with that"


def check_mergeable(source: ConversionSource) -> None:
    """Raises CannotConvertError unless q, k, v and o of every attention are known."""
    for one in source.attention_map.attentions.values():
        _check_shapes(source, one)
        _check_parts(source, one)


def _check_shapes(source: ConversionSource, one: AttentionTensors) -> None:
    for held in one.projections:
        tensor = held.tensor
        if tensor.dtype not in FLOATS or not held.fits:
            raise CannotConvertError(
                f"{source.folder / tensor.file}: tensor {tensor.name!r} ({tensor.dtype},"
                f" {list(tensor.shape)}) does not hold heads as it is known: {_OTHER_METHODS}"
            )


def _check_parts(source: ConversionSource, one: AttentionTensors) -> None:
    """Every part stands once."""
    index, cross = one.where
    for part in "qkvo" if one.mixer.has_value else "qko":
        held = (p for p in one.projections if part in p.parts and not p.is_bias)
        holders = [p.tensor.name for p in held]
        if len(holders) != 1:
            what = f"is held by {' and '.join(holders)}" if holders else "is not known"
            raise CannotConvertError(
                f"{source.folder}: {part} of layer {index}{' (cross-attention)' if cross else ''}"
                f" {what}: {_OTHER_METHODS}"
            )


def check_calibrated(
    source: ConversionSource, heads: HeadsByLayer, request: ConversionRequest
) -> None:
    """Raises CannotConvertError for what is merged by its weights alone."""
    changed = [where for where, own in heads.layers.items() if own.is_changed]
    crossed = any(cross for _, cross in changed) and not source.reads_pairs
    if request.calibration is None or not (crossed or heads.readers):
        return
    what = "cross-attention" if crossed else "layers that read another's keys and values"
    raise CannotConvertError(
        f"{source.folder}: has {what}, which --calibration cannot run layer by layer: use --method"
        " merge without it"
    )
