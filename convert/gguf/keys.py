"""The key-values of a file: what llama.cpp reads of a model beside its tensors and vocabulary."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.arch.gguf.written import TANH_GELU, Written
from headcount.audit.audited import Audit
from headcount.model.mixers import Attention, LatentAttention

from ..plan.errors import CannotConvertError
from .gguf_file import GgufTensor, KeyValue, Kind
from .rotation import Rotation, rotation_keys
from .tensors import EMBEDDING

_ABSENT = object()
# general.file_type: the type of most tensors (llama_ftype of include/llama.h).
_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
_QUANTISATION_VERSION = 2  # GGML_QNT_VERSION of ggml.h


def general_keys(architecture: str, name: str, tensors: Sequence[GgufTensor]) -> Iterator[KeyValue]:
    """Those that every file has."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.nbytes
    yield KeyValue("general.architecture", "str", architecture)
    yield KeyValue("general.type", "str", "model")
    yield KeyValue("general.name", "str", name)
    yield KeyValue("general.file_type", "u32", _FILE_TYPES[max(sizes, key=lambda t: sizes[t])])
    if "Q8_0" in sizes:
        yield KeyValue("general.quantization_version", "u32", _QUANTISATION_VERSION)


def model_keys(
    written: Written,
    audit: Audit,
    config: Any,
    tensors: Mapping[str, GgufTensor],
    rotation: Rotation | None,
) -> Iterator[KeyValue]:
    """Those of the architecture, with its name in front. Raises CannotConvertError."""
    label = audit.source.id
    for one in _keys(written, audit, config, tensors, rotation, label):
        yield KeyValue(f"{written.architecture}.{one.key}", one.kind, one.value)


def context_of(audit: Audit, config: Any) -> int:
    """The length that the model was made for; of one that keeps no positions, what its config
    calls it, or 2,048."""
    names = ("seq_length", "max_seq_len")
    others = (getattr(config, name, None) for name in names)
    return audit.spec.max_position_embeddings or next((n for n in others if n), 2048)


def check_computed(written: Written, config: Any, label: str) -> None:
    """Raises CannotConvertError for a setting that llama.cpp computes another value of."""
    for name, values in written.computes.items():
        value = setting(config, name)
        if value is not _ABSENT and value not in values:
            known = " or ".join(map(repr, values))
            raise _refusal(written, label, f"knows {name} {known}, and this model has {value!r}")
    _check_scale(written, config, label)
    every, turns = written.rope_every, setting(config, "no_rope_layers")
    if every is not None and any(bool(one) != bool(i % every) for i, one in enumerate(turns, 1)):
        raise _refusal(written, label, f"turns all but each {every}th layer (no_rope_layers)")


def approximations(written: Written, config: Any) -> Iterator[str]:
    """What llama.cpp computes not quite as transformers does."""
    for name, values in written.computes.items():
        if setting(config, name) == "gelu" and set(TANH_GELU) <= set(values):
            yield (
                f"llama.cpp computes gelu by tanh, where {name} 'gelu' of transformers is by erf:"
                " up to 5e-4 of an activation"
            )


def setting(config: Any, path: str) -> Any:
    """A setting of a config of transformers, also a nested one; `_ABSENT` where there is none."""
    for name in path.split("."):
        config = (
            config.get(name, _ABSENT)
            if isinstance(config, dict)
            else getattr(config, name, _ABSENT)
        )
    return config


def _check_scale(written: Written, config: Any, label: str) -> None:
    """Scores are divided by the root of query_pre_attn_scalar; llama.cpp takes head_dim for it, and
    hidden_size / heads in models of one depth."""
    if not written.scale_of_head:
        return
    scalar = setting(config, "query_pre_attn_scalar")
    odd = setting(config, "num_hidden_layers") == written.odd_scale
    known = config.hidden_size // config.num_attention_heads if odd else config.head_dim
    if scalar != known:
        raise _refusal(
            written, label, f"divides scores by the root of {known}; query_pre_attn_scalar {scalar}"
        )


def _keys(
    written: Written,
    audit: Audit,
    config: Any,
    tensors: Mapping[str, GgufTensor],
    rotation: Rotation | None,
    label: str,
) -> Iterator[KeyValue]:
    spec = audit.spec
    attentions = _attentions(audit, LatentAttention if written.latent else Attention)
    first = attentions[0]
    yield KeyValue("vocab_size", "u32", tensors[EMBEDDING].shape[0])
    yield KeyValue("context_length", "u32", context_of(audit, config))
    yield KeyValue("embedding_length", "u32", spec.hidden_size)
    yield KeyValue("block_count", "u32", len(spec.layers))
    yield KeyValue("feed_forward_length", "u32", tensors["blk.0.ffn_down.weight"].shape[-1])
    yield KeyValue("attention.head_count", "u32", first.num_attention_heads)
    yield KeyValue("attention.head_count_kv", "u32", first.num_key_value_heads)
    key, value = _cached_lengths(first)
    yield KeyValue("attention.key_length", "u32", key)
    yield KeyValue("attention.value_length", "u32", value)
    epsilon = "layer_norm_rms_epsilon" if written.norm == "rms" else "layer_norm_epsilon"
    named = written.epsilon
    number = setting(config, named) if isinstance(named, str) else named
    yield KeyValue(f"attention.{epsilon}", "f32", float(number))
    if rotation is not None and written.rotary != "none":
        yield from rotation_keys(rotation)
    if written.windowed:
        yield from _windows(attentions, written, label)
    yield from _own_keys(written, config, label)


def _cached_lengths(mixer: Attention | LatentAttention) -> tuple[int, int]:
    """Elements of a key and of a value in the cache. All heads share those of a latent: it is what
    their values are made of, and with the elements that rotate their key."""
    if isinstance(mixer, LatentAttention):
        return mixer.kv_lora_rank + mixer.qk_rope_head_dim, mixer.kv_lora_rank
    return mixer.head_dim, mixer.v_head_dim


def _attentions(
    audit: Audit, kind: type[Attention] | type[LatentAttention]
) -> Sequence[Attention | LatentAttention]:
    """That of each layer, of this `kind`. Raises CannotConvertError unless all have the same
    heads."""
    found: list[Attention | LatentAttention] = []
    for layer in audit.spec.layers:
        attention = layer.mixers[0] if len(layer.mixers) == 1 else None
        if type(attention) is not kind:
            raise CannotConvertError(
                f"{audit.source.id}: layer {layer.index} is no plain attention, and GGUF files of"
                " others are not written; convert without --format gguf"
            )
        found.append(attention)
    shapes = {(a.num_attention_heads, a.num_key_value_heads, a.head_dim) for a in found}
    if len(shapes) > 1:
        raise CannotConvertError(
            f"{audit.source.id}: layers have different numbers of heads, and llama.cpp's loader of"
            " this architecture reads one for all: give all layers as many K/V heads"
        )
    return found


def _windows(
    attentions: Sequence[Attention | LatentAttention], written: Written, label: str
) -> Iterator[KeyValue]:
    sizes = {attention.window for attention in attentions if attention.window is not None}
    if len(sizes) > 1:
        raise _refusal(written, label, f"knows one window, and this model has {sorted(sizes)}")
    yield KeyValue("attention.sliding_window", "u32", sizes.pop() if sizes else 0)
    if any(attention.window for attention in attentions):
        flags = [attention.window is not None for attention in attentions]
        yield KeyValue("attention.sliding_window_pattern", "[bool]", flags)


def _own_keys(written: Written, config: Any, label: str) -> Iterator[KeyValue]:
    for key, name in {**written.keys, **written.unless_none}.items():
        value = setting(config, name)
        if value is None or value is _ABSENT:
            if key in written.keys:
                raise _refusal(written, label, f"needs a number for {name}, which is not there")
            continue
        kind: Kind = "bool" if isinstance(value, bool) else "f32"
        if key.endswith("_length"):
            kind = "u32"
        yield KeyValue(key, kind, value if kind != "f32" else float(value))


def _refusal(written: Written, label: str, what: str) -> CannotConvertError:
    return CannotConvertError(
        f"{label}: llama.cpp's {written.architecture} {what}; convert without --format gguf"
    )
