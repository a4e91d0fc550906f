"""Which files the tensors go into: those of the source, or new ones of a given size."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headcount.sources.checkpoint import INDEX, SINGLE
from headcount.sources.json_file import parse_json

from .errors import CannotConvertError
from .plan import OutputFile
from .source import ConversionSource
from .steps import Step

_SHARD = re.compile(r"-\d+-of-\d+(?=\.)")


def output_files(
    source: ConversionSource, steps: Mapping[str, tuple[Step, ...]], max_shard_size: int | None
) -> tuple[OutputFile, ...]:
    """The steps of each source file by its name as files of the output, in the source's order.

    Raises CannotConvertError for a tensor that stands twice.
    """
    _check_names(source, (step for file in steps.values() for step in file))
    headers = source.checkpoint.files
    if max_shard_size is None:
        kept = [header for header in headers if steps[header.path.name]]
        names = [header.path.name for header in kept]
        if len(kept) < len(headers):
            names = _numbered(names)
        return tuple(
            OutputFile(name=name, metadata=header.metadata, steps=steps[header.path.name])
            for name, header in zip(names, kept, strict=True)
        )
    everything = (step for header in headers for step in steps[header.path.name])
    shards = tuple(_shards(everything, max_shard_size))
    return tuple(
        OutputFile(name=name, metadata=headers[0].metadata, steps=shard)
        for name, shard in zip(_names(len(shards)), shards, strict=True)
    )


def index_name(source: ConversionSource, files: tuple[OutputFile, ...]) -> str | None:
    """The name of the index that the files need; None for a file that transformers finds alone."""
    if [file.name for file in files] == [SINGLE]:
        return None
    if [file.name for file in files] == [header.path.name for header in source.checkpoint.files]:
        return source.checkpoint.index.name if source.checkpoint.index else None
    return INDEX


def index_of(source: ConversionSource, files: tuple[OutputFile, ...]) -> Mapping[str, Any]:
    """The source's index, if it has one, with the sizes and names of the output."""
    read = source.checkpoint.index_file
    old = {} if read is None else parse_json(read.start, str(read.path), allow_non_finite=True)
    given = old.get("metadata")
    metadata = dict(given) if isinstance(given, dict) else {}
    metadata["total_size"] = sum(file.nbytes for file in files)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(s.elements for file in files for s in file.steps)
    weight_map = {step.name: file.name for file in files for step in file.steps}
    return {**old, "metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}


def _shards(steps: Iterable[Step], limit: int) -> Iterator[tuple[Step, ...]]:
    """Runs of at most `limit` bytes; a tensor that is larger goes alone."""
    shard: list[Step] = []
    nbytes = 0
    for step in steps:
        if shard and nbytes + step.nbytes > limit:
            yield tuple(shard)
            shard, nbytes = [], 0
        shard.append(step)
        nbytes += step.nbytes
    yield tuple(shard)


def _names(count: int) -> Iterator[str]:
    """As transformers numbers them."""
    if count == 1:
        yield SINGLE
    else:
        for number in range(1, count + 1):
            yield f"model-{number:05}-of-{count:05}.safetensors"


def _numbered(names: list[str]) -> list[str]:
    """Shards under the numbers that they have once some are left with no tensor."""
    return [
        _SHARD.sub(f"-{number:05}-of-{len(names):05}", name)
        for number, name in enumerate(names, start=1)
    ]


def _check_names(source: ConversionSource, steps: Iterable[Step]) -> None:
    seen: set[str] = set()
    for step in steps:
        if step.name in seen:
            raise CannotConvertError(
                f"{source.folder}: tensor {step.name!r} stands in two shards: remove the stale one"
            )
        seen.add(step.name)
