"""How fast decoding can be at most: a step reads all weights and the whole cache once."""

from collections.abc import Mapping
from typing import Any

from headcount.model.spec import ModelSpec

from .devices import Device
from .memory import Rank
from .weights import Weights

_EXPERT_COUNTS = (
    *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    *("moe_num_primary_experts", "num_moe_experts"),
)
_TOWERS = ("vision_config", "audio_config")


def tokens_per_second(
    rank: Rank, weights: Weights, device: Device, *, context: int, batch_size: int
) -> float | None:
    """Upper bound of tokens per second of each sequence; None if the bandwidth is not known.

    bandwidth / (weights + K/V read by a step), arithmetic and communication taking no time. The
    rows of an untied input embedding that a step does not read are left out.
    """
    if device.bandwidth is None:
        return None
    read = rank.weights_bytes - weights.embedding_bytes // rank.tp
    return device.bandwidth / max(1, read + rank.cache_bytes(context, batch_size))


def unbounded_reason(spec: ModelSpec, config: Mapping[str, Any] | None) -> str | None:
    """Why a decode step of this model may read fewer weights than all; None if it reads all."""
    if not spec.is_cached:
        return "an encoder does not decode"
    if any(layer.stack == "encoder" for layer in spec.layers):
        return "decoding does not read the encoder's weights"
    if config is None:
        return "without a config it is not known which weights a step reads"
    holders = [config, *(v for k, v in config.items() if k.endswith("_config") and _is_object(v))]
    if any(_has_experts(holder) for holder in holders) or "moe" in spec.model_type:
        return "a step reads only the active experts' weights"
    if any(config.get(tower) for tower in _TOWERS):
        return "decoding does not read the weights of the vision or audio tower"
    if any(holder.get("hidden_size_per_layer_input") for holder in holders) or (
        spec.model_type.startswith("gemma3n")
    ):
        return "a step reads only a few rows of the per-layer embeddings"
    return None


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _has_experts(holder: Mapping[str, Any]) -> bool:
    return any(_may_be_several(holder.get(name)) for name in _EXPERT_COUNTS)


def _may_be_several(count: object) -> bool:
    """Some configs give a list with one count per layer (Hunyuan). What is no number leaves the
    count open, and then there is no bound."""
    if isinstance(count, list):
        return any(_may_be_several(each) for each in count)
    return count > 1 if isinstance(count, (int, float)) else bool(count)
