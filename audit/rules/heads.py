"""H4xx: head geometry that the config alone shows to be odd, unusual or not what it seems."""

from collections.abc import Iterator

from headcount.model.mixers import Attention, CrossAttention, Mixer
from headcount.model.spec import ModelSpec
from headcount.model.units import format_indices

from .config_facts import ConfigFacts
from .rule import Sighting, rule

_COUNTS = ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
LARGE_HEAD = 256  # the widest head that FlashAttention-2 computes


@rule(
    "H401",
    "odd-head-dim",
    "warning",
    "rotary embeddings need an even head_dim; check hidden_size and num_attention_heads",
)
def odd_head_dim(facts: ConfigFacts) -> Iterator[Sighting]:
    """The head_dim is odd: rotary embeddings turn pairs, and kernels copy aligned rows."""
    for where, dim in _dims(facts):
        if dim % 2:
            yield Sighting(where, f"head_dim {dim} is odd")


@rule(
    "H402",
    "unaligned-head-dim",
    "note",
    "fused attention kernels want multiples of 8: engines pad, or take a slow path",
)
def unaligned_head_dim(facts: ConfigFacts) -> Iterator[Sighting]:
    """The head_dim is even but no multiple of 8."""
    for where, dim in _dims(facts):  # below 8 it is a toy that no kernel is made for
        if dim > 8 and dim % 2 == 0 and dim % 8:
            yield Sighting(where, f"head_dim {dim} is no multiple of 8")


@rule(
    "H403",
    "large-head-dim",
    "note",
    "FlashAttention-2 stops there; check that the engine has a kernel for it",
)
def large_head_dim(facts: ConfigFacts) -> Iterator[Sighting]:
    """The head_dim is beyond what common attention kernels compute."""
    for where, dim in _dims(facts):
        if dim > LARGE_HEAD:
            yield Sighting(where, f"head_dim {dim} is above {LARGE_HEAD}")


def _dims(facts: ConfigFacts) -> Iterator[tuple[str, int]]:
    """(layers, head_dim) once for each value."""
    found: dict[tuple[str, int], list[int]] = {}
    for layer in facts.stored.layers:
        for mixer in layer.mixers:
            dim = getattr(mixer, "head_dim", None)
            if isinstance(dim, int):
                found.setdefault((layer.stack, dim), []).append(layer.index)
    for (stack, dim), indices in found.items():
        yield f"{stack} layers {format_indices(sorted(set(indices)))}", dim


def _attentions(spec: ModelSpec) -> Iterator[Attention]:
    for layer in spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and not isinstance(mixer, CrossAttention):
                yield mixer


@rule(
    "H404",
    "attention-width",
    "note",
    "sizes taken from hidden_size / num_attention_heads are wrong for this model",
)
def width_of_heads(facts: ConfigFacts) -> Iterator[Sighting]:
    """Heads x head_dim is not hidden_size: the attention is wider or narrower than the model."""
    seen = {
        (mixer.num_attention_heads, mixer.head_dim, mixer.hidden_size)
        for mixer in _attentions(facts.stored)
        if mixer.num_attention_heads * mixer.head_dim != mixer.hidden_size
    }
    for heads, dim, hidden in sorted(seen):
        yield Sighting(
            "head_dim", f"{heads} heads x {dim} = {heads * dim}, hidden_size is {hidden}"
        )


@rule(
    "H405",
    "kv-heads-by-default",
    "note",
    "tools that take one K/V head per query head are wrong here; write the key out",
)
def heads_by_default(facts: ConfigFacts) -> Iterator[Sighting]:
    """No num_key_value_heads is given, and the class's default is not one per query head."""
    origin = facts.spec.origins.get("num_key_value_heads")
    if origin is None or not origin.source.startswith("class default"):
        return
    if any(m.num_key_value_heads != m.num_attention_heads for m in _attentions(facts.spec)):
        yield Sighting("num_key_value_heads", f"not given; {origin.value} by the {origin.source}")


@rule(
    "H406",
    "ignored-kv-heads",
    "warning",
    "its class decides otherwise; tools that read the key alone are wrong",
)
def ignored_heads(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config gives a number of K/V heads that its class does not use."""
    said = dict(facts.key_value_heads)
    if not said and facts.one_head_key is not None:
        said = {facts.one_head_key: 1}
    mixers: list[Mixer] = [m for layer in facts.spec.layers for m in layer.mixers]
    if not mixers or not all(isinstance(m, Attention) for m in mixers):
        return
    if facts.spec.assumed:  # nothing is known of what that class decides
        return
    used = {m.num_key_value_heads for m in mixers}
    counts = ", ".join(str(n) for n in sorted(n for n in used if n is not None))
    for key, count in said.items():
        if count not in used:
            message = f"says {count} K/V head(s), {facts.spec.model_type} builds {counts} of them"
            yield Sighting(key, message)


@rule(
    "H407",
    "float-count",
    "warning",
    "it is read as that integer here; strict readers refuse the file",
)
def whole_floats(facts: ConfigFacts) -> Iterator[Sighting]:
    """A count is written as a float, such as 32.0."""
    for name in _COUNTS:
        origin = facts.spec.origins.get(name)
        if origin is not None and isinstance(origin.value, float):
            yield Sighting(name, f"is {origin.value!r}; an integer is expected")


RULES = (
    odd_head_dim,
    unaligned_head_dim,
    large_head_dim,
    width_of_heads,
    heads_by_default,
    ignored_heads,
    whole_floats,
)
