"""How wide a forward pass is: elements per token that are alive at once on a rank.

While an MLP works, the residual stream, its input and what it reads lie beside its gate, up and
their product. Experts have two workspaces for as many rows as tokens x chosen experts: of what
either matrix reads or writes (TritonExperts.workspace_shapes of
vllm/model_executor/layers/fused_moe/fused_moe.py).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from headcount.arch.config_parts import whole_configs
from headcount.arch.modules.module import Module
from headcount.model.numbers import size

from ...planned_model import PlannedModel, matrices_of

_WHOLE = 4  # residual, normed input, what the MLP reads, and the output of attention
_UNKNOWN = 12  # gate, up and product of an MLP of 4 x hidden_size
_CHOSEN = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"),
    *("moe_top_k", "moe_k", "top_k_experts"),
)


class ForwardWidth(NamedTuple):
    """Elements of a token, and their sum with its numbers."""

    elements: int
    formula: str


class Widths(NamedTuple):
    """Rows of the widest MLP, attention and experts of a model; experts read `expert_in`, and
    `chosen` is how many of them a token visits."""

    mlp: int = 0
    attention: int = 0
    expert_up: int = 0
    expert_down: int = 0
    expert_in: int = 0
    chosen: int = 0


def expert_elements(model: PlannedModel, tp: int) -> int:
    """Elements of a token in the experts' workspaces on one of `tp` ranks that share an expert."""
    widths = layer_widths(model)
    if widths is None or not widths.expert_up:
        return 0
    up, down = ceil(widths.expert_up / tp), ceil(widths.expert_down / tp)
    return widths.chosen * (max(up, widths.expert_in) + max(down, widths.expert_in))


def forward_elements(model: PlannedModel, tp: int) -> ForwardWidth:
    """Elements of a token on one of `tp` ranks, the experts' workspaces left out."""
    hidden = model.spec.hidden_size
    widths = layer_widths(model)
    if widths is None:
        inner = ceil(_UNKNOWN * hidden / tp)
        return ForwardWidth(_WHOLE * hidden + inner, f"{_WHOLE} x hidden {hidden:,} + {inner:,}")
    inner = ceil(max(widths.mlp, widths.attention) / tp)
    return ForwardWidth(
        _WHOLE * hidden + inner, f"{_WHOLE} x hidden {hidden:,} + {inner:,} of the widest layer"
    )


@lru_cache(maxsize=64)
def layer_widths(model: PlannedModel) -> Widths | None:
    """None where the config does not describe the model's matrices."""
    inventory = matrices_of(model)
    if inventory is None:
        return None
    modules = [module for module in inventory.modules if module.layer is not None]
    mlp = _widest(modules, ("mlp", "shared experts"))
    if not mlp and not any(module.kind == "experts" for module in modules):
        return None
    return Widths(
        mlp=mlp,
        attention=_widest(modules, ("attention",)),
        expert_up=max((_rows(m, ("gate", "up")) for m in _by_layer(modules)), default=0),
        expert_down=max((m.columns for m in modules if _is(m, "experts", "down")), default=0),
        expert_in=max((m.columns for m in modules if _is(m, "experts", "up")), default=0),
        chosen=_chosen(model.config, model.spec.model_type),
    )


def _by_layer(modules: Iterable[Module]) -> list[list[Module]]:
    found: dict[int | None, list[Module]] = {}
    for module in modules:
        found.setdefault(module.layer, []).append(module)
    return list(found.values())


def _is(module: Module, kind: str, part: str) -> bool:
    return module.kind == kind and module.part == part


def _rows(layer: Iterable[Module], parts: tuple[str, ...]) -> int:
    """Of one expert."""
    return sum(m.rows for m in layer if m.kind == "experts" and m.part in parts)


def _widest(modules: Iterable[Module], kinds: tuple[str, ...]) -> int:
    """What the inner matrices of a layer write, and what its last one reads."""
    each = (
        sum(
            module.columns if module.part in ("down", "o") else module.rows
            for module in layer
            if module.kind in kinds
        )
        for layer in _by_layer(modules)
    )
    return max(each, default=0)


def _chosen(config: Mapping[str, Any], model_type: str) -> int:
    for holder in whole_configs(config, model_type):
        for name in _CHOSEN:
            if count := size(holder.get(name)):
                return count
    return 1
