"""Pages on the four matrices of attention: mha, w_o, head_dim."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from headcount.model.mixers import Attention, LatentAttention
from headcount.model.units import key_value_heads
from headcount.report.report import Column, Table

from .page import ELHAGE, NOTHING, VASWANI, Page, Sum, product, with_rest
from .subject import Subject

_HEADS = (
    "W_q, W_k and W_v turn a token's hidden_size numbers into a query, a key and a value for each"
    " head. A head compares its query with the keys of the tokens that it may see, and sums their"
    " values by softmax(q k / sqrt(head_dim)). One softmax can look in one way; several heads look"
    " in several ways at once, each in head_dim dimensions of its own."
)
_CANCEL = (
    "The heads are slices of one matrix: W_q has heads x head_dim rows. With head_dim = hidden_size"
    " / heads, as in the first Transformer, the heads cancel out: W_q, W_k, W_v and W_o have"
    " hidden_size² weights each, 4 x hidden_size² together, for 1 head as for 128. More heads are"
    " narrower heads, not more parameters."
)


def mha(subject: Subject) -> Page:
    attention = subject.attention
    blocks: list[str | Sum] = [_HEADS, _CANCEL]
    if attention is None:
        return Page(False, (*blocks, NOTHING), (VASWANI,))
    blocks += ["A layer of this model:", *_projections(attention)]
    as_mha = attention.with_key_value_heads(attention.num_attention_heads)
    width = attention.num_attention_heads * attention.head_dim
    if width == attention.hidden_size and _is_plain(attention):
        blocks.append(_four_squares(as_mha))
    elif attention.in_features("q") != attention.hidden_size:
        blocks.append(
            f"Its W_q reads {attention.in_features('q'):,} numbers, not hidden_size"
            f" {attention.hidden_size:,}: the four are no squares of it."
        )
    elif width != attention.hidden_size:
        blocks.append(
            f"Its heads x head_dim is {width:,}, not hidden_size {attention.hidden_size:,}: one"
            " hidden_size of each square becomes heads x head_dim (see the topic head_dim)."
        )
    if attention.heads != "MHA":
        blocks.append(
            f"It has {key_value_heads(attention.num_key_value_heads)} for"
            f" {attention.num_attention_heads} heads, so that W_k and W_v are smaller than W_q (see"
            " the topic gqa)."
        )
    blocks.append("The table: the same with other numbers of heads, a K/V head for each.")
    return Page(True, tuple(blocks), (VASWANI,), (_other_heads(as_mha),))


def _is_plain(attention: Attention) -> bool:
    """Whether all four matrices are as wide as the formula has them."""
    reads = {attention.in_features(part) for part in "qkvo"}
    return reads == {attention.hidden_size} and not attention.query_gate


def _four_squares(as_mha: Attention) -> Sum:
    hidden = as_mha.hidden_size
    worth, total = 4 * hidden * hidden, _weights(as_mha)
    return Sum(
        key="mha_projection_weights",
        formula="with a K/V head for each head: 4 x hidden_size² weights",
        filled=with_rest(product(4, hidden, hidden), worth, total, "what it does without"),
        value=total,
    )


def _weights(attention: Attention) -> int:
    """Of the four projections, without biases."""
    parts = attention.parameters()
    return parts.q + parts.k + parts.v + parts.o - attention.bias_parameters()


def _projections(attention: Attention) -> Iterator[Sum]:
    """W_q, W_k, W_v and W_o, where they are there, and all that the layer's attention has."""
    parts = attention.parameters()
    for part in "qkv":
        value = getattr(parts, part)
        if value:
            yield _projection(attention, part, value)
    if parts.o:
        yield _output(attention)
    own = [n for n in (parts.q, parts.k, parts.v, parts.o, parts.norm, parts.other) if n]
    yield Sum(
        key="attention_parameters_per_layer",
        formula="attention parameters of the layer",
        filled=" + ".join(f"{n:,}" for n in own) or "0",
        value=parts.total,
    )


def _projection(attention: Attention, part: str, value: int) -> Sum:
    """W_q, W_k or W_v."""
    count = attention.num_attention_heads if part == "q" else attention.num_key_value_heads
    each = attention.v_head_dim if part == "v" else attention.head_dim
    read = attention.in_features(part)
    heads = "heads" if part == "q" else "K/V heads"
    width = "head_dim" if each == attention.head_dim else "v_head_dim"
    side = "hidden_size" if read == attention.hidden_size else "width that it reads"
    factors, formula = [count, each, read], f"{heads} x {width} x {side}"
    if part == "q" and attention.query_gate:
        factors, formula = [2, *factors], f"2 (query and gate) x {formula}"
    return Sum(
        key=f"{part}_parameters",
        formula=f"W_{part}: {formula}",
        filled=with_rest(product(*factors), prod(factors), value, "biases"),
        value=value,
    )


def _other_heads(as_mha: Attention) -> Table:
    """The projections with fewer and more heads of the same width together."""
    heads = as_mha.num_attention_heads
    widths = (heads * as_mha.head_dim, heads * as_mha.v_head_dim)
    counts = [n for n in (heads // 4, heads // 2, heads, heads * 2) if n]
    rows = [
        replace(
            as_mha,
            num_attention_heads=count,
            num_key_value_heads=count,
            head_dim=widths[0] // count,
            v_head_dim=widths[1] // count,
        )
        for count in counts
        if not any(width % count for width in widths)
    ]
    return Table(
        key="other_heads",
        title="Other numbers of heads",
        columns=(
            Column(key="num_attention_heads", title="Heads", unit="count"),
            Column(key="head_dim", title="head_dim", unit="count"),
            Column(key="projection_weights", title="W_q, W_k, W_v and W_o", unit="count"),
        ),
        rows=tuple((row.num_attention_heads, row.head_dim, _weights(row)) for row in rows),
    )


_OUTPUT = (
    "Each head ends in v_head_dim numbers of its own; the heads lie side by side, heads x"
    " v_head_dim wide. W_o takes them back to hidden_size, the width of the stream that the layer"
    " adds to. It is where what one head read meets what the others read: without it, head i could"
    " write to slice i of the stream only, and heads x v_head_dim would have to be hidden_size."
)
_SLICES = (
    "W_o is a sum over heads: W_o [head_1; head_2; …] = W_o^1 head_1 + W_o^2 head_2 + …, so that"
    " each head writes to the whole stream through columns of its own. Together with W_v they say"
    " what a head copies, and they are what goes when a head is pruned."
)


def w_o(subject: Subject) -> Page:
    sources = (VASWANI, ELHAGE)
    mixer = subject.attention or subject.latent
    if mixer is None or not mixer.parameters().o:
        return Page(False, (_OUTPUT, _SLICES, NOTHING), sources)
    plain = mixer.in_features("o") == mixer.num_attention_heads * mixer.v_head_dim
    columns = (_columns(mixer),) if plain else ()
    return Page(True, (_OUTPUT, _output(mixer), *columns, _SLICES), sources)


def _output(mixer: Attention | LatentAttention) -> Sum:
    """W_o whole."""
    heads, each, read = mixer.num_attention_heads, mixer.v_head_dim, mixer.in_features("o")
    plain = read == heads * each
    factors = (mixer.hidden_size, heads, each) if plain else (mixer.hidden_size, read)
    value = mixer.parameters().o
    return Sum(
        key="o_parameters",
        formula="W_o: hidden_size x " + ("heads x v_head_dim" if plain else "width that it reads"),
        filled=with_rest(product(*factors), prod(factors), value, "biases"),
        value=value,
    )


def _columns(mixer: Attention | LatentAttention) -> Sum:
    """The part of W_o that one head goes through."""
    heads = mixer.num_attention_heads
    return Sum(
        key="o_parameters_per_head",
        formula="the columns of one head: hidden_size x v_head_dim",
        filled=product(mixer.hidden_size, mixer.v_head_dim),
        value=mixer.hidden_size * mixer.in_features("o") // heads,
    )


_WIDTH = (
    "head_dim is how many numbers a query and a key of one head have; their product is divided by"
    " sqrt(head_dim) in most models, so that it does not grow with their length. v_head_dim is the"
    " same of a value: most often head_dim too."
)
_FREE = (
    "A config without head_dim most often means hidden_size / num_attention_heads, unless its class"
    " has a default. Nothing but that custom ties them: W_q is [heads x head_dim, hidden_size] and"
    " W_o leads back, so that heads x head_dim may be less or more than hidden_size. Then head_dim"
    " stands in the config or the class, and dividing hidden_size by the heads gives a wrong cache."
    " 64 and 128 are usual: kernels of attention are written for them."
)


def head_dim(subject: Subject) -> Page:
    mixer = subject.attention or subject.latent
    if mixer is None:
        return Page(False, (_WIDTH, _FREE, NOTHING), (VASWANI,))
    heads, hidden = mixer.num_attention_heads, mixer.hidden_size
    width = heads * mixer.head_dim
    verdict = "exactly" if width == hidden else "less than" if width < hidden else "more than"
    origin = subject.spec.origins.get("head_dim")
    said = f" ({origin.source})" if origin and origin.value == mixer.head_dim else ""
    blocks = (
        _WIDTH,
        Sum("query_width", "heads x head_dim", product(heads, mixer.head_dim), width),
        f"That is {verdict} hidden_size, {hidden:,}. head_dim is {mixer.head_dim}{said} and"
        f" v_head_dim {mixer.v_head_dim}.",
        _FREE,
    )
    return Page(True, blocks, (VASWANI,))
