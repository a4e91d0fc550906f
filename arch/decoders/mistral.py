"""Mistral and its kin: every layer slides; Mistral's models of images and sound; StarCoder 2."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import LatentAttention
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import windowed
from ..attention.layers import latent_attention, layer_count
from ..attention.shape import AttentionShape
from ..body.body import WEIGHT_AND_BIAS, Body, Layers
from ..body.feed_forward import Mlp
from ..body.image_towers import PIXTRAL_TOWER, any_image
from ..body.projectors import linear
from ..body.shared import DECODER, DEEPSEEK_BODY, LISTED_EXPERTS, SAME_WIDTH
from ..body.sound_towers import VOXTRAL_TOWER
from ..body.towers import one_tower
from ..config_view import ConfigView
from ..modules.names import BLOCK_SPARSE
from ..states.hybrid import INDEXED, hybrid_kinds
from ..states.indexed import add_indexer, indexer_owners
from ..states.kinds import all_of
from ..tensors.names import MLA_NAMES, TensorNames, under
from ..tying import never
from .deepseek import DEEPSEEK_V3


def rotary_scales(view: ConfigView, layers: Layers) -> int:
    """Mistral Large 4 learns a scale of each rotary frequency."""
    return view.integer("qk_rope_head_dim") // 2


def time_conditions(view: ConfigView, layers: Layers) -> int:
    """Voxtral Realtime: two matrices of rank 32 that modulate a norm in each layer."""
    return len(layers) * 2 * 32 * view.integer("hidden_size")


def mistral3_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm, a merger of neighbouring patches, and two matrices."""
    hidden, out = tower.integer("hidden_size"), text.integer("hidden_size")
    merged = hidden * view.integer("spatial_merge_size") ** 2
    layers = view.get("vision_feature_layer")
    features = len(layers) if isinstance(layers, list) else 1
    bias = view.flag("multimodal_projector_bias")
    merger = hidden + linear(merged, hidden, bias=False)
    return merger + linear(features * hidden, out, bias=bias) + linear(out, out, bias=bias)


def voxtral_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices over joined frames."""
    out = text.integer("hidden_size")
    return (tower.integer("intermediate_size") + out) * out


def mistral_large4_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Mistral Large 4: layers without RoPE cache the latent alone, and some read the latent of an
    earlier layer (`kv_source_layers`). The indexer reads the layer's input through a norm."""
    count = layer_count(view)
    hybrid_kinds(shape.kinds, view, {INDEXED: None})
    owners = indexer_owners(view, count)
    rope = _rope_layers(view, count)
    sources = view.integers("kv_source_layers") or tuple(range(count))
    if len(sources) != count or any(not 0 <= s <= i for i, s in enumerate(sources)):
        raise InvalidConfigError(
            f"{view.where}: kv_source_layers must name for each of {count} layers it or one before"
        )
    return tuple(
        Layer(
            index=i,
            mixers=(_large4_mixer(view, rope[i], owners[i], source == i),),
            shares_cache_with=None if source == i else source,
        )
        for i, source in enumerate(sources)
    )


def _rope_layers(view: ConfigView, count: int) -> tuple[int, ...]:
    step = view.optional("no_rope_layer_interval") or 4
    given = view.integers("no_rope_layers")
    return given or tuple(int((i + 1) % step != 0) for i in range(count))


def _large4_mixer(view: ConfigView, rope: int, owns: bool, has_latent: bool) -> LatentAttention:
    mixer = replace(latent_attention(view), q_lora_rank=None)
    if not rope:
        whole = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        mixer = replace(mixer, qk_nope_head_dim=whole, qk_rope_head_dim=0)
    scales = 2 * mixer.num_attention_heads  # of the softmax, two per head
    mixer = replace(mixer, has_latent=has_latent, other_parameters=scales)
    if not owns:
        return mixer
    mixer = add_indexer(view, mixer)
    own = 2 * (mixer.hidden_size + view.integer("index_n_heads"))  # a norm of its input, and scales
    return replace(mixer, other_parameters=mixer.other_parameters + own)


MISTRAL_LARGE4_NAMES = TensorNames(
    modules=under("attention", q="wq", kv_a="wkv_a_with_mqa", kv_b="wkv_b", o="wo")
    | {"attention.o_proj": "o", "attention.kv_a_norm": "norm"}
    | {**MLA_NAMES.modules},
    rest="other",
)

MISTRAL = Architecture(
    types=("mistral",),
    attention=AttentionShape(kinds=windowed),
    body=Body(named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)

ARCHITECTURES = (
    MISTRAL,
    MISTRAL.relative("ministral3"),
    MISTRAL.relative(
        "starcoder2",
        attention={"qkv_bias": "use_bias", "o_bias": "use_bias"},
        body=Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(gated=False, bias="use_bias"), named=True),
        conversion=Conversion(by_layer=True),
    ),
    MISTRAL.relative("ministral", body=DECODER),
    MISTRAL.relative("mixtral", body={"experts": SAME_WIDTH}, feed_forward=BLOCK_SPARSE),
    # Latent attention
    DEEPSEEK_V3.relative("mistral4", body=DEEPSEEK_BODY),
    Architecture(
        types=("mistral_large4_text",),
        config=ConfigKeys(overriding={"n_routed_experts": ("num_experts",)}),
        attention=AttentionShape(build=mistral_large4_layers, kinds=all_of(INDEXED)),
        body=Body(experts=LISTED_EXPERTS, more=rotary_scales),
        tensors=MISTRAL_LARGE4_NAMES,
    ),
    MULTIMODAL.relative("mistral_large4"),
    # Images
    MULTIMODAL.relative("mistral3", body=one_tower(PIXTRAL_TOWER, projector=mistral3_projector)),
    MULTIMODAL.relative(
        "lighton_ocr", body=one_tower(*any_image(PIXTRAL_TOWER), projector=mistral3_projector)
    ),
    # Sound
    MULTIMODAL.relative(
        "voxtral",
        config={"fills_text": True, "tied": never},
        body=one_tower(VOXTRAL_TOWER, projector=voxtral_projector, key="audio_config"),
    ),
    MULTIMODAL.relative("voxtral_realtime", config={"fills_text": True}),
    MISTRAL.relative("voxtral_realtime_text", body=Body(more=time_conditions), rotary=None),
)
