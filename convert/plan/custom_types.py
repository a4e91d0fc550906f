"""Which types have one K/V head per query head whatever their config says, so that the modelling
file of our own can hold fewer of them."""

from headcount.arch import odd, two_stacks
from headcount.arch.class_defaults import class_defaults
from headcount.arch.layers import as_query_heads
from headcount.arch.model_classes import model_classes
from headcount.arch.resolve import GROUPED, base_type
from headcount.arch.row import Family
from headcount.arch.states.own import xlnet
from headcount.arch.table import FAMILIES, SPELLINGS
from headcount.model.mixers import Attention

from .source import Source

# Rules of rows whose class does not read num_key_value_heads: by count, and by builder.
_COUNTS = (as_query_heads, odd.multi_query_heads, odd.falcon_key_value_heads)
_BUILDERS = (odd.bart, odd.t5, two_stacks.led, two_stacks.longt5, two_stacks.umt5)


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
    row = family_of(text_type or _default_text_type(model_type))
    if row is None or row.text is not None:
        return False
    if row.cached is False or row.build is xlnet:  # nothing, or hidden states
        return False
    ignores = row.key_value_heads in _COUNTS or row.build in _BUILDERS
    return ignores and bool(model_classes(model_type))


def family_of(model_type: str) -> Family | None:
    """The row of a type; that of a type of ours is its base's."""
    base = base_type(model_type)
    return FAMILIES.get(SPELLINGS.get(base, base))


def _default_text_type(model_type: str) -> str:
    """The type itself, unless its language model is nested."""
    row, known = family_of(model_type), class_defaults(model_type)
    if row is None or row.text is None or known is None:
        return model_type
    nested = (known.defaults.get(row.text) or {}).get("model_type")
    return _default_text_type(nested) if isinstance(nested, str) else model_type


def _cached(source: Source) -> list[Attention]:
    """The attentions that keep a cache; none where a layer keeps something else."""
    layers = [layer for layer in source.audit.spec.layers if layer.stack == "decoder"]
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    if not all(isinstance(mixer, Attention) and mixer.keeps_key_value for mixer in mixers):
        return []
    return [mixer for mixer in mixers if isinstance(mixer, Attention)]
