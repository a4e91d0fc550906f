"""The model of a log that prints what its GGUF file says: key-values, or sizes made of them."""

from collections.abc import Mapping
from typing import Any

from headcount.arch.gguf.spec import gguf_spec
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Mixer, Recurrent
from headcount.model.spec import ModelSpec
from headcount.sources.gguf import Skipped

from ..engines.start_log import Log
from ..planned_model import PlannedModel

_GIB = 2**30
# What is printed of the sizes -> the key that it is read from.
_PRINTED = {
    **{"n_ctx_train": "context_length", "n_embd": "embedding_length", "n_layer": "block_count"},
    **{"n_head": "attention.head_count", "n_head_kv": "attention.head_count_kv"},
    **{"n_embd_head_k": "attention.key_length", "n_embd_head_v": "attention.value_length"},
    **{"n_swa": "attention.sliding_window", "n_rot": "rope.dimension_count"},
    **{"n_lora_kv": "attention.kv_lora_rank", "n_lora_q": "attention.q_lora_rank"},
    **{"n_embd_head_k_mla": "attention.key_length_mla", "n_vocab": "vocab_size"},
    "n_embd_head_v_mla": "attention.value_length_mla",
}
_STATES = "ssm_d_state"  # of recurrent layers, whose other sizes are not all printed


def described_model(log: Log, name: str) -> PlannedModel | None:
    """The model that the log describes, `name` is what it calls it; None where it does not say
    enough: lists of key-values are cut short."""
    metadata = _metadata(log.metadata)
    if metadata is None:
        return None
    try:
        spec = gguf_spec(metadata, "the log's key-values")
    except HeadcountError:
        return None
    gib = log.figures.get("file_gib")
    size = None if gib is None else round(gib * _GIB)
    return PlannedModel(model_id=name, spec=spec, weights_bytes=size)


def _metadata(said: Mapping[str, Any]) -> Mapping[str, Any] | None:
    architecture = said.get("general.architecture", said.get("arch"))
    if not isinstance(architecture, str):
        return None
    printed = {f"{architecture}.{key}": said.get(name) for name, key in _PRINTED.items()}
    own = {name: value for name, value in said.items() if name.startswith(f"{architecture}.")}
    if not own and said.get(_STATES):
        return None
    found = {**{n: v for n, v in printed.items() if v not in (None, 0)}, **own}
    for name, value in own.items():
        if isinstance(value, Skipped):
            found[name] = printed.get(name)
    if any(value is None for value in found.values()):
        return None
    tokens = said.get("tokenizer.ggml.tokens")
    return {
        "general.architecture": architecture,
        **({"tokenizer.ggml.tokens": tokens} if tokens is not None else {}),
        **found,
    }


def keeps_alike(one: ModelSpec, other: ModelSpec) -> bool:
    """Whether both keep the same of a token in each layer, and for as long."""
    return [_kept(layer.mixers) for layer in one.layers] == [
        _kept(layer.mixers) for layer in other.layers
    ]


def _kept(mixers: tuple[Mixer, ...]) -> list[tuple[int, int | None]]:
    return [
        (mixer.key_value_elements(1), mixer.window)
        for mixer in mixers
        if not isinstance(mixer, Recurrent)
    ]
