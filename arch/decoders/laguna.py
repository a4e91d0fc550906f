"""Decoders of experts with a gate on their attention: Laguna, Trinity (AFMoE), Beam and Step."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.numbers import digits
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture
from ..attention.layer_kinds import SLIDING, full_every
from ..attention.more_parameters import output_gate, output_gate_and_head_bias
from ..attention.per_layer import Values, for_each_layer, listed_values
from ..attention.shape import no_parameters
from ..attention.shared import LLAMA_ATTENTION, TOWER_MHA_BIASED
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, after, after_first_dense, typed
from ..body.image_embeddings import patch_count, patches
from ..body.projectors import linear
from ..body.shared import IMAGE, MLP_BIAS, ONE_SHARED, PLAIN
from ..body.towers import Tower, fixed_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..tensors.names import G_PROJ_NAMES, GATE_PROJ_NAMES


def step_sparse_layers(view: ConfigView, count: int) -> frozenset[int]:
    """Step 3.5: `moe_layers_enum`, or all but the first three layers."""
    given = view.get("moe_layers_enum")
    if given is None:
        return frozenset(range(3, count))
    if not isinstance(given, str):
        return frozenset(view.integers("moe_layers_enum") or ()) & frozenset(range(count))
    numbers = {digits(item.strip()) for item in given.split(",") if item.strip()}
    if None in numbers:
        raise InvalidConfigError(f"{view.where}: moe_layers_enum must list indices of layers")
    return frozenset(i for i in range(count) if i in numbers)


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


def step_tower_width(view: ConfigView, layer: Layer) -> int:
    """The class derives it, whatever intermediate_size says."""
    ratio = view.positive("mlp_ratio")
    return int(view.integer("hidden_size") * (8960 / 1536 if ratio is None else ratio))


def step_tower_rest(view: ConfigView, layers: Layers) -> int:
    """Patches and positions, two scales in each layer, and two convolutions of 3 x 3 that double
    the channels."""
    hidden = view.integer("hidden_size")
    rows = (patch_count(view) + 2 * len(layers)) * hidden
    halvings = linear(9 * hidden, 2 * hidden) + linear(18 * hidden, 4 * hidden)
    return patches(view, bias=False) + rows + halvings


def step_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix over the channels of both convolutions."""
    inputs, out = 4 * tower.integer("hidden_size"), text.integer("hidden_size")
    return linear(inputs, out, bias=view.flag("projector_bias"))


STEP_TOWER = Tower(
    body=replace(IMAGE, mlp=replace(PLAIN, width=step_tower_width), more=step_tower_rest),
    attention=TOWER_MHA_BIASED,
    model_type="step3p5_vision",
    names={"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"},
)

BEAM_NAMES = GATE_PROJ_NAMES.also({"self_attn.gate_bias": "other"})

LAGUNA = Architecture(
    types=("laguna",),
    attention=replace(
        LLAMA_ATTENTION, kinds="full", norm="head", other=gate_by_config, per_layer=heads_per_layer
    ),
    body=Body(experts=replace(ONE_SHARED, layers=after_first_dense, correction=True)),
    tensors=G_PROJ_NAMES,
)

ARCHITECTURES = (
    LAGUNA,
    LAGUNA.relative(
        "laguna_text",
        attention={"kinds": None, "other": no_parameters, "per_layer": None},
        tensors=None,
        gguf=(Gguf(architecture="laguna", windows=Windows(period=4, full_first=True)),),
    ),
    Architecture(
        types=("afmoe",),
        attention=replace(
            LLAMA_ATTENTION,
            kinds=full_every(4, "global_attn_every_n_layers"),
            norm="head",
            other=output_gate,
        ),
        body=Body(
            norms=4,
            experts=Experts(
                layers=after("num_dense_layers"), correction=True, shared="num_shared_experts"
            ),
        ),
        tensors=GATE_PROJ_NAMES,
        gguf=(Gguf(architecture="afmoe", windows=Windows(period=4)),),
    ),
    Architecture(
        types=("beam",),
        attention=replace(
            LLAMA_ATTENTION,
            kinds=full_every(6, last_full=True),
            norm="head",
            other=output_gate_and_head_bias,
        ),
        body=Body(norms=4, experts=Experts(layers=typed(after(3)))),
        tensors=BEAM_NAMES,
    ),
    LAGUNA.relative(
        "step3p5",
        config={"defaults": {"gating": True}},  # a constant of the class
        attention={"per_layer": step_values, "per_layer_key": "per_layer_config"},
        body=Body(
            mlp=MLP_BIAS,
            experts=Experts(
                count="n_routed_experts",
                layers=typed(step_sparse_layers),
                shared=1,
                shared_width="share_expert_dim",
            ),
        ),
    ),
    MULTIMODAL.relative("step3p7", body=fixed_tower(STEP_TOWER, projector=step_projector)),
)
