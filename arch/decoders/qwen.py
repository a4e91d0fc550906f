"""Qwen's decoders, and relatives of them: dots.llm1, MiMo."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, SLIDING, all_full, windowed
from ..attention.per_layer import Values
from ..attention.shape import AttentionShape
from ..body.body import DECODER_CLASSES, Body, Layers, reward_head
from ..body.feed_forward import Experts, Mlp, flagged_layers, matrices, sparse_steps
from ..body.qwen_first_towers import qwen_audio, qwen_visual
from ..body.shared import DEEPSEEK_BODY, EXPERTS_AFTER_FIRST, ONE_SHARED
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..modules.names import ONE_SHARED_EXPERT
from ..tensors.names import GPT2_NAMES, LLAMA_NAMES


def qwen_width(view: ConfigView, layer: Layer) -> int:
    """Qwen's first model counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


def qwen_towers(view: ConfigView, layers: Layers) -> int:
    """Qwen-VL's tower under `visual`, and Qwen-Audio's under `audio`."""
    hidden = view.integer("hidden_size")
    images = qwen_visual(view.child("visual"), hidden) if view.get("visual") is not None else 0
    sound = qwen_audio(view.child("audio"), hidden) if view.get("audio") is not None else 0
    return images + sound


def mimo_prediction(view: ConfigView, layers: Layers) -> int:
    """Each layer for multi-token prediction is a whole layer with a projection of two hidden states
    to one, and three norms more. Its attention counts here: nothing of it is decoded with."""
    count = view.optional("num_nextn_predict_layers", minimum=0) or 0
    hidden = view.integer("hidden_size")
    mlp = matrices(hidden, view.integer("intermediate_size"), gated=True)
    return count * (layers[-1].parameters().total + mlp + 2 * hidden * hidden + 5 * hidden)


def mimo_window(view: ConfigView) -> int:
    """`sliding_window_size` counts the tokens before the query only (MiMo-V2-Flash)."""
    before = view.optional("sliding_window_size")
    return view.integer("sliding_window") if before is None else before + 1


def mimo_values(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """Sliding layers have twice the K/V heads, and attention sinks."""
    kv = view.integer("num_key_value_heads")
    own = {"num_key_value_heads": 2 * kv, "attention_sinks": True}
    return [own if kind == SLIDING else {} for kind in kinds]


def mimo_v2_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`hybrid_layer_pattern` marks the layers that slide with 1."""
    flags = view.integers("hybrid_layer_pattern", count=count) or (0,) * count
    return tuple(SLIDING if flag else FULL for flag in flags)


def mimo_v2_values(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """Sliding layers have heads of their own, by keys that begin with `swa_`; either kind may have
    attention sinks."""
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")
    sizes = {name: size for name in names if (size := view.optional(f"swa_{name}")) is not None}
    full = {"attention_sinks": view.flag("add_full_attention_sink_bias")}
    own = {**sizes, "attention_sinks": view.flag("add_swa_attention_sink_bias")}
    return [own if kind == SLIDING else full for kind in kinds]


def sinks_by_layer(view: ConfigView, heads: int, head_dim: int) -> int:
    return heads if view.flag("attention_sinks") else 0


def windowed_if_flag(view: ConfigView, count: int) -> tuple[str, ...]:
    """The same, but only with `use_sliding_window` (Qwen3-MoE)."""
    return windowed(view, count) if view.flag("use_sliding_window") else all_full(view, count)


def upper_layers_slide(view: ConfigView, count: int) -> tuple[str, ...]:
    """With `use_sliding_window`, layers from `max_window_layers` on slide (Qwen2, Qwen3)."""
    if not view.flag("use_sliding_window") or not view.optional("sliding_window"):
        return all_full(view, count)
    first = view.integer("max_window_layers", minimum=0)
    return tuple(SLIDING if index >= first else FULL for index in range(count))


def qwen2_moe_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """With `use_sliding_window`, every second layer below `max_window_layers` slides."""
    if not view.flag("use_sliding_window") or not view.optional("sliding_window"):
        return all_full(view, count)
    limit = view.integer("max_window_layers", minimum=0)
    return tuple(SLIDING if (i + 1) % 2 and i < limit else FULL for i in range(count))


def dots1_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Layers from `max_window_layers` on slide where a window is set (dots.llm1)."""
    if not view.optional("sliding_window"):
        return all_full(view, count)
    first = view.integer("max_window_layers", minimum=0)
    return tuple(SLIDING if index >= first else FULL for index in range(count))


def mimo_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Full: the first and every sixth (MiMo-V2-Flash)."""
    return tuple(FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(count))


MIMO_NAMES = LLAMA_NAMES.also({"self_attn.attention_sink_bias": "other"})

# The last name of each is that of its first files, of August 2023.
QWEN_KEYS = {
    **{"head_dim": ("kv_channels",), "max_position_embeddings": ("seq_length",)},
    **{"hidden_size": ("n_embd",), "num_attention_heads": ("n_head",)},
    **{"num_hidden_layers": ("n_layer",), "intermediate_size": ("ffn_hidden_size",)},
}
SPARSE_STEPS = Experts(layers=sparse_steps)

QWEN2 = Architecture(
    types=("qwen2",),
    attention=AttentionShape(kinds=upper_layers_slide, qkv_bias=True),
    body=Body(
        named=True,
        classes={
            **DECODER_CLASSES,
            # modeling_qwen2_rm.py of Qwen2.5-Math-RM and -PRM, as vLLM's qwen2_rm.py has them
            "Qwen2ForRewardModel": reward_head(1),
            "Qwen2ForProcessRewardModel": reward_head(2),
        },
    ),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
QWEN3 = QWEN2.relative(
    "qwen3",
    attention={"qkv_bias": "attention_bias", "o_bias": "attention_bias", "norm": "head"},
    rotary=None,
    conversion=Conversion(by_layer=True),
)
QWEN3_MOE = QWEN3.relative(
    "qwen3_moe", attention={"kinds": windowed_if_flag}, body={"experts": SPARSE_STEPS}
)

MIMO_V2 = Architecture(
    types=("mimo_v2_flash",),
    attention=AttentionShape(
        kinds=mimo_kinds,
        qkv_bias="attention_bias",
        v_head_dim="v_head_dim",
        window=mimo_window,
        per_layer=mimo_values,
        other=sinks_by_layer,
    ),
    body=Body(experts=replace(EXPERTS_AFTER_FIRST, shared=0)),
    tensors=MIMO_NAMES,
)

ARCHITECTURES = (
    QWEN2,
    QWEN2.relative(
        "qwen2_moe",
        attention={"kinds": qwen2_moe_kinds, "qkv_bias": "qkv_bias"},
        body={"experts": replace(ONE_SHARED, layers=sparse_steps, shared_gate=True)},
        feed_forward=ONE_SHARED_EXPERT,
    ),
    QWEN3,
    QWEN3_MOE,
    QWEN3.relative("dots1", attention={"kinds": dots1_kinds}, body=DEEPSEEK_BODY),
    QWEN2.relative(
        "mimo",
        body={"more": mimo_prediction},
        built_prediction=mimo_prediction,
        rotary=None,
    ),
    MIMO_V2,
    # MiMo-V2.5-Pro by the code that is published with it; q, k and v are one matrix in its files.
    MIMO_V2.relative(
        "mimo_v2",
        attention={"kinds": mimo_v2_kinds, "per_layer": mimo_v2_values},
        body=Body(
            experts=replace(EXPERTS_AFTER_FIRST, layers=flagged_layers("moe_layer_freq"), shared=0)
        ),
    ),
    Architecture(
        types=("qwen",),
        config=ConfigKeys(aliases=QWEN_KEYS),
        attention=AttentionShape(qkv_bias=True, o_bias="!no_bias", kv_heads_from="query heads"),
        body=Body(mlp=Mlp(width=qwen_width, bias="!no_bias"), more=qwen_towers, named=True),
        tensors=replace(GPT2_NAMES, transposed=False),
    ),
    # Of llama.cpp alone: Dream and RND1 denoise all tokens at once and keep nothing.
    Architecture(
        types=(),
        gguf=(Gguf(architecture="dream", cached=False), Gguf(architecture="rnd1", cached=False)),
    ),
    Architecture(
        types=(),
        gguf=(
            Gguf(
                architecture="smallthinker", windows=Windows(period=4, full_first=True, always=4096)
            ),
        ),
    ),
)
