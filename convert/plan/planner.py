"""From a request to a plan: every check that can be made without reading a tensor is made here."""

from collections.abc import Mapping
from typing import Any

from headcount.audit.source.json_file import read_json
from headcount.audit.source.safetensors import MAX_HEADER_BYTES

from .class_limits import NOT_RUN
from .draft import Draft, HeadsByLayer
from .errors import CannotConvertError
from .homes import find_home
from .plan import ConversionPlan, LayerHeads, OutputFile
from .request import ConversionRequest
from .side_files import sort_side_files
from .source import CONFIG, Source, read_source, source_state
from .target import check_space, check_target

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json"),
    *("spiece.model", "tekken.json"),
)


def plan_conversion(request: ConversionRequest) -> ConversionPlan:
    """What converting would do. Reads config, headers and folder entries; writes nothing.

    Raises HeadcountError for a source that is broken or cannot be converted, a target that may not
    be written, and WriteError where the result would not fit on the disk.
    """
    source = read_source(request.source)
    check_target(request.source, request.target)
    home, heads = find_home(source, request.num_key_value_heads)
    draft = home.steps(source, heads)
    config, config_changes = home.config(source, heads)
    files = _files(source, draft)
    written = frozenset({CONFIG, *(file.name for file in files), *_index_names(source)})
    side_files, left_files = sort_side_files(request.source, written)
    plan = ConversionPlan(
        request=request,
        source=source_state(source, side_files),
        model_type=source.audit.spec.model_type,
        home=f"{home.name}: {home.reason}",
        files=files,
        dropped=draft.dropped,
        layers=tuple(_layer(index, heads) for index in draft.layers),
        layer_count=len({*draft.layers, *(la.index for la in source.audit.spec.layers)}),
        config=config,
        config_changes=config_changes,
        index_name=source.checkpoint.index.name if source.checkpoint.index else None,
        index=_index(source, files),
        side_files=side_files,
        left_files=left_files,
        notes=(*draft.notes, *heads.notes, *_notes(source)),
        findings=tuple(f for f in source.audit.findings if f.severity == "warning"),
    )
    check_space(request.target, plan.total_nbytes)
    return plan


def _layer(index: int, model: HeadsByLayer) -> LayerHeads:
    heads = model.of(index) or model.of(index, cross=True)
    assert heads is not None
    return LayerHeads(
        index=index,
        num_attention_heads=heads.num_attention_heads,
        before=heads.before,
        after=heads.after,
        head_dim=heads.head_dim,
        padded_heads=heads.padded_heads if heads.is_padded else None,
    )


def _files(source: Source, draft: Draft) -> tuple[OutputFile, ...]:
    """The source's files with the draft's tensors. A name may stand only once."""
    files = tuple(
        OutputFile(
            name=header.path.name,
            metadata=header.metadata,
            steps=draft.steps[header.path.name],
        )
        for header in source.checkpoint.files
    )
    seen: set[str] = set()
    for step in (step for file in files for step in file.steps):
        if step.name in seen:
            raise CannotConvertError(
                f"{source.folder}: tensor {step.name!r} stands in two shards: remove the stale one"
            )
        seen.add(step.name)
    return files


def _index_names(source: Source) -> tuple[str, ...]:
    return (source.checkpoint.index.name,) if source.checkpoint.index else ()


def _index(source: Source, files: tuple[OutputFile, ...]) -> Mapping[str, Any] | None:
    """The source's index with the sizes and names of the output."""
    if source.checkpoint.index is None:
        return None
    old = read_json(source.checkpoint.index, MAX_HEADER_BYTES)
    given = old.get("metadata")
    metadata = dict(given) if isinstance(given, dict) else {}
    metadata["total_size"] = sum(file.nbytes for file in files)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(s.elements for file in files for s in file.steps)
    weight_map = {step.name: file.name for file in files for step in file.steps}
    return {**old, "metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}


def _notes(source: Source) -> tuple[str, ...]:
    notes = []
    if source.config.get("auto_map"):
        notes.append(
            "config.json names code files (auto_map), which are not copied: transformers' own class"
            " loads the result"
        )
    if source.audit.spec.model_type in NOT_RUN:
        notes.append(
            "no model of this type was ever converted and compared as a whole; its language model's"
            " type was"
        )
    if not any((source.folder / name).exists() for name in _TOKENIZERS):
        notes.append("the source has no tokenizer, so the result has none")
    return tuple(notes)
