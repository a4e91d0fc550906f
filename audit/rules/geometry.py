"""Rules that hold the shapes in the headers against the config."""

import re
from collections.abc import Iterable, Iterator
from math import prod

from headcount.arch.tensors.places import PLAIN_PARAMETERS, numbered
from headcount.model.mixers import (
    Attention,
    CompressedAttention,
    LatentAttention,
    LowRankAttention,
    Mixer,
)
from headcount.model.units import format_indices, key_value_heads

from ..census import Placed, count_parts
from ..observe import Observed, is_turned
from ..packed import FLOATS
from .rule import Sighting, rule
from .weight_facts import WeightFacts

_KEY = re.compile(r"\((\w+)\)$")  # another name that stands in the file, in an origin
_TRUST = "memory follows the weights; correct config.json, or take the config of these weights"


@rule("H101", "kv-heads-mismatch", "error", _TRUST)
def kv_heads(facts: WeightFacts) -> Iterator[Sighting]:
    """The rows of k_proj are another number of K/V heads than the config's."""
    # And, where norms tell how wide a head is, those of q_proj another number of query heads.
    yield from _mismatches(facts, "num_attention_heads", "the q weights have")
    yield from _mismatches(facts, "num_key_value_heads", "the k weights have")


@rule("H102", "head-dim-mismatch", "error", _TRUST)
def head_dim(facts: WeightFacts) -> Iterator[Sighting]:
    """The width of q or of the q/k norms gives another head_dim, or a latent rank differs."""
    for config, weights, where in _differences(facts, "head_dim"):
        told = _told(facts, "head_dim", config)
        instead = _other_heads(facts, config, weights)
        yield Sighting(where, f"{told}, the weights have {weights}{instead}")
    yield from _other_shapes(facts)
    if not any(seen for seen in _differences(facts, "head_dim")):
        yield from _sizes(facts)


@rule("H105", "hidden-size-mismatch", "error", _TRUST)
def hidden_size(facts: WeightFacts) -> Iterator[Sighting]:
    """The projections read another width than hidden_size."""
    return _mismatches(facts, "hidden_size", "the projections read")


def _mismatches(facts: WeightFacts, name: str, seen: str) -> Iterator[Sighting]:
    for config, weights, where in _differences(facts, name):
        yield Sighting(where, f"{_told(facts, name, config)}, {seen} {weights}")


def _other_heads(facts: WeightFacts, config: int, weights: int) -> str:
    """What numbers of heads would make the config's head_dim right: a matrix's width is both, and
    only the norms of q and k tell them apart."""
    widths = {
        (mixer.num_attention_heads * weights, (seen.num_key_value_heads or 0) * weights)
        for key, mixer, _ in facts.mixers()
        if isinstance(mixer, Attention) and mixer.head_dim == config
        if (seen := facts.observed.get(key)) is not None
        if seen.head_dim == weights and seen.num_attention_heads is None
    }
    if len(widths) != 1:
        return ""
    query, key = widths.pop()
    if query % config or key % config:
        return ""
    heads, shared = query // config, key // config
    less = "" if shared in (0, heads) else f" and {key_value_heads(shared)}"
    return f", or {heads} heads{less} of {config}: the shapes do not say which"


def _told(facts: WeightFacts, name: str, value: int) -> str:
    """What the config says of a size, by the key that says it, or what it comes to without one."""
    origin = facts.spec.origins.get(name)
    if origin is None or origin.value != value:
        return f"{facts.where} makes {name} {value}"
    if origin.source.startswith(facts.where):
        key = _KEY.search(origin.source.removeprefix(facts.where))
        return f"{facts.where} says {key[1] if key else name} {value}"
    return f"{facts.where} makes {name} {value} ({origin.source})"


def _differences(facts: WeightFacts, name: str) -> Iterator[tuple[int, int, str]]:
    """(config's value, weights' value, layers) for each pair of values that differ."""
    runs: dict[tuple[str, int, int], list[int]] = {}
    for key, mixer, _ in facts.mixers():
        (stack, index, cross, _), seen = key, facts.observed.get(key)
        if seen is None or not isinstance(mixer, Attention):
            continue
        config, weights = getattr(mixer, name), getattr(seen, name)
        if weights is not None and weights != config and mixer.has_key_value:
            runs.setdefault((_place(facts, stack, cross), config, weights), []).append(index)
    for (place, config, weights), indices in runs.items():
        yield config, weights, f"{place}layers {format_indices(indices)}"


def _place(facts: WeightFacts, stack: str, cross: bool) -> str:
    """A word in front of `layers` where a model has several stacks or attentions."""
    several = len({layer.stack for layer in facts.spec.layers}) > 1
    return (f"{stack} " if several else "") + ("cross-attention " if cross else "")


def _other_shapes(facts: WeightFacts) -> Iterator[Sighting]:
    """Shapes that fit neither the config nor another number of heads: those of a part that are
    wrong in the same way in several layers at once."""
    runs: dict[tuple[str, bool, str | None, str], dict[int, str]] = {}
    for key, mixer, placed in facts.mixers() if not facts.census.packed else ():
        stack, index, cross, _ = key
        for item in placed:
            wrong = _wrong_shape(item, mixer, facts.observed.get(key), facts.where)
            if wrong is not None:
                run = runs.setdefault((stack, cross, item.place.part, wrong), {})
                run.setdefault(index, item.tensor.name)
    for (*_, wrong), names in runs.items():
        layers = f", in layers {format_indices(sorted(names))}" if len(names) > 1 else ""
        yield Sighting(next(iter(names.values())), f"{wrong}{layers}")


def _wrong_shape(item: Placed, mixer: Mixer, seen: Observed | None, where: str) -> str | None:
    part, shape = item.place.part, item.tensor.shape
    if item.place.parameter != "weight":
        return None
    if isinstance(mixer, LatentAttention) and part in _HALVES:
        return _other_half(item, mixer, where)
    if isinstance(mixer, CompressedAttention) and part == "o_a" and len(shape) == 3:
        return _other_groups(item, mixer, where)
    expected = _expected(mixer, part, seen)
    if len(shape) != 2:
        no_matrix = _is_no_matrix(item, expected)
        return f"shape {list(shape)[:8]}: a matrix is expected" if no_matrix else None
    if expected is None or item.out_in == expected:
        return None
    if isinstance(mixer, Attention) and is_turned(item, mixer):
        return f"shape {list(shape)}: turned, the class has it as {list(shape[::-1])}"
    return f"shape {list(shape)}; {where} makes it {list(expected)} (out, in)"


# The halves of kv_b_proj that llama.cpp multiplies into q and o: a matrix a head, or all in one.
_HALVES = {"k_b": "qk_nope_head_dim", "v_b": "v_head_dim"}


def _other_groups(item: Placed, mixer: CompressedAttention, where: str) -> str | None:
    """The way down of the outputs, a matrix a group, as llama.cpp has it."""
    heads, rank, groups = mixer.num_attention_heads, mixer.o_lora_rank, mixer.o_groups
    expected = (groups, rank, heads * mixer.head_dim // groups)
    if item.tensor.shape == expected:
        return None
    return f"shape {list(item.tensor.shape)}; {where} makes it {list(expected)}"


def _other_half(item: Placed, mixer: LatentAttention, where: str) -> str | None:
    heads, rank = mixer.num_attention_heads, mixer.kv_lora_rank
    width = getattr(mixer, _HALVES[item.place.part or ""])
    if item.tensor.elements == heads * rank * width:
        return None
    shape = list(item.tensor.shape)[:8]
    return f"shape {shape}; {where} makes it {heads} heads of {rank} x {width}"


def _is_no_matrix(item: Placed, expected: tuple[int, int] | None) -> bool:
    """Whether a projection has other dimensions than two. Three that make up as many elements
    are right for XLNet's, which is no module, and a convolution of width 1 (SqueezeBERT)."""
    if not item.place.part or not set(item.place.part) <= _PROJECTIONS:
        return False
    if item.tensor.name.endswith("weight") and set(item.tensor.shape[2:]) != {1}:
        return True
    return expected is not None and item.tensor.elements != prod(expected)


# Letters of the parts that are projections, fused or not.
_PROJECTIONS = frozenset("gqkvo_ab")


def _expected(mixer: Mixer, part: str | None, seen: Observed | None) -> tuple[int, int] | None:
    """[out, in] of a projection; None where a more telling rule speaks of it already."""
    if not part or not set(part) <= _PROJECTIONS:
        return None
    if isinstance(mixer, (LatentAttention, LowRankAttention)):
        return mixer.out_features(part), mixer.in_features(part)
    if not isinstance(mixer, Attention) or "_" in part:
        return None
    told = seen is not None and (
        seen.hidden_size not in (None, mixer.hidden_size)
        or (seen.head_dim is not None and seen.head_dim != mixer.head_dim)
        or seen.num_attention_heads not in (None, mixer.num_attention_heads)
        or seen.num_key_value_heads not in (None, mixer.num_key_value_heads)
    )
    return None if told else (mixer.out_features(part), mixer.in_features(part))


@rule(
    "H103",
    "layers-mismatch",
    "error",
    "what is missing would be loaded with random values: find the missing shards",
)
def layers(facts: WeightFacts) -> Iterator[Sighting]:
    """The weights hold more or fewer layers than the config, or lack a part of one."""
    # Nothing tells how such weights name their layers.
    if not facts.architecture.names.known:
        return
    config: dict[str, set[int]] = {}
    for layer in facts.spec.layers:
        if not layer.is_again:
            config.setdefault(layer.stored_in, set()).add(layer.stored_as)
    for stack, numbers in config.items():
        weights = facts.census.indices.get(stack, frozenset())
        beyond = weights - numbers
        if beyond and not _predict(facts, stack, beyond):
            yield Sighting(
                severity="warning",
                where=f"{stack} layers {format_indices(sorted(beyond))}",
                message=f"{facts.where} says num_hidden_layers {len(numbers)},"
                " the weights hold more",
                hint="layers for multi-token prediction are normal in GLM-4.5 and DeepSeek-V3; else"
                " correct num_hidden_layers",
            )
        if facts.whole and numbers - weights:
            half = not weights and facts.census.indices and not facts.has_head
            yield Sighting(
                severity="note" if half else None,
                where=f"{stack} layers {format_indices(sorted(numbers - weights))}",
                message=f"{facts.where} says num_hidden_layers {len(numbers)},"
                " the weights lack these",
            )
    yield from _lacking(facts)


def _predict(facts: WeightFacts, stack: str, beyond: frozenset[int]) -> bool:
    """Whether layers beyond the last are those for further tokens: as many as the config gives, or
    such as the class expects in a file, and each with what joins it to the others (`eh_proj`)."""
    if stack != "decoder" or not _join(facts, beyond):
        return False
    spots = (numbered(name) for name in facts.left_out)
    expected = {spot.number for spot in spots if spot is not None}
    return len(beyond) <= facts.prediction or beyond <= expected


def _join(facts: WeightFacts, beyond: frozenset[int]) -> bool:
    """Whether each of these layers has a tensor that none of the model's own has."""
    lists = facts.census.stacks.lists
    spots = [spot for name in facts.checkpoint.tensors if (spot := numbered(name)) is not None]
    ours = [spot for spot in spots if lists.get(spot.prefix) == "decoder"]
    usual = {spot.inside for spot in ours if spot.number not in beyond}
    return beyond <= {spot.number for spot in ours if spot.inside not in usual}


def _lacking(facts: WeightFacts) -> Iterator[Sighting]:
    """A layer that is there, without a part that its mixer needs: codes of it count, too."""
    if not facts.whole:
        return
    seen: list[tuple[str, int, str]] = []
    for (stack, index, cross, _), mixer, placed in facts.mixers():
        if mixer.kind == "recurrent" or index not in facts.census.indices.get(stack, frozenset()):
            continue
        lacking = [*_missing(mixer, placed)]
        if lacking:
            message = f"no tensor for {', '.join(lacking)} in its attention"
            seen.append((_place(facts, stack, cross), index, message))
    yield from _by_layers(seen)


def _by_layers(seen: Iterable[tuple[str, int, str]]) -> Iterator[Sighting]:
    """One sighting for all layers of a place of which the same is said."""
    runs: dict[tuple[str, str], set[int]] = {}
    for place, index, message in seen:
        runs.setdefault((place, message), set()).add(index)
    for (place, message), indices in runs.items():
        layers = "layers" if len(indices) > 1 else "layer"
        yield Sighting(f"{place}{layers} {format_indices(sorted(indices))}", message)


_CALLED = {"norm": "its norms", "other": "its gates, sinks or other parts"}


def _missing(mixer: Mixer, placed: tuple[Placed, ...]) -> Iterator[str]:
    """Parts that have parameters by the config and no weight in the file."""
    weights = tuple(item for item in placed if item.place.parameter != "bias")
    needed, held = mixer.parameters(), count_parts(weights, mixer)
    for part in sorted(needed._fields):
        if getattr(needed, part) and not getattr(held, part):
            yield _CALLED.get(part, part)
    if isinstance(mixer, LatentAttention):
        ways = {item.place.part for item in weights}
        down = (("q_a", mixer.q_lora_rank), ("kv_a", mixer.has_latent))
        yield from (part for part, there in down if there and part not in ways)


def _sizes(facts: WeightFacts) -> Iterator[Sighting]:
    """Norms and what stands beside the projections hold another number of elements."""
    if facts.whole:
        yield from _by_layers(_other_sizes(facts))


def _other_sizes(facts: WeightFacts) -> Iterator[tuple[str, int, str]]:
    for (stack, index, cross, _), mixer, placed in facts.mixers():
        needed, held = mixer.parameters(), count_parts(placed, mixer)
        whole = mixer.kind == "compressed_attention"  # whose matrices no other rule looks at
        for part in needed._fields if whole else ("norm", "other"):
            said, stored = getattr(needed, part), getattr(held, part)
            if facts.census.packed and not _is_plain(part, placed):
                continue
            unused = part == "norm" and isinstance(mixer, Attention) and not mixer.has_key_value
            if said and stored and said != stored and not unused:  # the k norm of Gemma's readers
                message = (
                    f"{_CALLED.get(part, part)} hold {stored:,} elements in its attention,"
                    f" {facts.where} makes it {said:,}"
                )
                yield _place(facts, stack, cross), index, message


def _is_plain(part: str, placed: tuple[Placed, ...]) -> bool:
    """Whether a part is stored as floats, as norms are beside packed projections."""
    items = [item for item in placed if item.place.part == part]
    plain = (i.place.parameter in PLAIN_PARAMETERS and i.tensor.dtype in FLOATS for i in items)
    return bool(items) and all(plain)


@rule(
    "H104",
    "vocabulary-mismatch",
    "error",
    "token ids beyond the rows fail; set vocab_size to the rows of the embedding",
)
def vocabulary(facts: WeightFacts) -> Iterator[Sighting]:
    """The embedding or the head has another number of rows than vocab_size."""
    for tensor in (facts.census.embedding, facts.census.head):
        if tensor is None or len(tensor.shape) != 2 or facts.spec.vocab_size is None:
            continue
        rows, stored = tensor.shape[0], facts.stored
        is_embedding = tensor is facts.census.embedding
        is_other = stored.several_vocabularies if is_embedding else stored.other_head
        if is_other or _is_projection(tensor.name, facts):
            continue
        if is_embedding:
            rows -= stored.more_rows
        if rows != facts.spec.vocab_size:
            yield Sighting(
                where=tensor.name,
                message=f"{facts.where} says vocab_size {facts.spec.vocab_size:,},"
                f" the weights have {rows:,} rows",
            )


def _is_projection(name: str, facts: WeightFacts) -> bool:
    """What an encoder that stands alone calls its head may be no vocabulary (SigLIP)."""
    return name == "head.weight" and not facts.spec.is_cached


@rule(
    "H203",
    "unexpected-attention-tensor",
    "warning",
    "they are not loaded, and not counted: an adapter, or another model_type?",
)
def strangers(facts: WeightFacts) -> Iterator[Sighting]:
    """A tensor under an attention module that the architecture does not know."""
    if facts.census.packed:
        return
    found = [name for name in not_built(facts) if name not in facts.left_out]
    if found:
        yield Sighting(
            where=found[0],
            message=f"{len(found)} tensor(s) under an attention module that"
            f" {facts.spec.model_type} does not have",
        )


def not_built(facts: WeightFacts) -> Iterator[str]:
    """What no mixer of the type has, and norms, gates and sinks of those that have none by the
    config."""
    yield from facts.census.strangers
    for _, mixer, placed in facts.mixers():
        needed = mixer.parameters()
        for item in placed:
            if item.place.part in ("norm", "other") and not getattr(needed, item.place.part):
                yield item.tensor.name


RULES = (
    kv_heads,
    head_dim,
    layers,
    vocabulary,
    hidden_size,
    strangers,
)
