"""Rules that hold the shapes in the headers against the config."""

from collections.abc import Iterator

from ..mixers import Attention, LatentAttention, Mixer
from ..observe import Observed
from ..spec import Layer
from ..units import format_indices
from .facts import Facts
from .rule import Rule, Seen

_TRUST = "memory follows the weights; correct config.json, or take the config of these weights"

# Rows of the embedding beyond vocab_size that the class itself adds (image tokens, a start token).
_MORE_ROWS = {"mllama": 8, "mllama_text_model": 8, "moshi": 1}


def key_value_heads(facts: Facts) -> Iterator[Seen]:
    """The rows of k_proj are another number of K/V heads than the config's."""
    return _mismatches(facts, "num_key_value_heads", "the k weights have")


def head_dim(facts: Facts) -> Iterator[Seen]:
    """The width of q or of the q/k norms gives another head_dim, or a latent rank differs."""
    yield from _mismatches(facts, "head_dim", "the weights have")
    yield from _other_shapes(facts)


def hidden_size(facts: Facts) -> Iterator[Seen]:
    """The projections read another width than hidden_size."""
    return _mismatches(facts, "hidden_size", "the projections read")


def _mismatches(facts: Facts, name: str, seen: str) -> Iterator[Seen]:
    for config, weights, where in _differences(facts, name):
        yield Seen(where, f"{facts.where} says {name} {config}, {seen} {weights}")


def _differences(facts: Facts, name: str) -> Iterator[tuple[int, int, str]]:
    """(config's value, weights' value, layers) for each pair of values that differ."""
    runs: dict[tuple[str, int, int], list[int]] = {}
    for (stack, index, cross), mixer, _ in facts.mixers():
        seen: Observed | None = facts.observed.get((stack, index, cross))
        if seen is None or not isinstance(mixer, Attention):
            continue
        config, weights = getattr(mixer, name), getattr(seen, name)
        if weights is not None and weights != config and mixer.has_key_value:
            runs.setdefault((_place(facts, stack, cross), config, weights), []).append(index)
    for (place, config, weights), indices in runs.items():
        yield config, weights, f"{place}layers {format_indices(indices)}"


def _place(facts: Facts, stack: str, cross: bool) -> str:
    """A word in front of `layers` where a model has several stacks or attentions."""
    several = len({layer.stack for layer in facts.spec.layers}) > 1
    return (f"{stack} " if several else "") + ("cross-attention " if cross else "")


def _other_shapes(facts: Facts) -> Iterator[Seen]:
    """Shapes that fit neither the config nor another number of heads."""
    if facts.census.packed:
        return
    for (stack, index, cross), mixer, placed in facts.mixers():
        for item in placed:
            part, shape = item.place.part, item.tensor.shape
            if item.place.parameter != "weight":
                continue
            if len(shape) != 2:
                if part and set(part) <= set("qkvo") and "_" not in part:
                    yield Seen(item.tensor.name, f"shape {list(shape)[:8]}: a matrix is expected")
                continue
            expected = _expected(mixer, part, facts.observed.get((stack, index, cross)))
            found = shape[::-1] if facts.family.names.transposed else shape
            if expected is not None and found != expected:
                yield Seen(
                    where=item.tensor.name,
                    message=f"shape {list(shape)};"
                    f" {facts.where} makes it {list(expected)} (out, in)",
                )


def _expected(mixer: Mixer, part: str | None, seen: Observed | None) -> tuple[int, int] | None:
    """[out, in] of a projection; None where a more telling rule speaks of it already."""
    if part in (None, "", "norm", "other"):
        return None
    assert part is not None
    if isinstance(mixer, LatentAttention):
        return mixer.out_features(part), mixer.in_features(part)
    if not isinstance(mixer, Attention):
        return None
    told = seen is not None and (
        seen.hidden_size != mixer.hidden_size
        or (seen.head_dim is not None and seen.head_dim != mixer.head_dim)
        or (
            seen.num_key_value_heads is not None
            and seen.num_key_value_heads != mixer.num_key_value_heads
        )
    )
    return None if told else (mixer.out_features(part), mixer.in_features(part))


def layers(facts: Facts) -> Iterator[Seen]:
    """The weights hold more or fewer layers than the config, or lack a part of one."""
    if not facts.family.names.modules:  # nothing is known of how such weights name their layers
        return
    for stack in dict.fromkeys(layer.stack for layer in facts.spec.layers):
        config = {layer.index for layer in facts.spec.layers if layer.stack == stack}
        weights = facts.census.indices.get(stack, frozenset())
        if weights - config:
            extra = sorted(weights - config)
            yield Seen(
                severity="warning",
                where=f"{stack} layers {format_indices(extra)}",
                message=f"{facts.where} says num_hidden_layers {len(config)},"
                " the weights hold more",
                hint="layers for multi-token prediction are normal in GLM-4.5 and DeepSeek-V3; else"
                " correct num_hidden_layers",
            )
        config -= {la.index for la in facts.spec.layers if la.stack == stack and _runs_again(la)}
        if not facts.checkpoint.partial and not facts.checkpoint.missing and config - weights:
            half = not weights and facts.census.indices and not facts.has_head
            yield Seen(
                severity="note" if half else None,
                where=f"{stack} layers {format_indices(sorted(config - weights))}",
                message=f"{facts.where} says num_hidden_layers {len(config)},"
                " the weights lack these",
            )
    yield from _lacking(facts)


def _runs_again(layer: Layer) -> bool:
    """Whether a layer is another one once more, with the same weights."""
    own = (isinstance(m, Attention) and not m.owns_parameters for m in layer.mixers)
    return bool(layer.mixers) and all(own)


def _lacking(facts: Facts) -> Iterator[Seen]:
    """A layer that is there, without a projection that its mixer needs."""
    if facts.checkpoint.partial or facts.checkpoint.missing or facts.census.packed:
        return
    for (stack, index, cross), mixer, placed in facts.mixers():
        parts = {item.place.part for item in placed if item.place.parameter == "weight"}
        if mixer.kind == "recurrent" or index not in facts.census.indices.get(stack, frozenset()):
            continue
        if isinstance(mixer, Attention) and not mixer.owns_parameters:
            continue  # its block is stored where it is used first
        lacking = sorted(
            set("qkvo" if mixer.kind != "latent_attention" else "qo")
            - set("".join(p for p in parts if p and p not in ("norm", "other")))
        )
        if isinstance(mixer, Attention):
            has = dict.fromkeys("qo", mixer.has_query_output)
            has["k"] = mixer.has_key_value and mixer.has_key
            has["v"] = mixer.has_key_value and mixer.has_value
            absent = {part for part, there in has.items() if not there}
            lacking = [part for part in lacking if part not in absent]
        if lacking:
            yield Seen(
                where=f"{_place(facts, stack, cross)}layer {index}",
                message=f"no tensor for {', '.join(lacking)} in its attention",
            )


def vocabulary(facts: Facts) -> Iterator[Seen]:
    """The embedding or the head has another number of rows than vocab_size."""
    for tensor in (facts.census.embedding, facts.census.head):
        if tensor is None or len(tensor.shape) != 2 or facts.spec.vocab_size is None:
            continue
        rows = tensor.shape[0]
        if tensor is facts.census.embedding:
            rows -= _MORE_ROWS.get(facts.spec.model_type, 0)
        if rows != facts.spec.vocab_size:
            yield Seen(
                where=tensor.name,
                message=f"{facts.where} says vocab_size {facts.spec.vocab_size:,},"
                f" the weights have {rows:,} rows",
            )


def strangers(facts: Facts) -> Iterator[Seen]:
    """A tensor under an attention module that the architecture does not know."""
    if facts.census.strangers and not facts.census.packed:
        first, count = facts.census.strangers[0], len(facts.census.strangers)
        yield Seen(
            where=first,
            message=f"{count} tensor(s) under an attention module that {facts.spec.model_type} does"
            " not have",
        )


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        code="H101",
        name="kv-heads-mismatch",
        severity="error",
        hint=_TRUST,
        check=key_value_heads,
    ),
    Rule(code="H102", name="head-dim-mismatch", severity="error", hint=_TRUST, check=head_dim),
    Rule(
        code="H103",
        name="layers-mismatch",
        severity="error",
        hint="what is missing would be loaded with random values: find the missing shards",
        check=layers,
    ),
    Rule(
        code="H104",
        name="vocabulary-mismatch",
        severity="error",
        hint="token ids beyond the rows fail; set vocab_size to the rows of the embedding",
        check=vocabulary,
    ),
    Rule(
        code="H105",
        name="hidden-size-mismatch",
        severity="error",
        hint=_TRUST,
        check=hidden_size,
    ),
    Rule(
        code="H203",
        name="unexpected-attention-tensor",
        severity="warning",
        hint="they are not loaded, and not counted: an adapter, or another model_type?",
        check=strangers,
    ),
)
