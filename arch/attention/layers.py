"""From a config to layers: the common decoder, encoders, encoder-decoders and latent attention."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from headcount.model import limits
from headcount.model.divisors import divisors, listed
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, CrossAttention, LatentAttention, Mixer
from headcount.model.spec import Layer

from ..config_view import ConfigView
from .layer_kinds import CHUNKED, FULL, SLIDING, layer_kinds
from .rounded_widths import rounds_down
from .shape import AttentionShape, needed_window, plain_window

# Parameters of the q/k norms, by (H, KV, d).
NORM_SIZES: dict[str, Callable[[int, int, int], int]] = {
    "none": lambda heads, kv, d: 0,
    "head": lambda heads, kv, d: 2 * d,  # one RMSNorm(d) for q, one for k
    "head_bias": lambda heads, kv, d: 4 * d,  # LayerNorm(d): weight and bias
    "heads": lambda heads, kv, d: (heads + kv) * d,  # over all heads, or one per head
    "heads_bias": lambda heads, kv, d: 2 * (heads + kv) * d,  # LayerNorm over all heads
    "output": lambda heads, kv, d: heads * d,  # of what o_proj reads
    "output_bias": lambda heads, kv, d: 2 * heads * d,
    "q_and_k": lambda heads, kv, d: 2 * heads * d,  # both over the hidden size
}


def layer_count(view: ConfigView) -> int:
    return view.integer("num_hidden_layers", maximum=limits.LAYERS.most)


def resolve_head_dim(shape: AttentionShape, view: ConfigView, heads: int) -> int:
    """head_dim where the class reads one, else hidden_size / num_attention_heads, rounded down.
    Raises InvalidConfigError for a width that only another class would round."""
    given = None if shape.fixed_head_dim else view.optional("head_dim")
    if given is not None:
        return given
    hidden = view.integer("hidden_size")
    rest = hidden % heads
    if rest and not rounds_down(view.model_type):
        raise InvalidConfigError(
            f"{view.where}: hidden_size {hidden} is not divisible by num_attention_heads {heads},"
            " and no head_dim is given"
        )
    source = "derived: hidden_size / num_attention_heads"
    return int(view.note("head_dim", hidden // heads, source + (", rounded down" if rest else "")))


def attention(shape: AttentionShape, view: ConfigView, *, window: int | None = None) -> Attention:
    """The self-attention that the shape and the config describe."""
    heads = view.integer("num_attention_heads")
    kv = shape.count_key_value_heads(view, heads)
    check_grouping(view, heads, kv)
    d = resolve_head_dim(shape, view, heads)
    norm = shape.norm if isinstance(shape.norm, str) else shape.norm(view)
    normed = view.flag(shape.norm_if)
    bias = view.flag(shape.qkv_bias)
    return Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=view.integer(shape.v_head_dim) if shape.v_head_dim else d,
        window=window,
        q_bias=bias,
        k_bias=bias if shape.k_bias is None else view.flag(shape.k_bias),
        v_bias=bias,
        o_bias=view.flag(shape.o_bias),
        norm_parameters=NORM_SIZES[norm](heads, kv, d) if normed else 0,
        other_parameters=shape.other(view, heads, d),
        broadcasts_key_value=view.flag(shape.broadcasts_key_value),
    )


def check_grouping(view: ConfigView, heads: int, kv: int) -> None:
    """Refuses head counts that no model can run. transformers builds them, and fails in forward."""
    if heads % kv:
        raise InvalidConfigError(
            f"{view.where}: num_attention_heads {heads}{view.unsaid('num_attention_heads')} is not"
            f" divisible by num_key_value_heads {kv}{view.unsaid('num_key_value_heads')}; possible"
            f" are {listed(divisors(heads))}"
        )


def halved_if_two_sided(view: ConfigView) -> int:
    """Gemma 3 and 4 see as far to the right as to the left with `use_bidirectional_attention`:
    true in Gemma 3, "all" in Gemma 4."""
    window, two_sided = plain_window(view), view.get("use_bidirectional_attention")
    return window // 2 + 1 if two_sided is True or two_sided == "all" else window


def kind_window(shape: AttentionShape, view: ConfigView, kind: str) -> int | None:
    """The window of a layer of this kind in tokens; None when it sees everything."""
    if kind == SLIDING:
        return shape.window(view)
    return needed_window(view, "attention_chunk_size") if kind == CHUNKED else None


def build_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The layers of a config: by the shape's own builder, or those of a common decoder."""
    return (shape.build or decoder_layers)(shape, view)


def decoder_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Equal layers but for their windows: nearly every decoder."""
    return one_stack(shape, view, mixers_by_layer(shape, view, _kinds(shape, view)))


def _kinds(shape: AttentionShape, view: ConfigView) -> tuple[str, ...]:
    """Nothing but a cache reads `layer_types` in a class without windows of its own (BERT)."""
    count = layer_count(view)
    if shape.kinds is None and not view.flag(shape.cached):
        return (FULL,) * count
    return layer_kinds(view, count, shape.kinds)


def mixers_by_layer(
    shape: AttentionShape, view: ConfigView, kinds: tuple[str, ...]
) -> tuple[Attention, ...]:
    """The self-attention of each layer; equal layers share one object."""
    if shape.per_layer is None:
        views = [view] * len(kinds)
    else:
        views = [view.overridden(values) for values in shape.per_layer(view, kinds)]
    made: dict[tuple[str, str], Attention] = {}
    for kind, own in zip(kinds, views, strict=True):
        key = (kind, own.overrides)
        if key not in made:
            made[key] = attention(shape, own, window=kind_window(shape, own, kind))
    return tuple(made[kind, own.overrides] for kind, own in zip(kinds, views, strict=True))


def one_stack(
    shape: AttentionShape, view: ConfigView, mixers: Iterable[Attention]
) -> tuple[Layer, ...]:
    """One stack of layers, each with one self-attention and, where the shape says so, a
    cross-attention beside it."""
    cached, crossing = view.flag(shape.cached), view.flag(shape.cross)
    stack = shape.stack or ("decoder" if cached else "encoder")
    width = view.optional(shape.cross_width) if crossing and shape.cross_width else None
    return tuple(
        Layer(
            index=index,
            mixers=(
                replace(mixer, cached=cached),
                *(
                    (replace(cross_attention_beside(mixer), key_value_size=width),)
                    if crossing
                    else ()
                ),
            ),
            stack=stack,
        )
        for index, mixer in enumerate(mixers)
    )


def encoder_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Bidirectional layers that keep nothing (ViT)."""
    return uncached_layers(attention(shape, view), layer_count(view))


def uncached_layers(mixer: Attention, count: int, stack: str = "encoder") -> tuple[Layer, ...]:
    """Equal layers of `mixer` that keep nothing."""
    return equal_layers(replace(mixer, cached=False), count, stack)


def equal_layers(mixer: Mixer, count: int, stack: str = "decoder") -> tuple[Layer, ...]:
    """Equal layers of `mixer`."""
    return tuple(Layer(index=i, mixers=(mixer,), stack=stack) for i in range(count))


def latent_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """DeepSeek-V2/V3: multi-head latent attention in every layer."""
    mixer, kinds = latent_attention(view), _kinds(shape, view)
    windows = {kind: kind_window(shape, view, kind) for kind in dict.fromkeys(kinds)}
    made = {kind: replace(mixer, window=window) for kind, window in windows.items()}
    return tuple(Layer(index=i, mixers=(made[kind],)) for i, kind in enumerate(kinds))


def latent_attention(view: ConfigView) -> LatentAttention:
    """Latent attention by the keys of DeepSeek-V2; `q_lora_rank` may be null or not be there."""
    return LatentAttention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=view.integer("num_attention_heads"),
        q_lora_rank=view.optional("q_lora_rank"),
        kv_lora_rank=view.integer("kv_lora_rank"),
        qk_nope_head_dim=view.integer("qk_nope_head_dim"),
        qk_rope_head_dim=view.integer("qk_rope_head_dim", minimum=0),
        v_head_dim=_latent_value_width(view),
        bias=view.flag("attention_bias"),
    )


def _latent_value_width(view: ConfigView) -> int:
    """v_head_dim; a class without a default for it divides the hidden size (MiniCPM3)."""
    given = view.optional("v_head_dim")
    if given is not None or "v_head_dim" not in view.defaults:
        return view.integer("v_head_dim")
    width = view.integer("hidden_size") // view.integer("num_attention_heads")
    return int(view.note("v_head_dim", width, "derived: hidden_size / num_attention_heads"))


def cross_attention_beside(self_attention: Attention) -> CrossAttention:
    """The cross-attention of a decoder whose two attentions have the same shape. Its cache is made
    by the same config: where that names a window, it slides over the encoder's tokens, too."""
    return CrossAttention(
        hidden_size=self_attention.hidden_size,
        num_attention_heads=self_attention.num_attention_heads,
        num_key_value_heads=self_attention.num_key_value_heads,
        head_dim=self_attention.head_dim,
        v_head_dim=self_attention.v_head_dim,
        window=self_attention.window,
        q_bias=self_attention.q_bias,
        k_bias=self_attention.k_bias,
        v_bias=self_attention.v_bias,
        o_bias=self_attention.o_bias,
    )
