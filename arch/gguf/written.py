"""What of a model a GGUF file of each architecture has to say, where `convert` writes one.

llama.cpp's loaders (load_arch_hparams in src/models/) tell which keys they need, its graphs what
they compute whatever the file says, and llama_model_rope_type in src/llama-model.cpp which rows of
a head rotate together: sources of October 2026, which llama-cpp-python 0.3.36 carries. Names of
tensors are those of the package `gguf`; which of them a loader needs is in
generated/gguf_tensors.jsonl. Keys that all architectures share are in `convert/gguf/keys.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..architecture import Rotary

# Settings of a config by their names, with those of their values that llama.cpp computes.
Computed = Mapping[str, tuple[Any, ...]]
SILU = ("silu", "swish")
# llama.cpp has one gelu, by tanh: "gelu" of transformers is by erf, up to 5e-4 away.
GELU = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python")
TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """One `general.architecture`, as it is written.

    `rotary`: the rows of a head that llama.cpp rotates together; `class_rotary`: those that the
    class does, where its own value does not say it since a norm stands in front. `norm` is the kind
    whose epsilon is read, and `epsilon` the config's name of it, or its value where the class has
    it built in. `keys` are further keys, by the config's names of their values; those of
    `unless_none` are left out where the config has None. `computes`: settings that llama.cpp knows
    one value of, or a few. `gain`: what the class adds to the weights of norms when it runs, and
    llama.cpp does not. `transposed`: matrices that the class keeps as [in, out], by the ends of
    their modules' names. `windowed`: the loader reads which layers have a window. `whole_width`:
    the loader wants query heads that are as wide as hidden_size together. `scale_of_head`: scores
    are divided by the root of head_dim, whatever query_pre_attn_scalar says, and in models of
    `odd_scale` layers by that of hidden_size / heads. `rope_every`: of so many layers the last one
    has no rotation, whatever no_rope_layers says. `latent`: its attention is multi-head latent
    attention, whose further keys are in `convert/gguf/latent.py`.
    """

    architecture: str
    rotary: Rotary
    class_rotary: Rotary | None = None
    norm: Literal["rms", "layer"]
    epsilon: str | float
    keys: Mapping[str, str] = field(default_factory=dict)
    unless_none: Mapping[str, str] = field(default_factory=dict)
    computes: Computed = field(default_factory=dict)
    gain: float = 0.0
    transposed: tuple[str, ...] = ()
    windowed: bool = False
    whole_width: bool = True
    scale_of_head: bool = False
    odd_scale: int | None = None
    rope_every: int | None = None
    latent: bool = False


_LLAMA = Written(
    architecture="llama",
    rotary="pairs",
    norm="rms",
    epsilon="rms_norm_eps",
    computes={"hidden_act": SILU},
    whole_width=False,
)
_QWEN2 = replace(_LLAMA, architecture="qwen2", rotary="halves", whole_width=True)
_GEMMA = replace(
    _LLAMA,
    architecture="gemma",
    rotary="halves",
    computes={"hidden_act": TANH_GELU, "hidden_activation": (*TANH_GELU, None)},
    gain=1.0,
)
_GEMMA2 = replace(
    _GEMMA,
    architecture="gemma2",
    keys={
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    computes={"hidden_activation": TANH_GELU},
    windowed=True,
    scale_of_head=True,
    odd_scale=46,
)
_GPT2 = Written(
    architecture="gpt2",
    rotary="none",
    norm="layer",
    epsilon="layer_norm_epsilon",
    computes={
        "activation_function": GELU,
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    transposed=("c_attn", "c_proj", "c_fc"),
)
_GPT_NEOX = Written(
    architecture="gptneox",
    rotary="halves",
    norm="layer",
    epsilon="layer_norm_eps",
    keys={"use_parallel_residual": "use_parallel_residual"},
    computes={"hidden_act": GELU},
)
_STABLELM = Written(
    architecture="stablelm",
    rotary="halves",
    norm="layer",
    epsilon="layer_norm_eps",
    keys={"use_parallel_residual": "use_parallel_residual"},
    computes={"hidden_act": SILU},
)
_COHERE = Written(
    architecture="command-r",
    rotary="pairs",
    norm="layer",
    epsilon="layer_norm_eps",
    keys={"logit_scale": "logit_scale"},
    computes={"hidden_act": SILU, "use_qk_norm": (False,), "attention_bias": (False,)},
)
_GRANITE = replace(
    _LLAMA,
    architecture="granite",
    keys={
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    },
)
_ALL = (
    _LLAMA,
    _QWEN2,
    replace(_QWEN2, architecture="qwen3", class_rotary="halves", whole_width=False),
    _GEMMA,
    _GEMMA2,
    replace(
        _GEMMA2,
        architecture="gemma3",
        class_rotary="halves",
        keys={},
        unless_none={"final_logit_softcapping": "final_logit_softcapping"},
        computes={
            "hidden_activation": TANH_GELU,
            "attn_logit_softcapping": (None,),
            "use_bidirectional_attention": (False, None),
        },
        odd_scale=62,
    ),
    replace(
        _QWEN2,
        architecture="phi3",
        unless_none={
            "rope.scaling.original_context_length": "original_max_position_embeddings",
        },
    ),
    Written(
        architecture="phi2",
        rotary="halves",
        norm="layer",
        epsilon="layer_norm_eps",
        computes={"hidden_act": GELU, "qk_layernorm": (False,)},
    ),
    _GPT2,
    replace(
        _GPT2,
        architecture="starcoder",
        computes={
            "activation_function": GELU,
            "scale_attn_weights": (True,),
            "add_cross_attention": (False,),
        },
        transposed=(),
    ),
    _GPT_NEOX,
    Written(
        architecture="falcon",
        rotary="halves",
        norm="layer",
        epsilon="layer_norm_epsilon",
        computes={"activation": GELU, "alibi": (False,), "parallel_attn": (True,)},
    ),
    Written(
        architecture="bloom",
        rotary="none",
        norm="layer",
        epsilon="layer_norm_epsilon",
        computes={"apply_residual_connection_post_layernorm": (False,)},
    ),
    Written(
        architecture="mpt",
        rotary="none",
        norm="layer",
        epsilon="layer_norm_epsilon",
        keys={"attention.max_alibi_bias": "attn_config.alibi_bias_max"},
        unless_none={"attention.clamp_kqv": "attn_config.clip_qkv"},
        computes={
            "attn_config.alibi": (True,),
            "attn_config.qk_ln": (False,),
            "attn_config.softmax_scale": (None,),
            "attn_config.prefix_lm": (False,),
        },
    ),
    _STABLELM,
    Written(
        architecture="starcoder2",
        rotary="halves",
        norm="layer",
        epsilon="norm_epsilon",
        computes={"hidden_act": GELU},
    ),
    Written(
        architecture="olmo",
        rotary="pairs",
        norm="layer",
        epsilon=1e-5,
        unless_none={"attention.clamp_kqv": "clip_qkv"},
        computes={"hidden_act": SILU},
    ),
    replace(_QWEN2, architecture="olmo2", class_rotary="halves", windowed=True),
    _GRANITE,
    _COHERE,
    replace(
        _COHERE,
        architecture="cohere2",
        computes={"hidden_act": SILU, "attention_bias": (False,)},
        windowed=True,
    ),
    replace(_LLAMA, architecture="smollm3", rope_every=4),
    replace(_LLAMA, architecture="deepseek2", class_rotary="pairs", latent=True),
    Written(
        architecture="nemotron",
        rotary="halves",
        norm="layer",
        epsilon="norm_eps",
        computes={"hidden_act": ("relu2",)},
        gain=1.0,
    ),
)
WRITTEN: Mapping[str, Written] = {one.architecture: one for one in _ALL}
