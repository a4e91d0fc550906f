"""BART and its kin: an encoder and a decoder with cross-attention, each with its own heads."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, OTHER_STACKS, Architecture, Stored
from ..attention.layers import cross_attention_beside
from ..attention.more_parameters import second_query_key_value
from ..attention.shape import AttentionShape
from ..attention.shared import MHA_BIASED
from ..attention.two_stacks import cache_window, change_stack, two_stacks
from ..body.body import WEIGHT_AND_BIAS, Body, Head, Layers, lm_head, no_head, one_per_mixer
from ..body.encoded_images import HALVED_TWICE
from ..body.feed_forward import Mlp
from ..body.plain_experts import embedding_copies, experts_and_copies, idle_experts
from ..built_classes import class_name, type_of_class
from ..config_view import ConfigView
from ..tensors.names import BART_NAMES, TensorNames, separate, under
from ..tying import always, config_says, never


def _depth(view: ConfigView, side: str) -> int:
    return view.integer(f"{side}_layers", maximum=limits.LAYERS.most)


def _bart_side(shape: AttentionShape, view: ConfigView, side: str) -> Attention:
    hidden = view.integer("hidden_size")
    heads = view.integer(f"{side}_attention_heads")
    if hidden % heads:
        raise InvalidConfigError(
            f"{view.where}: d_model {hidden} is not divisible by {side}_attention_heads {heads}"
        )
    name = "head_dim" if side == "decoder" else f"{side}_head_dim"
    d = int(view.note(name, hidden // heads, f"derived: hidden_size / {side}_attention_heads"))
    bias = view.flag(shape.qkv_bias)
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        window=cache_window(view) if side == "decoder" else None,
        q_bias=bias,
        k_bias=bias if shape.k_bias is None else view.flag(shape.k_bias),
        v_bias=bias,
        o_bias=view.flag(shape.o_bias),
        cached=side == "decoder",
    )


def bart_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """An encoder and a decoder with cross-attention, each with its own number of heads; where
    `architectures` names no class, with `is_encoder_decoder` false the decoder alone."""
    outer = _bart_side(shape, view, "decoder")
    decoder = [(outer, cross_attention_beside(outer))] * _depth(view, "decoder")
    known = type_of_class(class_name(view.config)) is not None  # such a class decides by itself
    if not known and not view.flag("is_encoder_decoder"):
        return two_stacks([], decoder)
    inner = _bart_side(shape, view, "encoder")
    return two_stacks([(inner,)] * _depth(view, "encoder"), decoder)


def led_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """LED: the encoder has a second q, k and v for tokens that attend globally."""
    second = second_query_key_value(view, 0, 0)
    return change_stack(bart_layers(shape, view), "encoder", other_parameters=second)


def prophetnet_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """ProphetNet: the decoder's self-attention computes relative positions from its input, and its
    cross-attention can be left out."""
    more = view.integer("num_buckets") * view.integer("decoder_attention_heads")
    kept = 2 if view.flag("add_cross_attention") else 1
    return change_stack(
        tuple(replace(layer, mixers=layer.mixers[:kept]) for layer in bart_layers(shape, view)),
        "decoder",
        other_parameters=more * (view.integer("hidden_size") + 1),
    )


def bart_decoder_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of BART alone (PP-FormulaNet, whose encoder sees an image)."""
    return tuple(layer for layer in bart_layers(shape, view) if layer.stack == "decoder")


def marian_embeddings(view: ConfigView, layers: Layers) -> int:
    """The decoder's vocabulary, where it is another one, has an embedding of its own."""
    if view.flag("share_encoder_decoder_embeddings"):
        return embedding_copies(view, layers)
    hidden = view.integer("hidden_size")
    own = view.optional("decoder_vocab_size") or view.integer("vocab_size")
    return own * hidden


def pegasus_x_embeddings(view: ConfigView, layers: Layers) -> int:
    """Global tokens that all local blocks attend to, with a norm of their own in each layer."""
    norms = 2 * sum(layer.stack == "encoder" for layer in layers)
    rows = view.integer("num_global_tokens") + norms
    return embedding_copies(view, layers) + rows * view.integer("hidden_size")


def mvp_prompts(view: ConfigView, layers: Layers) -> int:
    """With `use_prompt` prompts for both attentions of the decoder, each an embedding and two
    matrices that make keys and values of all layers from it. The encoder that transformers builds
    has none."""
    if not view.flag("use_prompt"):
        return embedding_copies(view, layers)
    hidden, middle = view.integer("hidden_size"), view.integer("prompt_mid_dim")
    each = view.integer("prompt_length") * hidden + (hidden + 1) * middle
    made = (middle + 1) * 2 * view.integer("decoder_layers") * hidden
    return embedding_copies(view, layers) + 2 * (each + made)


def gated_convolutions(view: ConfigView, layers: Layers) -> int:
    """Convolutions over the spectrogram, each with a gated linear unit behind it."""
    hidden, channels = view.integer("hidden_size"), view.integer("conv_channels")
    inputs = view.integer("input_feat_per_channel") * view.integer("input_channels")
    total, kernels = 0, view.integers("conv_kernel_sizes") or ()
    for index, kernel in enumerate(kernels):
        out = 2 * hidden if index == len(kernels) - 1 else channels
        total += out * (inputs * kernel + 1)
        inputs = out // 2
    return total


def ngram_streams(view: ConfigView, layers: Layers) -> int:
    """One vector for each stream of the n-grams that it predicts."""
    return embedding_copies(view, layers) + view.integer("ngram") * view.integer("hidden_size")


def trocr_embeddings(view: ConfigView, layers: Layers) -> int:
    """Learned positions and a norm of the embedding, both on demand."""
    learned = view.flag("use_learned_position_embeddings")
    rows = view.integer("max_position_embeddings") + 2 if learned else 0
    return (rows + 2 * view.flag("layernorm_embedding")) * view.integer("hidden_size")


def unless_alone(view: ConfigView, text: ConfigView) -> bool:
    """The class of both stacks ties them, that of the decoder alone cannot (BigBird-Pegasus)."""
    return view.flag("is_encoder_decoder") and config_says(view, text)


NLLB_MOE_NAMES = TensorNames(
    modules=BART_NAMES.modules, cross=separate("cross_attention", o="out_proj")
)
SPEECHT5_NAMES = TensorNames(
    modules={**separate("attention", o="out_proj"), **BART_NAMES.modules}, cross=BART_NAMES.cross
)
# The encoder's attention is another class than the decoder's.
BIGBIRD_PEGASUS_NAMES = TensorNames(
    modules={**BART_NAMES.modules}
    | under("self_attn.self", q="query", k="key", v="value")
    | {"self_attn.output": "o"},
    cross=BART_NAMES.cross,
)
LED_NAMES = TensorNames(
    modules={**BART_NAMES.modules}
    | under("self_attn.longformer_self_attn", q="query", k="key", v="value")
    | under("self_attn.longformer_self_attn", other="query_global")
    | dict.fromkeys(
        (f"self_attn.longformer_self_attn.{part}_global" for part in ("key", "value")), "other"
    )
    | {"self_attn.output": "o"},
    cross=BART_NAMES.cross,
)
PROPHETNET_NAMES = TensorNames(
    modules={
        path: part
        for stem in ("self_attn", "ngram_self_attn")  # the second in files of before transformers 5
        for path, part in under(
            stem, q="query_proj", k="key_proj", v="value_proj", o="out_proj"
        ).items()
    }
    | {f"{stem}.relative_pos_embeddings": "other" for stem in ("self_attn", "ngram_self_attn")},
    cross=under("cross_attn", q="query_proj", k="key_proj", v="value_proj", o="out_proj"),
)

PROPHETNET_KEYS = {
    "encoder_attention_heads": ("num_encoder_attention_heads",),
    "decoder_attention_heads": ("num_decoder_attention_heads",),
    "encoder_layers": ("num_encoder_layers",),
    "decoder_layers": ("num_decoder_layers",),
}
SEQ2SEQ: dict[str, Head | None] = {"ForConditionalGeneration": lm_head}
BART_BODY = Body(
    norm=WEIGHT_AND_BIAS,
    norms=one_per_mixer,
    mlp=Mlp(width="{stack}_ffn_dim", gated=False, bias=True),
    classes={**SEQ2SEQ, "BartModel": no_head},
    default_class="BartModel",  # what facebook/bart-* name
    final_norms=0,
    embedding_norms=2,
    positions=("max_position_embeddings",) * 2,
    position_offset=2,
    more=embedding_copies,
)
BART_LIKE_BODY = replace(BART_BODY, classes={**SEQ2SEQ, "Model": no_head})
PRE_NORMED = replace(BART_LIKE_BODY, embedding_norms=0, final_norms=2, position_offset=0)
SINUSOIDAL = replace(PRE_NORMED, positions=())  # sinusoidal positions

BART = Architecture(
    types=("bart",),
    attention=replace(MHA_BIASED, build=bart_layers),
    body=replace(BART_BODY, named=True),
    tensors=BART_NAMES,
    rotary="none",
)
SEAMLESS = BART.relative("seamless_m4t", "seamless_m4t_v2", tensors=NLLB_MOE_NAMES, body=None)

ARCHITECTURES = (
    BART,
    BART.relative("plbart", body=BART_LIKE_BODY),
    BART.relative("mbart", body=replace(BART_LIKE_BODY, final_norms=2)),
    BART.relative("mvp", body=replace(BART_LIKE_BODY, more=mvp_prompts)),
    BART.relative("blenderbot-small", body=replace(BART_LIKE_BODY, position_offset=0)),
    BART.relative("blenderbot", "pegasus", body=PRE_NORMED),
    BART.relative("m2m_100", body=SINUSOIDAL),
    BART.relative("speech_to_text", body=replace(SINUSOIDAL, more=gated_convolutions)),
    BART.relative(
        "marian",
        body=replace(
            PRE_NORMED,
            final_norms=0,
            more=marian_embeddings,
            classes={"MTModel": lm_head, "MarianModel": no_head},
        ),
        stored=Stored(computes_positions=True),
    ),
    BART.relative("fsmt", config={"tied": always}, body=None),
    SEAMLESS,
    SEAMLESS.relative(
        "nllb-moe", body=replace(SINUSOIDAL, more=experts_and_copies, idle_more=idle_experts)
    ),
    BART.relative("speecht5", tensors=SPEECHT5_NAMES, body=None),
    BART.relative(
        "bigbird_pegasus",
        config={"tied": unless_alone},
        attention={"qkv_bias": "use_bias", "o_bias": "use_bias"},
        tensors=BIGBIRD_PEGASUS_NAMES,
        body=replace(BART_LIKE_BODY, position_offset=0),
    ),
    BART.relative(
        "pegasus_x",
        attention={"qkv_bias": False, "o_bias": False},
        body=replace(SINUSOIDAL, more=pegasus_x_embeddings),
    ),
    BART.relative(
        "led",
        attention={"build": led_layers},
        tensors=LED_NAMES,
        body=replace(
            BART_LIKE_BODY,
            positions=("max_encoder_position_embeddings", "max_decoder_position_embeddings"),
            position_offset=0,
        ),
    ),
    BART.relative(
        "prophetnet",
        config={"aliases": PROPHETNET_KEYS},
        attention={"build": prophetnet_layers},
        tensors=PROPHETNET_NAMES,
        body=replace(BART_LIKE_BODY, position_offset=0, more=ngram_streams),
    ),
    # The decoder alone
    BART.relative(
        "trocr",
        attention={"build": None, "cross": True, "cross_width": "cross_attention_hidden_size"},
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norms=one_per_mixer,
            final_norms=0,
            mlp=Mlp(width="decoder_ffn_dim", gated=False, bias=True),
            more=trocr_embeddings,
        ),
    ),
    BART.relative(
        "pp_formulanet_text", attention={"build": bart_decoder_layers}, body=None, rotary=None
    ),
    MULTIMODAL.relative(
        "pp_formulanet", config={"tied": never}, verification=OTHER_STACKS, image=HALVED_TWICE
    ),
    MULTIMODAL.relative("florence2", verification=OTHER_STACKS),
)
