"""The page on what decoding keeps, and the one on windows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from headcount.model.mixers import Attention, LatentAttention, Mixer

from .page import VASWANI, WINDOWS, Page, Sum, product, with_rest
from .subject import Subject, token_bytes, token_terms

_KEEPS = (
    "A token attends to all tokens before it. Their keys and values do not change any more, so"
    " decoding keeps them instead of computing them anew; queries are used once and forgotten."
    " Every further token of every sequence costs this much, and every step reads what is kept."
)
_NONE = "This model keeps nothing: it attends in both directions and decodes no text."
_OTHER_STATE = (
    "Layers without keys and values fold the past into a state of fixed size: {:,} B of a sequence,"
    " however long it is."
)


def cache(subject: Subject) -> Page:
    spec, sizes = subject.spec, subject.sizes
    if not spec.is_cached:
        return Page(False, (_KEEPS, _NONE), (VASWANI,))
    blocks: list[str | Sum] = [_KEEPS]
    costing = Counter({m: n for m, n in _all_mixers(subject).items() if token_bytes(subject, m)})
    if costing:
        blocks += [*_of_a_layer(subject, costing), _of_a_token(subject, costing)]
    blocks.append(_of_the_context(subject))
    constant = spec.constant_state_bytes(bits=sizes.bits)
    if constant:
        blocks.append(_OTHER_STATE.format(constant))
    return Page(bool(costing), tuple(blocks), (VASWANI,))


def _all_mixers(subject: Subject) -> "Counter[Mixer]":
    """Of every stack, since each may keep something."""
    return Counter(m for layer in subject.spec.layers for m in layer.mixers)


def _of_a_layer(subject: Subject, costing: "Counter[Mixer]") -> Iterator[Sum]:
    """The commonest layer that a token costs something in."""
    ((mixer, count),) = costing.most_common(1)
    latent = mixer.kind == "latent_attention" and not getattr(mixer, "expanded", False)
    elements = "(kv_lora_rank + qk_rope_head_dim)" if latent else "2 x K/V heads x head_dim"
    yield Sum(
        key="cache_bytes_per_token_and_layer",
        formula=f"a token in a layer ({count} alike): {elements} x bytes of"
        f" {subject.sizes.kv_dtype}",
        filled=token_terms(subject, mixer),
        value=token_bytes(subject, mixer),
        unit="exact_bytes",
    )


def _of_a_token(subject: Subject, costing: "Counter[Mixer]") -> Sum:
    each: Counter[int] = Counter()
    for mixer, count in costing.items():
        each[token_bytes(subject, mixer)] += count
    return Sum(
        key="cache_bytes_of_first_token",
        formula="a token in all layers that keep it: layers x bytes of one",
        filled=" + ".join(product(count, size) for size, count in each.items()),
        value=subject.spec.cache_bytes_of_first_token(bits=subject.sizes.bits),
        unit="exact_bytes",
    )


def _of_the_context(subject: Subject) -> Sum:
    spec, sizes = subject.spec, subject.sizes
    token = spec.cache_bytes_of_first_token(bits=sizes.bits)
    total = spec.cache_bytes(
        tokens=sizes.context, bits=sizes.bits, encoder_tokens=sizes.encoder_tokens
    )
    worth = sizes.context * token
    why = "cross-attention" if sizes.encoder_tokens else "state of fixed size"
    if total < worth:
        why = "what windows or compression drop"
    return Sum(
        key="cache_bytes",
        formula=f"a sequence of {sizes.context:,} tokens: tokens x bytes of one",
        filled=with_rest(product(sizes.context, token), worth, total, why),
        value=total,
        unit="exact_bytes",
    )


_WINDOW = (
    "In a layer with a sliding window of w tokens a query sees itself and the w - 1 tokens before"
    " it. What left the window is never read again, so that the layer keeps min(T, w - 1) of T"
    " tokens in transformers' cache (the next query brings itself), and w in engines that reserve"
    " the whole window. What is further back reaches a token through the layers between: n of them"
    " see n x (w - 1) tokens back at most."
)
_NO_WINDOW = "No layer of this model has a window: each keeps every token of the sequence."


_COMPRESSED = (
    "Its window stands before compressed entries of what is further back: `headcount audit` sums"
    " what both keep."
)


def window(subject: Subject) -> Page:
    windowed = [m for m in subject.mixers.elements() if m.window]
    if not windowed:
        whole = () if subject.attention is None else (_whole(subject, subject.attention),)
        return Page(False, (_WINDOW, _NO_WINDOW, *whole), (WINDOWS,))
    ((mixer, _),) = Counter(windowed).most_common(1)
    sizes = Counter(m.window for m in windowed)
    others = subject.mixers.total() - len(windowed)
    has = "; ".join(f"{n} of its layers have a window of {w:,} tokens" for w, n in sizes.items())
    has += f"; {others} have none." if others else "."
    if not isinstance(mixer, Attention | LatentAttention):
        return Page(True, (_WINDOW, has, _COMPRESSED), (WINDOWS,))
    sums = (_windowed(subject, mixer), _whole(subject, mixer)) if subject.spec.is_cached else ()
    return Page(True, (_WINDOW, has, *sums), (WINDOWS,))


def _windowed(subject: Subject, mixer: Attention | LatentAttention) -> Sum:
    context, width = subject.sizes.context, mixer.window or 0
    kept, each = min(context, width - 1), token_bytes(subject, mixer)
    total = subject.sizes.mixer_bytes(mixer)
    return Sum(
        key="window_cache_bytes",
        formula=f"such a layer at {context:,} tokens: min(T, w - 1) x bytes of a token",
        filled=with_rest(product(kept, each), kept * each, total, "other state"),
        value=total,
        unit="exact_bytes",
    )


def _whole(subject: Subject, mixer: Attention | LatentAttention) -> Sum:
    context, without = subject.sizes.context, replace(mixer, window=None)
    each, total = token_bytes(subject, without), subject.sizes.mixer_bytes(without)
    return Sum(
        key="full_cache_bytes",
        formula=f"a layer without a window at {context:,} tokens: T x bytes of a token",
        filled=with_rest(product(context, each), context * each, total, "other state"),
        value=total,
        unit="exact_bytes",
    )
