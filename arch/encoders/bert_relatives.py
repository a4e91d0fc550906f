"""Encoders after BERT whose attention has parameters, widths or names of its own."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.mixers import Attention, CrossAttention
from headcount.model.spec import Layer

from ..architecture import Architecture, Verification
from ..attention.layers import attention, layer_count, uncached_layers
from ..attention.more_parameters import second_query_key_value, value_convolution
from ..attention.shape import AttentionShape
from ..attention.shared import ENCODER_MHA
from ..body.body import Layers, no_head
from ..body.feed_forward import Mlp
from ..body.masked_lm import one_bias_head
from ..config_view import ConfigView, MissingValueError
from ..tensors.names import BERT_NAMES, UNKNOWN_NAMES, TensorNames, under
from ..tying import never
from .bert import POOLED_BODY, UNPOOLED_BODY


def luke_queries(view: ConfigView, heads: int, head_dim: int) -> int:
    """LUKE: queries of their own from words to entities, entities to words and to entities."""
    hidden = view.integer("hidden_size")
    return 3 * hidden * (hidden + 1) if view.flag("use_entity_aware_attention") else 0


def convbert_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
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
    return uncached_layers(mixer, layer_count(view))


def no_attention(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """FNet (arXiv 2105.03824): Fourier transforms mix the tokens, without parameters."""
    return tuple(Layer(index=i, mixers=(), stack="encoder") for i in range(layer_count(view)))


def funnel_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
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
    encoder = uncached_layers(mixer, _block_layers(view))
    names = view.strings("architectures") or ("",)
    if names[0].endswith(("BaseModel", "ForSequenceClassification", "ForMultipleChoice")):
        return encoder
    count = view.integer("num_decoder_layers", maximum=limits.LAYERS.most)
    return encoder + uncached_layers(mixer, count, "decoder")


def _block_layers(view: ConfigView) -> int:
    sizes = view.integers("block_sizes")
    if sizes is None:
        raise MissingValueError(f"{view.where}: block_sizes is missing")
    total = {"num_hidden_layers": sum(sizes)}
    return layer_count(view.overridden(total, derived="block_sizes, added up"))


def mobilebert_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """MobileBERT (arXiv 2004.02984): attention in a bottleneck of `intra_bottleneck_size`; without
    `use_bottleneck_attention`, its values come from the full width."""
    hidden = view.integer("hidden_size")
    width = view.integer("intra_bottleneck_size") if view.flag("use_bottleneck") else hidden
    mixer = attention(shape, view.overridden({"hidden_size": width}))
    name = "hidden_size" if width == hidden else "intra_bottleneck_size"
    view.note("head_dim", mixer.head_dim, f"derived: {name} / num_attention_heads")
    values = None if view.flag("use_bottleneck_attention") else hidden
    return uncached_layers(replace(mixer, value_size=values), layer_count(view))


def squeezebert_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """SqueezeBERT (arXiv 2006.11316): each projection is a convolution of so many groups, of which
    every output reads one."""
    hidden, mixer = view.integer("hidden_size"), attention(shape, view)
    names = ("q_groups", "k_groups", "v_groups", "post_attention_groups")
    query, key, value, output = (hidden // view.integer(name) for name in names)
    mixer = replace(
        mixer, query_size=query, key_value_size=key, value_size=value, output_size=output
    )
    return uncached_layers(mixer, layer_count(view))


def perceiver_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Perceiver IO (arXiv 2107.14795): latents attend to the input once, then run `num_blocks`
    times through one block of layers; in the class for masked language models, every position
    then attends to the latents, with 8 heads of 32."""
    latents, width = view.integer("d_latents"), view.integer("d_model")
    inner = width if view.get("cross_attention_shape_for_attention") != "q" else latents
    reads = _latents_attend(view, "cross", latents, width, inner)
    block = _latents_attend(view, "self", latents, latents, latents)
    again = replace(block, owns_parameters=False)
    count = view.integer("num_self_attends_per_block", maximum=limits.LAYERS.most)
    mixers = [reads, *[block] * count]
    mixers += [again] * (count * (view.integer("num_blocks", maximum=limits.LAYERS.most) - 1))
    layers = [Layer(index=i, mixers=(m,), stack="encoder") for i, m in enumerate(mixers)]
    names = view.strings("architectures") or ("ForMaskedLM",)
    if names[0].endswith("ForMaskedLM"):
        layers.append(Layer(index=0, mixers=(_positions_attend(width, latents),)))
    return tuple(layers)


def _latents_attend(view: ConfigView, side: str, width: int, reads: int, shape: int) -> Attention:
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


def _positions_attend(width: int, latents: int) -> CrossAttention:
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


def mpnet_positions(view: ConfigView, layers: Layers) -> int:
    """One table of relative positions for all layers."""
    buckets = view.integer("relative_attention_num_buckets")
    return buckets * view.integer("num_attention_heads")


SQUEEZEBERT_NAMES = TensorNames(
    modules=under("attention", q="query", k="key", v="value")
    | {"post_attention.conv1d": "o", "post_attention.layernorm": ""}
)
# With projections of their own beside q, k and v: Longformer, LUKE, Nyströmformer.
BERT_AND_MORE_NAMES = replace(BERT_NAMES, rest="other")
MPNET_NAMES = TensorNames(
    modules=under("attention.attn", q="q", k="k", v="v", o="o") | {"attention.LayerNorm": ""}
)
DISTILBERT_NAMES = TensorNames(
    modules=under("attention", q="q_lin", k="k_lin", v="v_lin", o="out_lin")
)

ENCODER = Architecture(types=(), attention=ENCODER_MHA, tensors=BERT_NAMES)
# Headers are not sorted to parts.
NARROW = ENCODER.relative(tensors=UNKNOWN_NAMES)

ARCHITECTURES = (
    ENCODER.relative(
        "distilbert",
        tensors=DISTILBERT_NAMES,
        body=replace(
            UNPOOLED_BODY,
            token_types=None,
            mlp=Mlp(width="hidden_dim", gated=False, bias=True),
            classes={"ForMaskedLM": one_bias_head, "Model": no_head},
        ),
    ),
    ENCODER.relative(
        "longformer",
        attention={"other": second_query_key_value},
        tensors=BERT_AND_MORE_NAMES,
        body=POOLED_BODY,
    ),
    ENCODER.relative(
        "luke",
        config={"tied": never},
        attention={"other": luke_queries},
        tensors=BERT_AND_MORE_NAMES,
    ),
    ENCODER.relative(
        "mpnet",
        tensors=MPNET_NAMES,
        body=replace(POOLED_BODY, token_types=None, more=mpnet_positions),
    ),
    ENCODER.relative(
        "nystromformer",
        attention={"other": value_convolution("conv_kernel_size")},
        tensors=BERT_AND_MORE_NAMES,
        body=replace(UNPOOLED_BODY, position_offset=2),
    ),
    # Attention of other widths than the model's, or none
    ENCODER.relative(
        "convbert",
        attention={"fixed_head_dim": False, "build": convbert_layers},
        tensors=BERT_AND_MORE_NAMES,
    ),
    ENCODER.relative("mobilebert", attention={"build": mobilebert_layers}),
    NARROW.relative(
        "funnel", attention={"build": funnel_layers}, verification=Verification(scattered=True)
    ),
    NARROW.relative(
        "perceiver",
        attention={"build": perceiver_layers},
        verification=Verification(scattered=True),
    ),
    NARROW.relative(
        "squeezebert", attention={"build": squeezebert_layers}, tensors=SQUEEZEBERT_NAMES
    ),
    Architecture(
        types=("fnet",),
        attention=AttentionShape(build=no_attention, cached=False),
        tensors=UNKNOWN_NAMES,
    ),
)
