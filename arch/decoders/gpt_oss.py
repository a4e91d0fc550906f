"""Decoders of experts with windows, sinks or gates: gpt-oss, Laguna, Step and others."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError

from ..architecture import Architecture, ConfigKeys
from ..attention.gates import output_gate, output_gate_and_head_bias
from ..attention.layer_kinds import FULL, SLIDING, every
from ..attention.per_layer import Values, for_each_layer, listed_values
from ..attention.shape import AttentionShape, nothing_else, one_per_head
from ..body.body import Body
from ..body.feed_forward import Experts, after, typed
from ..body.shapes import MLP_BIAS, ONE_SHARED, SAME_WIDTH
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..tensors.names import G_PROJ, GATE_PROJ, LLAMA


def flint(view: ConfigView, count: int) -> tuple[str, ...]:
    """Full: the first two, every fourth, and the last."""
    full = {0, 1, count - 1}
    return tuple(FULL if i in full or i % 4 == 1 else SLIDING for i in range(count))


def step_layers(view: ConfigView, count: int) -> frozenset[int]:
    """Step 3.5: `moe_layers_enum`, or all but the first three layers."""
    given = view.get("moe_layers_enum")
    if given is None:
        return frozenset(range(3, count))
    items = given.split(",") if isinstance(given, str) else given
    try:
        return frozenset(int(item) for item in items if str(item).strip()) & frozenset(range(count))
    except (TypeError, ValueError) as error:
        raise InvalidConfigError(
            f"{view.where}: moe_layers_enum must list indices of layers"
        ) from error


def flint_layers(view: ConfigView, count: int) -> frozenset[int]:
    """All but those of `mlp_only_layers`, which are the first two where it is absent."""
    dense = view.integers("mlp_only_layers")
    step = view.optional("decoder_sparse_step") or 1
    sparse = frozenset(i for i in range(count) if (i + 1) % step == 0)
    return sparse - frozenset((0, 1) if dense is None else dense)


def gate_by_config(view: ConfigView, heads: int, head_dim: int) -> int:
    """An output gate for each head with `gating` true or "per-head", else for each element."""
    if view.get("gating") in (True, "per-head"):
        return view.integer("hidden_size") * heads
    return output_gate(view, heads, head_dim)


def heads_per_layer(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """`num_attention_heads_per_layer` (Laguna)."""
    given = for_each_layer(view, "num_attention_heads_per_layer", len(kinds))
    return [{}] * len(kinds) if given is None else [{"num_attention_heads": n} for n in given]


def step_values(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """Sliding layers have `num_sliding_attention_heads` (Step-3.5); older files say so in
    `attention_other_setting`, those of transformers 5.24 in `per_layer_config`."""
    given = listed_values(view, len(kinds))
    if given is not None:
        return given
    heads = view.optional("num_sliding_attention_heads")
    if heads is None and view.get("attention_other_setting"):
        heads = view.child("attention_other_setting").optional("num_attention_heads")
    own = {} if heads is None else {"num_attention_heads": heads}
    return [own if kind == SLIDING else {} for kind in kinds]


BEAM_TENSORS = replace(GATE_PROJ, modules={**GATE_PROJ.modules, "self_attn.gate_bias": "other"})
FLINT_TENSORS = replace(LLAMA, modules={**LLAMA.modules, "self_attn.softmax_offset": "other"})
GPT_OSS = Architecture(
    types=("gpt_oss",),
    attention=AttentionShape(
        kinds=every(2), qkv_bias="attention_bias", o_bias="attention_bias", other=one_per_head
    ),
    body=Body(experts=replace(SAME_WIDTH, bias=True), named=True),
    rotary="halves",
    gguf=(Gguf(architecture="gpt-oss", windows=Windows(period=2)),),
)
LAGUNA = Architecture(
    types=("laguna",),
    attention=AttentionShape(
        kinds="full",
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm="head",
        other=gate_by_config,
        per_layer=heads_per_layer,
    ),
    body=Body(
        experts=replace(
            ONE_SHARED, layers=typed(after("first_k_dense_replace", 1)), correction=True
        )
    ),
    tensors=G_PROJ,
)
LAGUNA_TEXT = LAGUNA.relative(
    "laguna_text",
    attention={"kinds": None, "other": nothing_else, "per_layer": None},
    tensors=None,
    gguf=(Gguf(architecture="laguna", windows=Windows(period=4, full_first=True)),),
)
AFMOE = LAGUNA_TEXT.relative(
    "afmoe",
    attention={"kinds": every(4, "global_attn_every_n_layers"), "other": output_gate},
    body=Body(
        norms=4,
        experts=Experts(
            layers=after("num_dense_layers"), correction=True, shared="num_shared_experts"
        ),
    ),
    tensors=GATE_PROJ,
    gguf=(Gguf(architecture="afmoe", windows=Windows(period=4)),),
)
MINIMAX_M2 = Architecture(
    types=("minimax_m2",),
    attention=AttentionShape(norm="heads"),
    body=Body(experts=SAME_WIDTH, named=True),
    rotary="halves",
)
FLINT = GPT_OSS.relative(
    "flint",
    attention={"kinds": flint, "norm": "head"},
    body=Body(experts=replace(ONE_SHARED, layers=flint_layers)),
    tensors=FLINT_TENSORS,
    rotary=None,
)
BEAM = LAGUNA.relative(
    "beam",
    attention={
        "kinds": every(6, last_full=True),
        "other": output_gate_and_head_bias,
        "per_layer": None,
    },
    body=Body(norms=4, experts=Experts(layers=typed(after(3)))),
    tensors=BEAM_TENSORS,
)
STEP3P5 = LAGUNA.relative(
    "step3p5",
    config={"defaults": {"gating": True}},  # a constant of the class
    attention={"per_layer": step_values, "per_layer_key": "per_layer_config"},
    body=Body(
        mlp=MLP_BIAS,
        experts=Experts(
            count="n_routed_experts",
            layers=typed(step_layers),
            shared=1,
            shared_width="share_expert_dim",
        ),
    ),
)
STEP3P7 = Architecture(types=("step3p7",), config=ConfigKeys(text="text_config"))
KOLIBRI1 = Architecture(
    types=("kolibri1",),
    attention=AttentionShape(kinds=every(5), norm="head"),
    body=Body(norms=4, experts=ONE_SHARED),
)
ARCHITECTURES = (
    GPT_OSS,
    LAGUNA,
    LAGUNA_TEXT,
    AFMOE,
    MINIMAX_M2,
    FLINT,
    BEAM,
    STEP3P5,
    STEP3P7,
    KOLIBRI1,
)
