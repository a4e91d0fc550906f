"""What an engine's weights take on a rank beyond their stored bytes: tables and padded experts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.model.mixers import Attention, LatentAttention
from headcount.model.spec import ModelSpec

from ..stored import quantization_config

_MXFP4_HIDDEN, _MARLIN_INNER, _MXFP4_BITS = 256, 128, 4.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Extra:
    """Bytes on each rank, and why."""

    bytes: int
    formula: str


def rope_table(spec: ModelSpec) -> Extra | None:
    """Cosines and sines of every position, in 2 bytes, on every rank; None without rotation.

    A head of d elements takes d per position; the layers share the table.
    """
    widths = {_rotated(m) for layer in spec.layers for m in layer.mixers} - {None}
    positions = spec.max_position_embeddings
    if not widths or positions is None:
        return None
    size = positions * sum(width for width in widths if width) * 2
    return Extra(bytes=size, formula=f"rope table of {positions:,} positions")


def _rotated(mixer: object) -> int | None:
    if isinstance(mixer, LatentAttention):
        return mixer.qk_rope_head_dim
    return mixer.head_dim if isinstance(mixer, Attention) else None


def padded_experts(
    config: Mapping[str, Any], ranks: int, *, with_marlin: bool = False
) -> Extra | None:
    """MXFP4 experts on the device: their width is padded to a multiple of 256, and with Marlin's
    kernels the inner one to 128 (vllm/model_executor/layers/quantization/mxfp4.py)."""
    settings = quantization_config(config)
    if settings is None or settings.get("quant_method") != "mxfp4":
        return None
    names = ("hidden_size", "intermediate_size", "num_local_experts", "num_hidden_layers")
    sizes = [size for name in names if type(size := config.get(name)) is int and size > 0]
    if len(sizes) != len(names):
        return None
    hidden, intermediate, experts, layers = sizes
    wide = hidden + -hidden % _MXFP4_HIDDEN
    inner = intermediate + (-intermediate % _MARLIN_INNER if with_marlin else 0)
    elements = layers * experts * 3 * (wide * inner - hidden * intermediate)
    if not elements:
        return None
    return Extra(
        bytes=int(elements * _MXFP4_BITS / 8) // ranks,
        formula=f"MXFP4 experts padded from {hidden:,} x {intermediate:,} to {wide:,} x {inner:,}",
    )
