"""What an audit says that decoder layers keep, against transformers' default cache."""

from typing import NamedTuple

from transformers import PreTrainedModel

from headcount.audit.rules.verified import Compared
from headcount.model.errors import short
from headcount.model.spec import Layer, ModelSpec

from .cached_elements import cached_elements

LayerKey = tuple[str, int]  # stack, index

_ENCODER_TOKENS = 7
_SHORT = 5
_LONGEST = 5000  # tokens; and a wider window is not filled


class ComparedCaches(NamedTuple):
    """Sums at each length, per layer what differs: (detail, audited, held), and why not all is."""

    lengths: tuple[int, ...] = ()
    compared: tuple[Compared, ...] = ()
    unlike: tuple[tuple[LayerKey, tuple[str, int, int]], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def compare_caches(spec: ModelSpec, model: PreTrainedModel, *, crosses: bool) -> ComparedCaches:
    """Elements per decoder layer after a few tokens and, with windows, after more than they hold.

    `crosses`: the model has cross-attention, which is given an encoder's output. What cannot be run
    without values is left out, with the reason.
    """
    found = ComparedCaches()
    if not spec.is_cached:
        return found._replace(left_out=(("cache", "this model keeps none"),))
    layers = [layer for layer in spec.layers if layer.stack == "decoder"]
    encoder_tokens = _ENCODER_TOKENS if crosses else 0
    for tokens in _lengths(spec, layers):
        try:
            held = cached_elements(model, tokens, encoder_tokens=encoder_tokens)
        except Exception as error:  # of any type: the model's code runs on tensors without values
            reason = f"not known without weights: {type(error).__name__}: {short(str(error))}"
            return found._replace(left_out=((f"cache of {tokens:,} tokens", reason),))
        mine = [sum(m.state_elements(tokens, encoder_tokens) for m in la.mixers) for la in layers]
        found = _add(found, tokens, layers, mine, held.total(len(layers)))
    return found


def _lengths(spec: ModelSpec, layers: list[Layer]) -> tuple[int, ...]:
    """Recurrent layers without kernels go on token by token: they keep the same for each length."""
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    reach = min(spec.max_position_embeddings or _LONGEST, _LONGEST)
    if any(mixer.kind == "recurrent" for mixer in mixers):
        return (min(_SHORT, reach),)
    widest = max((mixer.window or 0 for mixer in mixers), default=0)
    long = min(widest + _SHORT, reach)
    if any(mixer.kind == "compressed_attention" for mixer in mixers):
        return (long,)  # its layers mix streams in many small steps: one run takes seconds
    return tuple(sorted({min(_SHORT, reach), long}))


def _add(
    found: ComparedCaches, tokens: int, layers: list[Layer], mine: list[int], held: list[int]
) -> ComparedCaches:
    detail = f"elements of {tokens:,} tokens"
    keys = [(layer.stack, layer.index) for layer in layers]
    keys += [("decoder", index) for index in range(len(layers), len(held))]
    mine = [*mine, *(0,) * (len(held) - len(mine))]
    unlike = [
        (key, (detail, own, true))
        for key, own, true in zip(keys, mine, held, strict=True)
        if own != true
    ]
    return found._replace(
        lengths=(*found.lengths, tokens),
        compared=(*found.compared, Compared(f"Cache {detail}", sum(mine), sum(held))),
        unlike=(*found.unlike, *unlike),
    )
