"""Gemma up to 3n: norms around each half, windows, and caches that layers share; PaliGemma, pi0."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, OTHER_STACKS, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, full_every, layer_kinds
from ..attention.layers import halved_if_two_sided, layer_count, mixers_by_layer
from ..attention.shape import AttentionShape, plain_window
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers, lm_head
from ..body.image_towers import SIGLIP_TOWER, any_image
from ..body.projectors import linear
from ..body.shared import DECODER
from ..body.towers import one_tower
from ..body.uncounted import TIMM
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..tying import always, either_says


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
    """Gemma 3n and 4: the last `num_kv_shared_layers` read the cache of a layer before them."""
    return layers_with_readers(shape, view, shared_layers(view, most=layer_count(view) - 1))


def layers_with_readers(shape: AttentionShape, view: ConfigView, shared: int) -> tuple[Layer, ...]:
    """The last `shared` layers read the cache of the last layer of their kind before them, and hold
    no k and v. With `attention_k_eq_v`, full layers have no v_proj. Gemma 4's last layer is full
    whatever `layer_types` says."""
    kinds = layer_kinds(view, layer_count(view), shape.kinds)
    if shape.per_layer is not None:
        kinds = (*kinds[:-1], FULL)
    own = len(kinds) - shared
    keys_only = view.flag("attention_k_eq_v")
    mixers = [
        replace(mixer, has_value=not (keys_only and kind == FULL))
        for mixer, kind in zip(mixers_by_layer(shape, view, kinds), kinds, strict=True)
    ]
    return tuple(
        Layer(index=i, mixers=(mixer,)) if i < own else _reader(i, mixer, kinds[:own], kinds[i])
        for i, mixer in enumerate(mixers)
    )


def shared_layers(view: ConfigView, *, most: int) -> int:
    """`num_kv_shared_layers`, which may be at most `most`. Raises InvalidConfigError."""
    count = view.optional("num_kv_shared_layers", minimum=0) or 0
    if count > most:
        raise InvalidConfigError(
            f"{view.where}: num_kv_shared_layers is {count} of {layer_count(view)} layers: at most"
            f" {most} can read the cache of an earlier one"
        )
    return count


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
    """One matrix to the wrapper's `projection_dim`, which it writes over its tower's."""
    return linear(tower.integer("hidden_size"), view.integer("projection_dim"))


EVERY_SIXTH = Windows(period=6)

GEMMA = Architecture(
    types=("gemma",),
    attention=LLAMA_ATTENTION,
    body=Body(named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
GEMMA2 = GEMMA.relative(
    "gemma2",
    attention={"kinds": full_every(2)},
    body={"norms": 4},
    conversion=Conversion(by_layer=True, width_checked=True),
    gguf=(Gguf(architecture="gemma2", windows=Windows(period=2, default=4096)),),
)
GEMMA3_TEXT = GEMMA2.relative(
    "gemma3_text",
    attention={
        "norm": "head",
        "kinds": full_every(6, "sliding_window_pattern"),
        "window": halved_if_two_sided,
    },
    rotary=None,
    conversion=Conversion(width_checked=True),
    gguf=(
        Gguf(architecture="gemma3", windows=EVERY_SIXTH),
        Gguf(architecture="gemma-embedding", windows=EVERY_SIXTH, cached=False),
    ),
)
# With towers
GEMMA3 = MULTIMODAL.relative("gemma3", body=one_tower(SIGLIP_TOWER, projector=gemma3_projector))

ARCHITECTURES = (
    GEMMA,
    GEMMA2,
    GEMMA2.relative("vaultgemma", body=DECODER, conversion=Conversion(width_checked=True)),
    GEMMA3_TEXT,
    GEMMA3_TEXT.relative(
        "gemma3n_text",
        attention={"build": layers_sharing_caches, "kinds": full_every(5), "window": plain_window},
        body={"norms": 8, "more": altup_and_laurel},
        conversion=Conversion(width_checked=True, changes_values=True),
        gguf=(Gguf(architecture="gemma3n", windows=Windows(period=5), caching_layers=20),),
    ),
    GEMMA3,
    GEMMA3.relative(
        "shieldgemma2",
        config={"tied": either_says},
        body={"classes": {"ForConditionalGeneration": lm_head, "ForImageClassification": lm_head}},
    ),
    MULTIMODAL.relative(
        "paligemma", body=one_tower(*any_image(SIGLIP_TOWER), projector=paligemma_projector)
    ),
    MULTIMODAL.relative(
        "gemma3n",
        uncounted=TIMM,
        conversion=Conversion(uncompared="it needs a library beyond the convert extra"),
    ),
    Architecture(
        types=("pi0",),
        config=ConfigKeys(text="vlm_config", tied=always),  # no head computes logits
        conversion=Conversion(
            refused="its expert for actions puts its K/V heads in the same cache, and has them from"
            " a config of its own"
        ),
        verification=OTHER_STACKS,
    ),
)
