"""Meta's models after Llama 3: Llama 4, Llama 3.2 Vision (mllama) and Muse."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion, Stored
from ..attention.layer_kinds import CHUNKED, FULL, SLIDING, KindFunction, rope_layers
from ..attention.layers import attention, cross_attention_beside, encoder_layers, layer_count
from ..attention.more_parameters import output_gate
from ..attention.shape import AttentionShape
from ..attention.shared import ENCODER_MHA, LLAMA_ATTENTION, TOWER_MHA, TOWER_MHA_BIASED
from ..body.body import Body, Layers
from ..body.encoded_images import TILES
from ..body.feed_forward import Mlp
from ..body.image_embeddings import patch_count, patches
from ..body.projectors import linear
from ..body.shared import IMAGE, SAME_WIDTH, SANDWICH
from ..body.towers import Tower, fixed_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..modules.names import LLAMA4
from ..tensors.names import GATE_PROJ_NAMES
from ..tying import never, text_says


def llama4_width(view: ConfigView, layer: Layer) -> int:
    """Layers without experts; `intermediate_size` is the width of an expert."""
    return view.integer("intermediate_size_mlp")


def extra_tokens_and_gates(view: ConfigView, layers: Layers) -> int:
    """Eight more tokens than the head has, and two gates in each cross-attention layer."""
    crossing = sum(m.kind == "cross_attention" for layer in layers for m in layer.mixers)
    return 8 * view.integer("hidden_size") + 2 * crossing


def layers_of_text_or_image(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Llama 3.2 Vision: `cross_attention_layers` attend to the image instead of the text."""
    mixer = attention(shape, view)
    cross = replace(cross_attention_beside(mixer), norm_parameters=2 * mixer.head_dim)
    chosen = frozenset(view.integers("cross_attention_layers") or ())
    return tuple(
        Layer(index=i, mixers=(cross if i in chosen else mixer,)) for i in range(layer_count(view))
    )


def llama4_vision_embeddings(view: ConfigView, layers: Layers) -> int:
    """Unfolded patches, a class token, positions, and the adapter after the pixel shuffle."""
    hidden, out = view.integer("hidden_size"), view.integer("projector_output_dim")
    embeddings = patches(view, bias=False) + (patch_count(view) + 2) * hidden
    adapter = linear(
        view.integer("intermediate_size"), view.integer("projector_input_dim"), bias=False
    )
    return embeddings + adapter + linear(out, out, bias=False)


def llama4_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("vision_output_dim"), text.integer("hidden_size"), bias=False)


def mllama_vision_embeddings(view: ConfigView, layers: Layers) -> int:
    """Patches and a class token; gated positions, for the image, its tiles and their layout; and
    two gates in each global layer."""
    hidden, tokens = view.integer("hidden_size"), patch_count(view) + 1
    ratios = view.get("supported_aspect_ratios")
    layouts = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    tiles = layouts * view.integer("max_num_tiles") * hidden
    embeddings = patches(view, bias=False) + hidden + tokens * hidden
    gates = 3 + 2 * view.integer("num_global_layers", minimum=0)
    return embeddings + tokens * tiles + 2 * tiles + gates


def mllama_layers(shape: AttentionShape, view: ConfigView) -> Layers:
    """The local layers, then as many global ones of the same shape as the config says."""
    local = encoder_layers(shape, view)
    return local + local[:1] * view.integer(
        "num_global_layers", minimum=0, maximum=limits.LAYERS.most
    )


def mllama_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("vision_output_dim"), text.integer("hidden_size"))


def full_last(period: int) -> KindFunction:
    """Counted from the last layer, which is full (Muse)."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        return tuple(FULL if (count - 1 - i) % period == 0 else SLIDING for i in range(count))

    return rule


def chunked_with_rope(view: ConfigView, count: int) -> tuple[str, ...]:
    """Chunked where `no_rope_layers[i]` is 1 (the layer has RoPE), full where it is 0, and without
    a chunk's size. Without the list every `no_rope_layer_interval`-th layer is full. SmolLM3 has
    the meaning reversed, see smollm3."""
    kind = FULL if view.optional("attention_chunk_size") is None else CHUNKED
    return tuple(kind if rope else FULL for rope in rope_layers(view, count))


def llama4_sparse_layers(view: ConfigView, count: int) -> frozenset[int]:
    """`moe_layers`, or every `interleave_moe_layer_step`-th layer (Llama 4)."""
    given = view.integers("moe_layers")
    if given is not None:
        return frozenset(given) & frozenset(range(count))
    step = view.optional("interleave_moe_layer_step") or 1
    return frozenset(range(step - 1, count, step))


MUSE_NAMES = GATE_PROJ_NAMES.also({"post_attention_residual_gate.gate": ""})

LLAMA4_TOWER = Tower(
    body=replace(IMAGE, final_norms=2, more=llama4_vision_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="llama4_vision_model",
)
MLLAMA_TOWER = Tower(
    body=replace(IMAGE, final_norms=2, more=mllama_vision_embeddings),
    attention=replace(TOWER_MHA, build=mllama_layers),
    model_type="mllama_vision_model",
    names={"num_attention_heads": "attention_heads"},
)

MUSE_SPARK_TEXT = Architecture(
    types=("muse_spark_text",),
    attention=replace(LLAMA_ATTENTION, kinds=full_last(4), other=output_gate),
    tensors=MUSE_NAMES,
    rotary="halves",
    conversion=Conversion(width_checked=True, norms_keys=True),
)

ARCHITECTURES = (
    Architecture(
        types=("llama4_text",),
        attention=replace(LLAMA_ATTENTION, kinds=chunked_with_rope),
        body=Body(
            mlp=Mlp(width=llama4_width),
            experts=replace(SAME_WIDTH, layers=llama4_sparse_layers, shared=1),
            named=True,
        ),
        feed_forward=LLAMA4,
        rotary="pairs",
        conversion=Conversion(norms_keys="use_qk_norm"),
        gguf=(Gguf(architecture="llama4", windows=Windows(period=4, default=8192, always=8192)),),
    ),
    MULTIMODAL.relative(
        "llama4",
        config={"tied": text_says},
        body=fixed_tower(LLAMA4_TOWER, projector=llama4_projector),
    ),
    Architecture(types=("llama4_vision_model",), attention=ENCODER_MHA),
    MUSE_SPARK_TEXT,
    MUSE_SPARK_TEXT.relative(
        "muse_glimmer_text",
        body=SANDWICH,
        conversion=Conversion(width_checked=True, norms_keys=True),
        gguf=(Gguf(architecture="muse-glimmer", windows=Windows(period=4)),),
    ),
    MULTIMODAL.relative("muse_glimmer", "muse_spark"),
    Architecture(
        types=("mllama_text_model",),
        config=ConfigKeys(
            defaults={"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}, tied=never
        ),
        attention=AttentionShape(build=layers_of_text_or_image, fixed_head_dim=True),
        body=Body(more=extra_tokens_and_gates, named=True),
        rotary="halves",
        stored=Stored(more_rows=8),
    ),
    MULTIMODAL.relative(
        "mllama",
        config={"tied": never},
        body=fixed_tower(MLLAMA_TOWER, projector=mllama_projector),
        stored=Stored(more_rows=8),
        image=TILES,
    ),
)
