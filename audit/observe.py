"""Head geometry as the weights have it. Where the config disagrees, the weights are right."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headcount.arch.architecture import Architecture
from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Assumption, Layer, MixerKey, ModelSpec, Origin
from headcount.sources.ggml_types import GGML_TYPES
from headcount.sources.safetensors import TensorInfo

from .census import Census, Placed
from .logical_shapes import logical_shape
from .packed import FLOATS

# Types whose tensors have the shape of their parameters: floats, and the blocks of GGUF files.
_UNPACKED = FLOATS | {name for name, elements, _ in GGML_TYPES.values() if elements > 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What the shapes of one mixer's tensors say; None where they do not say it."""

    hidden_size: int | None = None
    num_attention_heads: int | None = None
    head_dim: int | None = None
    num_key_value_heads: int | None = None


def observe(
    placed: Iterable[Placed],
    mixer: Attention,
    architecture: Architecture,
    tensors: Mapping[str, TensorInfo],
) -> Observed:
    """Hidden size, heads and head_dim of one mixer from its shapes.

    head_dim is that of the q/k norms where they are per head, and the width of q (or the input of
    o) over it are the query heads. Else these cannot be seen in a shape: they are the config's, and
    head_dim is that width over them. Of codes it is the matrix that they stand for; `tensors` are
    all of the checkpoint.
    """
    found = ((item.place.part, _out_in(item, mixer, tensors)) for item in placed)
    shapes = {part: shape for part, shape in found if shape is not None}
    query = shapes.get("q", (None, None))[0] or shapes.get("o", (None, None))[1]
    if "q" in shapes and query is not None and mixer.query_gate:
        query //= 2
    normed = _normed_dim(placed, architecture)
    head_dim = normed or _over(query, mixer.num_attention_heads)
    return Observed(
        hidden_size=_hidden(shapes, mixer),
        num_attention_heads=None if normed is None else _over(query, normed),
        head_dim=head_dim,
        num_key_value_heads=_key_value_heads(shapes, query, head_dim, mixer),
    )


def _out_in(
    item: Placed, mixer: Attention, tensors: Mapping[str, TensorInfo]
) -> tuple[int, int] | None:
    if item.place.parameter == "weight" and item.tensor.dtype in _UNPACKED:
        if len(item.tensor.shape) != 2:
            return None
        rows, columns = item.out_in
        return (columns, rows) if is_turned(item, mixer) else (rows, columns)
    # How wide the codes of `o` are says nothing that those of q do not.
    if item.place.part not in ("q", "k", "v", "qkv"):
        return None
    return logical_shape(item.tensor, mixer.in_features(item.place.part), tensors)


def is_turned(item: Placed, mixer: Attention) -> bool:
    """Whether a matrix is stored the other way round than the class has it, so that its sides say
    nothing else: a `Linear` where GPT-2 has a `Conv1D`."""
    part = item.place.part
    if part is None or len(item.tensor.shape) != 2 or not set(part) <= set("gqkvo"):
        return False
    expected = (mixer.out_features(part), mixer.in_features(part))
    return item.out_in == expected[::-1] != expected


def _over(total: int | None, count: int) -> int | None:
    """None where `total` rows do not make `count` parts of at least one."""
    if total is None or min(total, count) < 1 or total % count:
        return None
    return total // count


def _normed_dim(placed: Iterable[Placed], architecture: Architecture) -> int | None:
    if architecture.attention.norm not in ("head", "head_bias"):
        return None
    sizes = {item.tensor.shape for item in placed if item.place.part == "norm"}
    (size,) = sizes if len(sizes) == 1 else ((),)
    return size[0] or None if len(size) == 1 else None


def _hidden(shapes: Mapping[str | None, tuple[int, int]], mixer: Attention) -> int | None:
    """The width that q reads where that is not as the mixer has it (Zamba reads twice as much)."""
    for part in ("q", "qkv"):
        if part in shapes:
            read = shapes[part][1]
            return mixer.hidden_size if read == mixer.in_features(part) else read
    return shapes["o"][0] if "o" in shapes else None


def _key_value_heads(
    shapes: Mapping[str | None, tuple[int, int]],
    query: int | None,
    head_dim: int | None,
    mixer: Attention,
) -> int | None:
    if head_dim is None:
        return None
    if "k" in shapes:
        return _over(shapes["k"][0], head_dim)
    if "qkv" in shapes and query is not None:
        return _over(shapes["qkv"][0] - query, 2 * head_dim)
    return None


def correct(
    spec: ModelSpec,
    census: Census,
    architecture: Architecture,
    tensors: Mapping[str, TensorInfo],
) -> tuple[ModelSpec, dict[MixerKey, Observed]]:
    """`spec` with the geometry that the weights have, and what was observed per mixer."""
    seen: dict[MixerKey, Observed] = {}
    layers = tuple(
        _correct_layer(layer, census, architecture, seen, tensors) for layer in spec.layers
    )
    changed = _corrections(spec.layers, layers)
    if seen and spec.assumptions:
        told = {**changed, "attention_parameters": Origin("as stored", "weights")}
        spec = replace(spec, assumptions=tuple(_told(one, told) for one in spec.assumptions))
    if layers == spec.layers:
        return spec, seen
    return replace(spec, layers=layers, origins={**spec.origins, **changed}), seen


def _told(one: Assumption, told: Mapping[str, Origin]) -> Assumption:
    """What was assumed, or what the weights say instead."""
    origin = told.get(one.about)
    return one if origin is None else Assumption(one.about, str(origin.value), origin.source)


def _correct_layer(
    layer: Layer,
    census: Census,
    architecture: Architecture,
    seen: dict[MixerKey, Observed],
    tensors: Mapping[str, TensorInfo],
) -> Layer:
    mixers = []
    for key, mixer in layer.keyed_mixers():
        placed = census.layers.get(key)
        if placed and isinstance(mixer, Attention):
            seen[key] = observe(placed, mixer, architecture, tensors)
            mixers.append(_corrected(mixer, seen[key]))
        else:
            mixers.append(mixer)
    return replace(layer, mixers=tuple(mixers))


def _corrected(mixer: Attention, seen: Observed) -> Mixer:
    kv = seen.num_key_value_heads
    heads = seen.num_attention_heads or mixer.num_attention_heads
    if not mixer.has_key_value or not kv or heads % kv:
        kv = mixer.num_key_value_heads
        heads = mixer.num_attention_heads
    d = seen.head_dim or mixer.head_dim
    v = d if mixer.v_head_dim == mixer.head_dim else mixer.v_head_dim
    corrected = replace(mixer, num_attention_heads=heads).with_key_value_heads(kv)
    return replace(corrected, head_dim=d, v_head_dim=v)


_SEEN_IN = {
    "num_attention_heads": "shape of q_proj and the q/k norms",
    "num_key_value_heads": "shape of k_proj or q/k norms",
    "head_dim": "shape of k_proj or q/k norms",
}


def _corrections(before: tuple[Layer, ...], after: tuple[Layer, ...]) -> dict[str, Origin]:
    """For `--explain`: the fields that the weights overruled."""
    changed: dict[str, Origin] = {}
    for old, new in zip(before, after, strict=True):
        for was, now in zip(old.mixers, new.mixers, strict=True):
            for name, shape in _SEEN_IN.items():
                if getattr(was, name) != getattr(now, name):
                    changed[name] = Origin(value=getattr(now, name), source=f"weights: {shape}")
    return changed
