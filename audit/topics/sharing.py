"""Pages on heads that share keys and values: gqa, group, mqa, mla."""

from collections.abc import Iterator

from headcount.model.divisors import divisors
from headcount.model.mixers import Attention, LatentAttention
from headcount.model.sizes import mha_ratio
from headcount.model.units import format_bytes, key_value_heads
from headcount.report.report import Column, Table

from .page import AINSLIE, LATENT, NOTHING, SHAZEER, VASWANI, Page, Sum, product
from .subject import Subject, key_value_terms, token_bytes, token_terms

_SHARED = (
    "In grouped-query attention (GQA) several query heads read one K/V head. W_k and W_v shrink"
    " with the K/V heads, and so does the cache, which is what a decoding step reads; queries,"
    " scores and W_o stay as they are. With a K/V head for every head it is multi-head attention"
    " (MHA), with one for all it is multi-query attention (MQA)."
)

_EVERY = "a layer with a K/V head for every head"


def gqa(subject: Subject) -> Page:
    attention = subject.attention
    if attention is None:
        return Page(False, (_SHARED, NOTHING), (AINSLIE,))
    heads = attention.num_attention_heads
    blocks: tuple[str | Sum, ...] = (
        _SHARED,
        f"This model has {key_value_heads(attention.num_key_value_heads)} for {heads} heads"
        f" ({attention.heads}).",
        *_against_mha(subject, attention),
        *_whole_caches(subject),
        "The table: a layer with each number of K/V heads that divides its heads. Fewer of them"
        " want training: `headcount convert` merges heads, and `headcount evaluate` measures it.",
    )
    table = _numbers(subject, attention)
    return Page(attention.heads == "GQA", blocks, (AINSLIE,), (table,))


def _against_mha(subject: Subject, attention: Attention) -> Iterator[Sum]:
    as_mha = attention.with_key_value_heads(attention.num_attention_heads)
    own = ("", "this layer", attention)
    both = (own,) if attention == as_mha else (own, ("mha_", _EVERY, as_mha))
    for name, who, one in both:
        if subject.spec.is_cached:
            yield _token(subject, one, f"{name}cache_bytes_per_token_and_layer", who)
    for name, who, one in both:
        parts = one.parameters()
        yield Sum(
            key=f"{name}key_value_parameters",
            formula=f"parameters of W_k and W_v in {who}",
            filled=f"{parts.k:,} + {parts.v:,}",
            value=parts.k + parts.v,
        )


def _whole_caches(subject: Subject) -> Iterator[str]:
    """The cache of the model's longest sequence, as it is and as MHA."""
    spec, sizes = subject.spec, subject.sizes
    if not spec.is_cached:
        return
    tokens, encoder, bits = sizes.context, sizes.encoder_tokens, sizes.bits
    kept = spec.cache_bytes(tokens=tokens, encoder_tokens=encoder, bits=bits)
    as_mha = spec.mha_cache_bytes(tokens=tokens, encoder_tokens=encoder, bits=bits)
    all_keep = f"All layers keep {format_bytes(kept)} of {tokens:,} tokens"
    if kept == as_mha:
        yield f"{all_keep}, as MHA does: fewer K/V heads keep as much less."
    else:
        ratio = f"{mha_ratio(spec, sizes):.2f}x"
        yield f"{all_keep}, where MHA would keep {format_bytes(as_mha)}: {ratio}."


def _token(subject: Subject, attention: Attention, key: str, who: str) -> Sum:
    return Sum(
        key=key,
        formula=f"cache of a token in {who}: 2 x K/V heads x head_dim x bytes",
        filled=token_terms(subject, attention),
        value=token_bytes(subject, attention),
        unit="exact_bytes",
    )


def _numbers(subject: Subject, attention: Attention) -> Table:
    """A row for each number of K/V heads that the heads can share."""
    rows = []
    for count in divisors(attention.num_attention_heads):
        one = attention.with_key_value_heads(count)
        parts = one.parameters()
        rows.append((count, one.group_size, token_bytes(subject, one), parts.k + parts.v))
    return Table(
        key="key_value_heads",
        title="Other numbers of K/V heads",
        columns=(
            Column(key="num_key_value_heads", title="K/V heads", unit="count"),
            Column(key="group_size", title="Group size", unit="count"),
            Column(key="cache_bytes", title="Cache of a token in a layer", unit="bytes"),
            Column(key="key_value_parameters", title="W_k and W_v", unit="count"),
        ),
        rows=tuple(rows),
    )


_GROUP = (
    "A K/V group is a K/V head with the query heads that read it: group_size = heads / K/V heads of"
    " them, neighbours. Query heads j x group_size to (j + 1) x group_size - 1 read K/V head j."
    ' (The word "groups" alone names either number in papers; group_size is heads per K/V head'
    " here.)"
)


def group(subject: Subject) -> Page:
    attention = subject.attention
    if attention is None:
        return Page(False, (_GROUP, NOTHING), (AINSLIE,))
    size, last = attention.group_size, attention.num_key_value_heads - 1
    blocks = (
        _GROUP,
        Sum(
            key="num_attention_heads",
            formula="heads: K/V heads x group_size",
            filled=product(attention.num_key_value_heads, size),
            value=attention.num_attention_heads,
        ),
        f"K/V head 0 is read by {_run(0, size)}"
        + (f", … K/V head {last} by {_run(last, size)}." if last else ", all that there are."),
    )
    return Page(attention.heads != "MHA", blocks, (AINSLIE,))


def _run(number: int, size: int) -> str:
    first = number * size
    return f"head {first}" if size == 1 else f"heads {first} to {first + size - 1}"


_ONE = (
    "Multi-query attention has one K/V head that all heads read: the smallest cache that keys and"
    " values of their own can have, heads times smaller than with one for each. Ainslie et al. find"
    " that it costs quality, and that some K/V heads more win most of it back. Nor can one head be"
    " split among devices: with tensor parallelism each keeps a copy."
)


def mqa(subject: Subject) -> Page:
    attention, sources = subject.attention, (SHAZEER, AINSLIE)
    if attention is None:
        return Page(False, (_ONE, NOTHING), sources)
    is_mqa = attention.heads == "MQA"
    kind = f"It has {key_value_heads(attention.num_key_value_heads)} ({attention.heads})."
    blocks: tuple[str | Sum, ...] = (
        "This is such a model." if is_mqa else kind,
        *_with_one(subject, attention),
    )
    return Page(is_mqa, (_ONE, *blocks), sources)


def _with_one(subject: Subject, attention: Attention) -> Iterator[Sum]:
    if not subject.spec.is_cached:
        return
    key, every = "cache_bytes_per_token_and_layer", attention.num_attention_heads
    if attention.heads == "GQA":
        yield _token(subject, attention, key, "this layer")
    for name, count, who in (("mha", every, _EVERY), ("mqa", 1, "a layer with one K/V head")):
        yield _token(subject, attention.with_key_value_heads(count), f"{name}_{key}", who)


_LATENT = (
    "Multi-head latent attention (MLA) keeps neither keys nor values, but one latent of"
    " kv_lora_rank numbers for all heads, from which each head's key and value are projected, and"
    " qk_rope_head_dim rotated numbers of a key that all heads share, since a rotation by position"
    " cannot be folded into the projection. At decoding, the projection up moves into W_q and W_o,"
    " and the latent is read as it lies."
)
_WOULD = (
    "This model has none. With the ranks that DeepSeek-V2 chose (kv_lora_rank = 4 x head_dim,"
    " qk_rope_head_dim = head_dim / 2) a layer of its heads would keep, of a token, elements:"
)


def mla(subject: Subject) -> Page:
    latent, attention, sources = subject.latent, subject.attention, (LATENT, VASWANI)
    if latent is not None:
        return Page(True, (_LATENT, *_latent_sums(subject, latent)), sources)
    if attention is None:
        return Page(False, (_LATENT, NOTHING), sources)
    return Page(False, (_LATENT, _WOULD, *_would_keep(attention)), sources)


def _latent_sums(subject: Subject, latent: LatentAttention) -> Iterator[Sum]:
    heads, key, value = latent.num_attention_heads, latent.head_dim, latent.v_head_dim
    yield Sum(
        key="cache_bytes_per_token_and_layer",
        formula="a token in a layer: (kv_lora_rank + qk_rope_head_dim) x bytes",
        filled=token_terms(subject, latent),
        value=token_bytes(subject, latent),
        unit="exact_bytes",
    )
    yield Sum(
        key="mha_cache_elements_per_token_and_layer",
        formula="elements of a token with K and V of every head: heads x (head_dim + v_head_dim)",
        filled=f"{heads:,} x ({key:,} + {value:,})",
        value=latent.mha_key_value_elements(1),
    )
    yield Sum(
        key="cache_elements_per_token_and_layer",
        formula="elements of the same token as it is: kv_lora_rank + qk_rope_head_dim",
        filled=key_value_terms(latent)[0],
        value=latent.key_value_elements(1),
    )


def _would_keep(attention: Attention) -> Iterator[Sum]:
    heads, each = attention.num_attention_heads, attention.head_dim
    latent = LatentAttention(
        hidden_size=attention.hidden_size,
        num_attention_heads=heads,
        q_lora_rank=None,
        kv_lora_rank=4 * each,
        qk_nope_head_dim=each,
        qk_rope_head_dim=each // 2,
        v_head_dim=attention.v_head_dim,
    )
    yield Sum(
        key="mla_cache_elements_per_token_and_layer",
        formula="as MLA: kv_lora_rank + qk_rope_head_dim",
        filled=f"4 x {each:,} + {each // 2:,}",
        value=latent.key_value_elements(1),
    )
    terms, elements = key_value_terms(attention)
    yield Sum(
        key="cache_elements_per_token_and_layer",
        formula="as it is: 2 x K/V heads x head_dim",
        filled=terms,
        value=elements,
    )
