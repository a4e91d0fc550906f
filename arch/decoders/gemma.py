"""Gemma up to 3n, and models built on them."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..architecture import OTHER_STACKS, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, SLIDING, every, layer_kinds
from ..attention.layers import halved_if_two_sided, layer_count, mixers_by_layer
from ..attention.shape import AttentionShape, plain_window
from ..body.body import Body, Layers, lm_head
from ..body.feed_forward import Mlp
from ..body.image_towers import SIGLIP, any_image
from ..body.projectors import linear
from ..body.shapes import DECODER, SANDWICH
from ..body.towers import Part, Wrapper
from ..body.uncounted import TIMM
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..states.hybrid import LINEAR, hybrid, plain
from ..states.linear import rg_lru
from ..tensors.names import TensorNames, separate
from ..tying import always, either_word


def per_layer_inputs(view: ConfigView, layers: Layers) -> int:
    """Gemma 3n and 4: an embedding of width d for each layer, and its projections."""
    d = view.optional("hidden_size_per_layer_input", minimum=0)
    if not d:
        return 0
    hidden, count = view.integer("hidden_size"), len(layers)
    embedding = view.integer("vocab_size_per_layer_input") * count * d
    return embedding + hidden * count * d + d + 2 * count * hidden * d


def altup_and_laurel(view: ConfigView, layers: Layers) -> int:
    """Per-layer inputs, AltUp over n copies of the hidden state, and low-rank LAuReL blocks."""
    hidden, n = view.integer("hidden_size"), view.integer("altup_num_inputs")
    laurel = 2 * hidden * view.integer("laurel_rank")
    each = n * n + n**3 + n * hidden + laurel
    return per_layer_inputs(view, layers) + len(layers) * each + 2 * (n - 1) * hidden * hidden


def layers_sharing_caches(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Gemma 3n and 4: the last `num_kv_shared_layers` read the cache of the last layer of their
    kind before them, and hold no k and v. With `attention_k_eq_v`, full layers have no v_proj.
    Gemma 4's last layer is full whatever `layer_types` says."""
    kinds = layer_kinds(view, layer_count(view), shape.kinds)
    if shape.per_layer is not None:
        kinds = (*kinds[:-1], FULL)
    own = len(kinds) - (view.optional("num_kv_shared_layers", minimum=0) or 0)
    keys_only = view.flag("attention_k_eq_v")
    mixers = [
        replace(mixer, has_value=not (keys_only and kind == FULL))
        for mixer, kind in zip(mixers_by_layer(shape, view, kinds), kinds, strict=True)
    ]
    return tuple(
        Layer(index=i, mixers=(mixer,)) if i < own else _reader(i, mixer, kinds[:own], kinds[i])
        for i, mixer in enumerate(mixers)
    )


def _reader(index: int, mixer: Attention, owners: tuple[str, ...], kind: str) -> Layer:
    """A layer that reads the cache of the last owner of its kind; only its q norm remains. Without
    any owner the cache is that of another model."""
    source = max((i for i, owner in enumerate(owners) if owner == kind), default=None)
    if source is None and owners:
        raise InvalidConfigError(
            f"num_kv_shared_layers leaves layer {index} no earlier {kind} layer to share with"
        )
    shared = replace(mixer, has_key_value=False, norm_parameters=mixer.head_dim)
    return Layer(index=index, mixers=(shared,), shares_cache_with=source)


def gemma3_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm and a matrix."""
    hidden = tower.integer("hidden_size")
    return hidden + linear(hidden, text.integer("hidden_size"), bias=False)


def paligemma_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix to `projection_dim`, a key of the wrapper or its tower."""
    out = tower.optional("projection_dim") or view.integer("projection_dim")
    return linear(tower.integer("hidden_size"), out)


def half_width(view: ConfigView, layer: Layer) -> int:
    """RecurrentGemma counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


def recurrent_gemma_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    blocks = view.get("block_types") or ()
    return tuple(
        LINEAR if blocks[i % len(blocks)] == "recurrent" else SLIDING for i in range(count)
    )


RECURRENT_GEMMA_NAMES = TensorNames(modules=separate("temporal_block"), rest="other")


EVERY_SIXTH = Windows(period=6)

GEMMA = Architecture(
    types=("gemma",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
GEMMA2 = GEMMA.relative(
    "gemma2",
    attention={"kinds": every(2)},
    body={"norms": 4},
    conversion={"width_checked": True},
    gguf=(Gguf(architecture="gemma2", windows=Windows(period=2, default=4096)),),
)
VAULTGEMMA = GEMMA2.relative("vaultgemma", body=DECODER, conversion=Conversion(width_checked=True))
GEMMA3_TEXT = Architecture(
    types=("gemma3_text",),
    attention=replace(
        GEMMA.attention,
        norm="head",
        kinds=every(6, "sliding_window_pattern"),
        window=halved_if_two_sided,
    ),
    body=replace(SANDWICH, named=True),
    conversion=Conversion(width_checked=True),
    gguf=(
        Gguf(architecture="gemma3", windows=EVERY_SIXTH),
        Gguf(architecture="gemma-embedding", windows=EVERY_SIXTH, cached=False),
    ),
)
GEMMA3N_TEXT = GEMMA3_TEXT.relative(
    "gemma3n_text",
    attention={"build": layers_sharing_caches, "kinds": every(5), "window": plain_window},
    body={"norms": 8, "extra": altup_and_laurel},
    conversion={"changes_values": True},
    gguf=(Gguf(architecture="gemma3n", windows=Windows(period=5), own_caches=20),),
)
RECURRENT_GEMMA = Architecture(
    types=("recurrent_gemma",),
    attention=AttentionShape(
        build=hybrid({SLIDING: plain, LINEAR: rg_lru}, written=False),
        kinds=recurrent_gemma_kinds,
        qkv_bias="attention_bias",
        o_bias=True,
    ),
    body=Body(mlp=Mlp(width=half_width, bias=True)),
    tensors=RECURRENT_GEMMA_NAMES,
    rotary="halves",
)

# With towers
GEMMA3 = Architecture(
    types=("gemma3",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=(SIGLIP,), projector=gemma3_projector),)),
)
SHIELDGEMMA2 = GEMMA3.relative(
    "shieldgemma2",
    config={"tied": either_word},
    body={"classes": {"ForConditionalGeneration": lm_head, "ForImageClassification": lm_head}},
)
PALIGEMMA = GEMMA3.relative(
    "paligemma", body={"parts": (Part(towers=any_image(SIGLIP), projector=paligemma_projector),)}
)
GEMMA3N = GEMMA3.relative(
    "gemma3n",
    body=None,
    uncounted=TIMM,
    conversion=Conversion(uncompared="it needs a library beyond the convert extra"),
)
PI0 = GEMMA3.relative(
    "pi0",
    config={"text": "vlm_config", "tied": always},  # no head computes logits
    body=None,
    conversion={
        "refused": "its expert for actions puts its K/V heads in the same cache, and has them from"
        " a config of its own"
    },
    verification=OTHER_STACKS,
)

ARCHITECTURES = (
    *(GEMMA, GEMMA2, VAULTGEMMA, GEMMA3_TEXT, GEMMA3N_TEXT, RECURRENT_GEMMA),
    *(GEMMA3, SHIELDGEMMA2, PALIGEMMA, GEMMA3N, PI0),
)
