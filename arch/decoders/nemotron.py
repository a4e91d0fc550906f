"""Nemotron: dense, pruned block by block (DeciLM), and hybrids with Mamba-2."""

from dataclasses import replace
from typing import Any

from headcount.model.errors import InvalidConfigError, short
from headcount.model.mixers import Attention
from headcount.model.numbers import whole
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.layers import attention, layer_count
from ..attention.shape import AttentionShape, Builder
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import WEIGHT_AND_BIAS, Body, Layers
from ..body.feed_forward import Experts, Mlp, per_layer
from ..body.shared import PLAIN_MLP_BIAS
from ..config_view import ConfigView, positive
from ..gguf.form import Gguf, Recurrence
from ..modules.names import ALL_MIXERS, MTP_PREDICTION
from ..states.hybrid import LAYER_TYPES, LINEAR, NO_MIXER, hybrid, no_mixer, plain_attention
from ..states.mamba import mamba2
from ..tensors.names import TensorNames, separate
from ..tying import never

_PATTERN = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


def pattern_kinds(view: ConfigView) -> tuple[str, ...]:
    """The kind of each layer of Nemotron-H."""
    kinds = view.strings("layer_types")
    if kinds is not None:
        return kinds
    pattern = view.get("hybrid_override_pattern") or "ME*-"
    if not isinstance(pattern, str) or not set(pattern) <= set(_PATTERN):
        raise InvalidConfigError(
            f"{view.where}: hybrid_override_pattern is {short(pattern)}; letters of"
            f" {''.join(_PATTERN)} are expected"
        )
    return tuple(_PATTERN[letter] for letter in pattern)


def layers_by_pattern(build: Builder) -> Builder:
    """Nemotron-H: the number of layers is the length of the list of their kinds, or of the string
    `hybrid_override_pattern` (M: Mamba-2, *: attention, -: MLP, E: experts)."""

    def read(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        kinds = pattern_kinds(view)
        values = {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}
        listed = view.get("layer_types") is not None
        source = "layer_types, counted" if listed else "hybrid_override_pattern"
        return build(shape, view.overridden(values, derived=source))

    return read


def nemotron_nas_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """DeciLM: every block says how many query heads share a K/V head, or has no attention."""
    blocks = view.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != layer_count(view):
        raise InvalidConfigError(f"{view.where}: block_configs must list one object per layer")
    return tuple(
        Layer(index=i, mixers=_block_mixers(shape, view, block)) for i, block in enumerate(blocks)
    )


def _block_mixers(shape: AttentionShape, view: ConfigView, block: Any) -> tuple[Attention, ...]:
    settings = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(settings, dict):
        raise InvalidConfigError(f"{view.where}: block_configs: a block has no attention object")
    if settings.get("no_op") or settings.get("replace_with_linear"):
        return ()
    given, mixer = settings.get("n_heads_in_group"), attention(shape, view)
    shared = whole(given)
    if shared is None or shared < 1 or mixer.num_attention_heads % shared:
        raise InvalidConfigError(
            f"{view.where}: block_configs: n_heads_in_group is {short(given)}; a divisor of"
            f" {mixer.num_attention_heads} query heads is expected"
        )
    return (replace(mixer, num_key_value_heads=mixer.num_attention_heads // shared),)


def _block(view: ConfigView, index: int, half: str) -> dict[str, Any]:
    blocks = view.get("block_configs")
    block = blocks[index] if isinstance(blocks, list) and index < len(blocks) else None
    settings = block.get(half) if isinstance(block, dict) else None
    if not isinstance(settings, dict):
        raise InvalidConfigError(f"{view.where}: block_configs: layer {index} has no {half} object")
    return settings


def deci_norms(view: ConfigView, layer: Layer) -> int:
    """One before each half that is there."""
    return sum(not _block(view, layer.index, half).get("no_op") for half in ("attention", "ffn"))


def deci_width(view: ConfigView, layer: Layer) -> int:
    """2/3 * ffn_mult * hidden_size, rounded up to a multiple of 256; 0 where there is no MLP."""
    settings = _block(view, layer.index, "ffn")
    if settings.get("no_op") or settings.get("replace_with_linear"):
        return 0
    multiple = positive(
        settings.get("ffn_mult"), view.where, "block_configs: ffn_mult", maximum=1000
    )
    width = int(2 * multiple * view.integer("hidden_size") / 3)
    return -(-width // 256) * 256


def deci_linears(view: ConfigView, layers: Layers) -> int:
    """A half that one square matrix replaces."""
    halves = (_block(view, layer.index, half) for layer in layers for half in ("attention", "ffn"))
    square = view.integer("hidden_size") ** 2
    return sum(square for half in halves if half.get("replace_with_linear"))


def nemotron_width(view: ConfigView, layer: Layer) -> int:
    """A layer without a mixer is an MLP."""
    return 0 if layer.mixers else per_layer(view, "intermediate_size", layer.index)


def nemotron_sparse_layers(view: ConfigView, count: int) -> frozenset[int]:
    """Nemotron-H: a layer is experts, or an MLP, or a mixer."""
    return frozenset(i for i, kind in enumerate(pattern_kinds(view)) if kind == "moe")


NEMOTRON_H_NAMES = TensorNames(modules=separate("mixer"), rest="other")

# The keys of Mamba-2, see `mamba.mamba2`.
NEMOTRON_KEYS = {
    **{"n": "ssm_state_size", "groups": "n_groups", "kernel": "conv_kernel"},
    **{"heads": "mamba_num_heads", "head_dim": "mamba_head_dim", "conv_bias": "use_conv_bias"},
    **{"in_bias": "use_bias", "out_bias": "use_bias"},
}
MAMBA_OR_MLP = Recurrence(form="Mamba-2", layers="without heads or MLP")

ARCHITECTURES = (
    Architecture(
        types=("nemotron",),
        attention=LLAMA_ATTENTION,
        body=Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN_MLP_BIAS, named=True),
        rotary="halves",
    ),
    # DeciLM, whose code is published with its weights.
    Architecture(
        types=("nemotron-nas",),
        attention=replace(LLAMA_ATTENTION, build=nemotron_nas_layers),
        body=Body(norms=deci_norms, mlp=Mlp(width=deci_width), more=deci_linears, named=True),
    ),
    Architecture(
        types=("nemotron_h",),
        config=ConfigKeys(
            aliases=LAYER_TYPES,
            overriding={
                "n_groups": ("mamba_n_groups",),
                "conv_kernel": ("mamba_d_conv",),
                "use_conv_bias": ("mamba_conv_bias",),
            },
            tied=never,
        ),
        attention=AttentionShape(
            build=layers_by_pattern(
                hybrid({FULL: plain_attention, LINEAR: mamba2(NEMOTRON_KEYS), NO_MIXER: no_mixer})
            )
        ),
        body=Body(
            norms=1,
            mlp=Mlp(width=nemotron_width, gated=False, bias="mlp_bias"),
            experts=Experts(
                count="n_routed_experts",
                layers=nemotron_sparse_layers,
                gated=False,
                inputs="moe_latent_size",
                shared=1,
                shared_width="moe_shared_expert_intermediate_size",
            ),
        ),
        tensors=NEMOTRON_H_NAMES,
        feed_forward=ALL_MIXERS,
        prediction=MTP_PREDICTION,
        rotary="none",
        gguf=(
            Gguf(architecture="nemotron_h", recurrence=MAMBA_OR_MLP),
            Gguf(architecture="nemotron_h_moe", recurrence=MAMBA_OR_MLP),
        ),
    ),
    MULTIMODAL.relative("nemotron_h_omni"),
    MULTIMODAL.relative(
        "nemo_speechlm", stacks={"ctc_timestamp.decoder.transformer.layers": "audio"}
    ),
)
