"""HRM-Text and Dory, which run the same layers several times."""

from dataclasses import replace
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Layer

from ..architecture import OTHER_STACKS, Architecture, ConfigKeys
from ..attention.layer_kinds import full_every
from ..attention.layers import attention, decoder_layers, layer_count
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import NO_NORM, Body, Layers
from ..body.shared import MLP_BIAS
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..gguf.keys import Keys
from ..states.hybrid import LAYER_TYPES
from ..states.loops import repeated
from ..tensors.names import TensorNames, separate, under


def dory_scales(view: ConfigView, layers: Layers) -> int:
    """nGPT's learned scales (arXiv 2410.01131) of both residuals and the MLP; the head has one per
    token."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    return len(layers) * 2 * (hidden + width)


def hrm_first_state(view: ConfigView, layers: Layers) -> int:
    """The first state of the low module."""
    return view.integer("hidden_size")


def _gated_and_scaled(mixer: Any) -> Any:
    """A gate for every element of the output, and two scales of the same width."""
    width = mixer.num_attention_heads * mixer.head_dim
    return replace(mixer, other_parameters=width * (mixer.hidden_size + 2))


def layers_in_loops(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Dory: the layers between input and output section run `n_recurrent_loops` times; copies of
    their caches are appended. Files that transformers saves hold twice the counts, with an `mlp`
    after each kind of layer."""
    given = view.strings("layer_types")
    double = 2 if given is not None and "mlp" in given else 1
    if given is not None and double == 2:
        halved = {"num_hidden_layers": layer_count(view) // 2, "layer_types": list(given[::2])}
        view = view.overridden(halved)
    layers = decoder_layers(shape, view)
    layers = tuple(
        replace(la, mixers=tuple(_gated_and_scaled(m) for m in la.mixers)) for la in layers
    )
    first = view.integer("n_input_layers", minimum=0) // double
    inner = view.optional("n_recurrent_layers", minimum=0)
    last = view.integer("n_output_layers", minimum=0) // double
    count = len(layers) - first - last if inner is None else inner // double
    if view.get("recurrent_kv_cache_mode") == "last_loop" or count < 1:
        return layers
    return repeated(layers, first, first + count, view.integer("n_recurrent_loops"))


def stacks_in_cycles(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """HRM-Text: a low and a high stack. The low one runs `L_cycles` times, then the high one once,
    and that `H_cycles` times; every run has a cache of its own. Files that transformers saves count
    those runs in num_hidden_layers, and name the layers of one stack."""
    depth = view.optional("num_layers_per_stack", maximum=limits.LAYERS.most) or layer_count(view)
    high, low = view.integer("H_cycles"), view.integer("L_cycles")
    if depth * high * (low + 1) > limits.LAYERS.most:
        raise InvalidConfigError(f"{view.where}: more than {limits.LAYERS.most:,} runs of layers")
    mixer = attention(shape, view)
    gate = mixer.num_attention_heads * mixer.head_dim
    mixer = replace(mixer, other_parameters=gate * (mixer.hidden_size + mixer.q_bias))
    again = replace(mixer, owns_parameters=False)
    first = {0: "L_module", low: "H_module"}  # the runs that use a stack for the first time
    return tuple(
        Layer(
            index=run * depth + i,
            mixers=(mixer if run in first else again,),
            home=first.get(run),
            number=i,
        )
        for run in range(high * (low + 1))
        for i in range(depth)
    )


def runs_of_stacks(keys: Keys, count: int) -> list[int]:
    """How often llama.cpp runs each layer of the low and of the high stack; its block_count is that
    of caches."""
    high, low = keys.need("hrm.h_cycles"), keys.need("hrm.l_cycles")
    layers = keys.need("hrm.layers_per_stack", limits.LAYERS.most)
    if layers * high * (low + 1) != count:
        raise InvalidConfigError(
            f"{keys.where}: block_count {count} is not layers_per_stack {layers} x h_cycles {high}"
            f" x (l_cycles {low} + 1)"
        )
    return [high * low] * layers + [high] * layers


DORY_NAMES = TensorNames(
    modules=separate("self_attn")
    | {f"self_attn.{name}": "other" for name in ("g_proj", "s_gate", "sqk")}
)
HRM_NAMES = TensorNames(
    modules=under("attn", gqkv="gqkv_proj", o="o_proj")
    | separate("self_attn")
    | {"self_attn.gate_proj": "other"},
    split={"attn.gqkv_proj": {part: f"self_attn.{part}_proj" for part in "kv"}},
)

ARCHITECTURES = (
    Architecture(
        types=("hrm_text",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(LLAMA_ATTENTION, build=stacks_in_cycles, kv_heads_from="query heads"),
        body=Body(norm=NO_NORM, mlp=MLP_BIAS, more=hrm_first_state),
        tensors=HRM_NAMES,
        rotary="halves",
        gguf=(Gguf(architecture="hrm_text", passes=runs_of_stacks),),
        verification=OTHER_STACKS,
    ),
    Architecture(
        types=("dory",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(LLAMA_ATTENTION, build=layers_in_loops, kinds=full_every(4)),
        body=Body(norm=NO_NORM, mlp=MLP_BIAS, more=dory_scales, head_bias=True),
        tensors=DORY_NAMES,
    ),
)
