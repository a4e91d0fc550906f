"""Latents in place of keys and values: a modelling file of our own (convert/models) rebuilds them.

The way down to the latent stands beside the projections of k and v, which read it; a fused
projection is stored as q, k and v below its module. Everything else is as the source has it.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from headcount.arch.low_rank import RANKS
from headcount.arch.model_classes import LATENT_CLASS
from headcount.arch.our_types import LATENT, base_type
from headcount.sources.identity import identity_of
from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import HeadTensors, Where
from ..latent.names import down_name, key_value_tensors, part_name
from ..latent.ranks import ranks_of
from ..latent.refusals import check_latent
from ..latent.size import LatentSize
from ..plan.cast import CastName
from ..plan.heads import HeadsByLayer, heads_of
from ..plan.refusals.merging import check_mergeable
from ..plan.refusals.tensors import check_custom_layers
from ..plan.side_files import SideFile
from ..plan.source import ConversionSource
from ..plan.steps import Factor, Part, Step, computed, copy
from .class_names import classes_of_ours
from .home import Draft, Home
from .modeling_files import LATENT_MODULE, modeling_files

PROJECTIONS = "latent_projections"
_FILES = modeling_files(LATENT)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def latent(source: ConversionSource, size: LatentSize, dtype: CastName | None) -> Home:
    """Raises CannotConvertError, and HeadCountError for latents that are larger than what they
    take the place of."""
    check_latent(source)
    ranks = ranks_of(source, size, dtype)
    heads = {
        where: heads_of(mixer, mixer.num_key_value_heads)
        for where, mixer in source.attention_map.mixers.items()
    }
    return Home(
        name="latent",
        reason=f"{_FILES[0].name} beside the weights rebuilds keys and values",
        heads=HeadsByLayer(layers=heads),
        draft=lambda: _draft(source, ranks),
        config=lambda: _config(source, ranks),
        ranks=ranks,
    )


def _draft(source: ConversionSource, ranks: Mapping[Where, int]) -> Draft:
    check_mergeable(source)
    check_custom_layers(source)
    return Draft(
        steps={
            header.path.name: tuple(
                step for tensor in header.tensors for step in _steps(source, ranks, tensor)
            )
            for header in source.checkpoint.files
        },
        layers=tuple(sorted(index for index, _ in ranks)),
        side_files=tuple(
            SideFile(name=path.name, path=path, identity=identity_of(path.stat()))
            for path in _FILES
        ),
    )


def _steps(
    source: ConversionSource, ranks: Mapping[Where, int], tensor: TensorInfo
) -> Iterator[Step]:
    """What stands in place of one tensor of the source."""
    held = source.attention_map.by_name.get(tensor.name)
    if held is None or not (held.is_projection and held.has_key_value):
        yield copy(tensor)
        return
    rank, factor = ranks[held.where], Factor(layer=held.place.index)
    if "k" in held.parts and not held.is_bias:
        width = source.attention_map.mixers[held.where].in_features("k")
        one = source.attention_map.attentions[held.where]
        made_of = tuple(weight.tensor for weight in key_value_tensors(one))
        yield computed(down_name(held), made_of, (rank, width), factor)
    for part in held.parts:
        name, rows = part_name(held, part), _rows(held, part)
        if held.is_bias or part == "q":
            yield _unchanged(held, part, name, rows)
        else:
            yield computed(name, held.tensors, (rows, rank), factor)


def _unchanged(held: HeadTensors, part: str, name: str, rows: int) -> Step:
    """A bias, or the queries of a fused projection."""
    if held.parts == (part,):
        return copy(held.tensor)
    width = () if held.is_bias else (held.tensor.elements // held.blocks.rows,)
    return computed(name, held.tensors, (rows, *width), Part(source=held.blocks, part=part))


def _rows(held: HeadTensors, part: str) -> int:
    blocks = (block for block in held.blocks.blocks if block.part == part)
    return held.blocks.repeats * sum(block.heads * block.rows for block in blocks)


def _config(
    source: ConversionSource, ranks: Mapping[Where, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The source's config for the latent class of its own class, and what changed in it."""
    model_type = source.whole.config.read_as or base_type(source.model_type)
    named = classes_of_ours(source, model_type, LATENT_MODULE, LATENT_CLASS)
    projections = dict(_projections(source))
    layers = [layer.index for layer in source.audit.spec.layers]
    sizes = [ranks.get((index, False), 0) for index in layers]
    added = {
        "model_type": LATENT + model_type,
        **named.added,
        PROJECTIONS: projections,
        RANKS: sizes,
        **named.tokenizer,
    }
    changes = (
        f"model_type: {source.config.get('model_type', 'absent')} -> {added['model_type']}",
        *named.changes,
        f"{PROJECTIONS}: {', '.join(projections)}",
        f"{RANKS}: {_in_words(sizes)}",
        *named.tokenizer_changes,
    )
    return {**deepcopy(dict(source.config)), **added}, changes


def _in_words(sizes: list[int]) -> str:
    kinds = dict.fromkeys(size for size in sizes if size)
    return ", ".join(map(str, kinds)) + (" (by layer)" if len(kinds) > 1 else "")


def _projections(source: ConversionSource) -> Iterator[tuple[str, dict[str, Any]]]:
    """The path of each module that is replaced, and what it makes."""
    for tensor in source.checkpoint.tensors.values():
        held = source.attention_map.by_name.get(tensor.name)
        if held is None or not held.has_query_key_value or held.is_bias:
            continue
        path = _NUMBER.sub("*", tensor.name.rpartition(".")[0], count=1)
        if held.parts == ("q",) or held.parts in (("k",), ("v",)):
            yield path, {"parts": held.parts[0]}
        elif held.has_key_value:
            heads = {part: held.blocks.heads(part) for part in held.parts}
            parts, repeats = "".join(held.parts), held.blocks.repeats
            yield path, {"parts": parts, "repeats": repeats, "heads": heads}
