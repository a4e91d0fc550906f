"""Encoders whose attention is narrower than the model, partly convolution, or reads latents."""

from dataclasses import replace

from headcount.model.mixers import Attention, CrossAttention
from headcount.model.spec import Layer

from ..attention.layers import attention, layer_count
from ..attention.shape import AttentionShape
from ..config_view import MAX_LAYERS, ConfigView, MissingValueError


def _stack(mixer: Attention, count: int, stack: str = "encoder") -> tuple[Layer, ...]:
    mixer = replace(mixer, cached=False)
    return tuple(Layer(index=i, mixers=(mixer,), stack=stack) for i in range(count))


def convbert(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """ConvBERT (arXiv 2008.02496): one in `head_ratio` heads remains, of half the width, and
    convolutions with kernels that the input makes fill the other half."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_kernel_size")
    heads = max(1, view.integer("num_attention_heads") // view.integer("head_ratio"))
    d = hidden // heads // 2
    width = heads * d
    mixer = replace(
        attention(shape, view.overridden({"num_attention_heads": heads, "head_dim": d})),
        output_size=hidden,
        other_parameters=hidden * kernel
        + width * (hidden + 1)  # depthwise and pointwise over the keys
        + heads * kernel * (width + 1)
        + width * (hidden + 1),
    )
    return _stack(mixer, layer_count(view))


def no_attention(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """FNet (arXiv 2105.03824): Fourier transforms mix the tokens, without parameters."""
    return tuple(Layer(index=i, mixers=(), stack="encoder") for i in range(layer_count(view)))


def funnel(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Funnel Transformer (arXiv 2006.03236): `block_sizes` layers on ever fewer tokens, then, but
    in the classes without it, `num_decoder_layers` on all again. Relative positions and segments
    have vectors per head: three biases, a projection of positions, two embeddings."""
    hidden, heads, d = (view.integer(name) for name in ("hidden_size", "n_head", "d_head"))
    mixer = Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        k_bias=True,
        v_bias=True,
        o_bias=True,
        other_parameters=heads * d * (hidden + 5),
    )
    encoder = _stack(mixer, _block_layers(view))
    names = view.strings("architectures") or ("",)
    if names[0].endswith(("BaseModel", "ForSequenceClassification", "ForMultipleChoice")):
        return encoder
    count = view.integer("num_decoder_layers", maximum=MAX_LAYERS)
    return encoder + _stack(mixer, count, "decoder")


def _block_layers(view: ConfigView) -> int:
    sizes = view.integers("block_sizes")
    if sizes is None:
        raise MissingValueError(f"{view.where}: block_sizes is missing")
    return layer_count(view.overridden({"num_hidden_layers": sum(sizes)}))


def mobilebert(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """MobileBERT (arXiv 2004.02984): attention in a bottleneck of `intra_bottleneck_size`; without
    `use_bottleneck_attention`, its values come from the full width."""
    hidden = view.integer("hidden_size")
    width = view.integer("intra_bottleneck_size") if view.flag("use_bottleneck") else hidden
    mixer = attention(shape, view.overridden({"hidden_size": width}))
    values = None if view.flag("use_bottleneck_attention") else hidden
    return _stack(replace(mixer, value_size=values), layer_count(view))


def squeezebert(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """SqueezeBERT (arXiv 2006.11316): each projection is a convolution of so many groups, of which
    every output reads one."""
    hidden, mixer = view.integer("hidden_size"), attention(shape, view)
    names = ("q_groups", "k_groups", "v_groups", "post_attention_groups")
    query, key, value, output = (hidden // view.integer(name) for name in names)
    mixer = replace(
        mixer, query_size=query, key_value_size=key, value_size=value, output_size=output
    )
    return _stack(mixer, layer_count(view))


def dinov3(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """DINOv3 (arXiv 2508.10104): a flag for the bias of each projection."""
    mixer = replace(
        attention(shape, view),
        q_bias=view.flag("query_bias"),
        k_bias=view.flag("key_bias"),
        v_bias=view.flag("value_bias"),
        o_bias=view.flag("proj_bias"),
    )
    return _stack(mixer, layer_count(view))


def perceiver(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Perceiver IO (arXiv 2107.14795): latents attend to the input once, then run `num_blocks`
    times through one block of layers; in the class for masked language models, every position
    then attends to the latents, with 8 heads of 32."""
    latents, width = view.integer("d_latents"), view.integer("d_model")
    inner = width if view.get("cross_attention_shape_for_attention") != "q" else latents
    reads = _perceiver(view, "cross", latents, width, inner)
    block = _perceiver(view, "self", latents, latents, latents)
    again = replace(block, owns_parameters=False)
    count = view.integer("num_self_attends_per_block", maximum=MAX_LAYERS)
    mixers = [reads, *[block] * count]
    mixers += [again] * (count * (view.integer("num_blocks", maximum=MAX_LAYERS) - 1))
    layers = [Layer(index=i, mixers=(m,), stack="encoder") for i, m in enumerate(mixers)]
    names = view.strings("architectures") or ("ForMaskedLM",)
    if names[0].endswith("ForMaskedLM"):
        layers.append(Layer(index=0, mixers=(_positions(width, latents),)))
    return tuple(layers)


def _perceiver(view: ConfigView, side: str, width: int, reads: int, shape: int) -> Attention:
    """Layer norms of what q reads and, in a cross-attention, of what k and v read belong to it."""
    heads = view.integer(f"num_{side}_attention_heads")
    keys = view.optional("qk_channels") or shape
    values = view.optional("v_channels") or keys
    kind = CrossAttention if side == "cross" else Attention
    return kind(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=keys // heads,
        v_head_dim=values // heads,
        key_value_size=reads,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
        norm_parameters=2 * (width + reads * (side == "cross")),
        cached=False,
    )


def _positions(width: int, latents: int) -> CrossAttention:
    return CrossAttention(
        hidden_size=width,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=32,
        v_head_dim=width // 8,
        key_value_size=latents,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
        norm_parameters=2 * (width + latents),
        cached=False,
    )
