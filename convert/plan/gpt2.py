"""GPT-2 -> GPTBigCode with multi_query: the same function where all K/V heads of a layer agree.

transformers has no class with learned positions and several K/V heads, but GPTBigCode holds one.
Its projections are Linear ([out, in]) where GPT-2's are Conv1D ([in, out]), and c_attn's rows are
[q (all heads) | k | v]. Everything else has the same name and shape.
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from headcount.audit.source.safetensors import TensorInfo

from .draft import Draft, Heads
from .errors import CannotConvertError
from .layout import query_key_value
from .native import FLOATS
from .source import Source
from .steps import Dropped, Pool, Step, copy, transpose

_IN_LAYER = re.compile(r"(?:^|\.)h\.(\d+)\.(.+)$")
_TRANSPOSED = ("attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
_COPIED = (
    *("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"),
    *("attn.c_proj.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"),
)
_BUFFERS = ("attn.bias", "attn.masked_bias")
_CLASSES = {
    "GPT2LMHeadModel": "GPTBigCodeForCausalLM",
    "GPT2Model": "GPTBigCodeModel",
    "GPT2ForSequenceClassification": "GPTBigCodeForSequenceClassification",
    "GPT2ForTokenClassification": "GPTBigCodeForTokenClassification",
}
# What GPT-2's class means by a key that is not in its file, and GPTBigCode's does not.
DEFAULTS = {"activation_function": "gelu_new"}
# Keys of GPT-2's config that mean nothing to GPTBigCode.
_GONE = (
    *("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "summary_type"),
    *("summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
)


def steps(source: Source, heads: Heads) -> Draft:
    """One step per tensor but the causal masks that old files carry. Raises CannotConvertError."""
    dropped = [
        Dropped(source=tensor, reason="a causal mask, not a parameter")
        for tensor in source.checkpoint.tensors.values()
        if _inside(tensor) in _BUFFERS
    ]
    by_file = {
        header.path.name: tuple(_steps_of(header.tensors, source, heads))
        for header in source.checkpoint.files
    }
    _check_layers(source, {t.name for file in by_file.values() for t in file})
    return Draft(
        steps=by_file,
        layers=tuple(layer.index for layer in source.audit.spec.layers),
        dropped=tuple(dropped),
        notes=_notes(source),
    )


def _steps_of(tensors: tuple[TensorInfo, ...], source: Source, heads: Heads) -> Iterator[Step]:
    for tensor in tensors:
        inside = _inside(tensor)
        if inside in _BUFFERS:
            continue
        if tensor.dtype not in FLOATS:
            raise _unknown(source, tensor, f"({tensor.dtype}) looks quantised")
        if inside in ("attn.c_attn.weight", "attn.c_attn.bias"):
            yield _attention(tensor, source, heads)
        elif inside in _TRANSPOSED:
            yield transpose(tensor)
        elif inside is None or inside in _COPIED:
            yield copy(tensor)
        else:
            raise _unknown(source, tensor, "has no counterpart in GPTBigCode")


def _attention(tensor: TensorInfo, source: Source, heads: Heads) -> Step:
    layout = query_key_value(heads.num_attention_heads, heads.head_dim, axis=-1)
    if tensor.shape[-1] != layout.rows or len(tensor.shape) > 2:
        raise _unknown(source, tensor, f"has shape {list(tensor.shape)}, not {layout.rows} columns")
    target = layout.pooled(heads.members)
    match = _IN_LAYER.search(tensor.name)
    assert match is not None
    return Step(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=(target.rows, *tensor.shape[:-1]),
        sources=(tensor,),
        action=Pool(
            layer=int(match[1]),
            role="weight" if len(tensor.shape) == 2 else "bias",
            members=heads.members,
            source=layout,
            target=target,
        ),
    )


def _inside(tensor: TensorInfo) -> str | None:
    """The tensor's path in its layer; None for one outside all layers."""
    match = _IN_LAYER.search(tensor.name)
    return match[2] if match else None


def _check_layers(source: Source, names: set[str]) -> None:
    ends = {m[0].lstrip(".") for name in names if (m := _IN_LAYER.search(name))}
    for layer in source.audit.spec.layers:
        for parameter in ("weight", "bias"):
            if f"h.{layer.index}.attn.c_attn.{parameter}" not in ends:
                raise CannotConvertError(
                    f"{source.folder}: layer {layer.index} has no attn.c_attn.{parameter}: the"
                    " checkpoint is incomplete"
                )


def _unknown(source: Source, tensor: TensorInfo, what: str) -> CannotConvertError:
    return CannotConvertError(f"{source.folder / tensor.file}: tensor {tensor.name!r} {what}")


def _notes(source: Source) -> tuple[str, ...]:
    if not source.config.get("reorder_and_upcast_attn"):
        return ()
    return (
        "reorder_and_upcast_attn is dropped: GPTBigCode rounds the softmax differently in half"
        " precision",
    )


def config(source: Source, heads: Heads) -> tuple[dict[str, Any], tuple[str, ...]]:
    """GPTBigCode's config for the same function. Raises CannotConvertError if there is none."""
    old = source.config
    if old.get("scale_attn_by_inverse_layer_idx"):
        raise CannotConvertError(
            f"{source.folder}: scale_attn_by_inverse_layer_idx is set, and GPTBigCode has no scale"
            " per layer: no class holds the result"
        )
    if old.get("add_cross_attention"):
        raise CannotConvertError(
            f"{source.folder}: add_cross_attention is set, and GPTBigCode with multi_query has none"
        )
    new = deepcopy({key: value for key, value in old.items() if key not in _GONE})
    architecture = _architecture(source)
    head = {"model_type": "gpt_bigcode", "architectures": [architecture], "multi_query": True}
    new = {**DEFAULTS, **new, **head, "num_key_value_heads": 1}
    return new, tuple(_changes(old, new))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Every key that was changed, added or dropped, in the order of the new config."""
    for key in (*new, *(key for key in old if key not in new)):
        if key not in new:
            yield f"{key}: {_value(old, key)} -> dropped (it means nothing to GPTBigCode)"
        elif key not in old or old[key] != new[key]:
            yield f"{key}: {_value(old, key)} -> {_value(new, key)}"


def _value(config: Mapping[str, Any], key: str) -> str:
    return json.dumps(config[key]).strip('"') if key in config else "absent"


def _architecture(source: Source) -> str:
    given = source.config.get("architectures") or ["GPT2LMHeadModel"]
    name = given[0] if isinstance(given, list) else given
    if name not in _CLASSES:
        raise CannotConvertError(f"{source.folder}: {name} has no counterpart among GPTBigCode's")
    return _CLASSES[name]
