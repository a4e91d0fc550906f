"""Which types have one K/V head per query head whatever their config says, so that the modelling
file of our own can hold fewer of them."""

from headcount.arch.class_defaults import class_defaults
from headcount.arch.model_classes import model_classes
from headcount.arch.our_types import GROUPED, base_type
from headcount.arch.registry import architecture_of
from headcount.model.mixers import Attention

from .source import Source


def holds(source: Source) -> bool:
    """Whether the source's class keeps one K/V head per query head, in every layer of its decoder,
    and ignores num_key_value_heads; or is already one of ours."""
    spec = source.audit.spec
    if spec.model_type.startswith(GROUPED):
        return True
    mixers = _cached(source)
    mha = all(m.num_key_value_heads == m.num_attention_heads for m in mixers)
    return bool(mixers and mha and groups(spec.model_type, source.text_type))


def groups(model_type: str, text_type: str | None = None) -> bool:
    """Whether the class of this type ignores num_key_value_heads, and ours can take its place.
    `text_type` is the type of its language model; None: what its class nests by default."""
    found = architecture_of(base_type(text_type or _default_text_type(model_type)))
    if found is None or found.config.text is not None:
        return False
    shape = found.attention
    if shape.cached is False or shape.caches == "hidden states":
        return False
    return shape.kv_heads_from != "config" and bool(model_classes(model_type))


def _default_text_type(model_type: str) -> str:
    """The type itself, unless its language model is nested."""
    found, known = architecture_of(base_type(model_type)), class_defaults(model_type)
    if found is None or found.config.text is None or known is None:
        return model_type
    nested = (known.defaults.get(found.config.text) or {}).get("model_type")
    return _default_text_type(nested) if isinstance(nested, str) else model_type


def _cached(source: Source) -> list[Attention]:
    """The attentions that keep a cache; none where a layer keeps something else."""
    layers = [layer for layer in source.audit.spec.layers if layer.stack == "decoder"]
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    if not all(isinstance(mixer, Attention) and mixer.keeps_key_value for mixer in mixers):
        return []
    return [mixer for mixer in mixers if isinstance(mixer, Attention)]
