"""Layers that no text tells of: what they read is measured on random tokens, or else assumed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headcount.model.errors import HeadcountError, SourceChangedError
from headcount.sources.presence import is_failing_disk

from ..plan.source import ConversionSource
from ..rewrite.layer import INPUTS, RewrittenLayer
from .random_tokens import RANDOM_TOKENS


def layers_without_text(
    source: ConversionSource, measured: Iterator[RewrittenLayer], assumed: Iterator[RewrittenLayer]
) -> Iterator[RewrittenLayer]:
    """`measured`, as random tokens tell; from where the source cannot be run on, those of `assumed`
    that are left, as if what layers read were white. Each says which, and why. Raises
    SourceChangedError, HeadcountError where the disk fails, and what `assumed` raises."""
    made = set()
    try:
        for layer in measured:
            yield _said(layer, {"random_tokens": RANDOM_TOKENS, "assumed": None, "reason": None})
            made.add(layer.index)
        return
    except SourceChangedError:
        raise
    except HeadcountError as error:
        if is_failing_disk(error):
            raise
        reason = _reason(source, error)
    known = {"random_tokens": 0, "assumed": "white", "reason": reason}
    yield from (_said(layer, known) for layer in assumed if layer.index not in made)


def _reason(source: ConversionSource, error: HeadcountError) -> str:
    """Without the folder's path, which says nothing elsewhere, and without what to do instead."""
    said = str(error).replace(str(source.folder), source.folder.name)
    return said.partition(": use --method merge without")[0]


def _said(layer: RewrittenLayer, inputs: Mapping[str, Any]) -> RewrittenLayer:
    """A layer that stays as it is says nothing, and one of an earlier run has said it."""
    if not layer.measured or INPUTS in layer.measured:
        return layer
    return replace(layer, measured={**layer.measured, INPUTS: dict(inputs)})
