"""Tensor parallelism: which numbers of ranks a model allows, and what one rank holds of a mixer.

A rank owns num_attention_heads / tp query heads and max(1, num_key_value_heads / tp) K/V heads:
with more ranks than K/V heads, every head is stored tp / num_key_value_heads times. The latent of
MLA belongs to all heads, so every rank keeps all of it, and the projections down to it. Recurrent
state is divided evenly.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import ceil, gcd

from headcount.model.divisors import divisors, listed
from headcount.model.errors import HeadcountError
from headcount.model.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    LowRankAttention,
    Mixer,
    Recurrent,
)
from headcount.model.mixers.state import State
from headcount.model.spec import ModelSpec

AnyAttention = Attention | CrossAttention | LatentAttention | CompressedAttention


def valid_tp(spec: ModelSpec) -> tuple[int, ...]:
    """Every tp that splits the query heads of all layers evenly, and splits or copies K/V heads;
    of a model without attention those that split its state."""
    mixers = set(heads_or_latents(spec))
    common = gcd(*(mixer.num_attention_heads for mixer in mixers)) or gcd(*_state_widths(spec))
    if common == 0:  # nothing to split
        return (1,)
    return tuple(tp for tp in divisors(common) if all(_spreads(mixer, tp) for mixer in mixers))


def heads_or_latents(spec: ModelSpec) -> list[AnyAttention]:
    """Every mixer with K/V heads, or one latent for all heads."""
    return [m for layer in spec.layers for m in layer.mixers if not isinstance(m, Recurrent)]


def _state_widths(spec: ModelSpec) -> set[int]:
    """Of each recurrent mixer: its heads, or what all of its states are multiples of."""
    found = {m for layer in spec.layers for m in layer.mixers if isinstance(m, Recurrent)}
    return {m.num_attention_heads or gcd(*(n.fixed for n in m.states)) for m in found}


def _spreads(mixer: AnyAttention, tp: int) -> bool:
    heads = mixer.num_key_value_heads
    return heads % tp == 0 or tp % heads == 0


def check_tp(spec: ModelSpec, tp: int, model_id: str) -> None:
    """Raises HeadcountError, listing the valid values, for a tp that the heads do not allow."""
    valid = valid_tp(spec)
    if tp in valid:
        return
    raise HeadcountError(
        f"tp {tp} does not split {model_id}: {_split(spec)}; valid are {listed(valid)}"
    )


def _split(spec: ModelSpec) -> str:
    mixers = heads_or_latents(spec)
    if not mixers:
        return f"recurrent state of {_counts(_state_widths(spec)) or 'no'} parts"
    query = _counts(mixer.num_attention_heads for mixer in mixers)
    key_value = _counts(mixer.num_key_value_heads for mixer in mixers)
    return f"{query} attention heads and {key_value} K/V heads"


def _counts(values: Iterable[int]) -> str:
    return " and ".join(str(value) for value in sorted(set(values)))


def rank_mixer(mixer: Mixer, tp: int) -> Mixer:
    """The mixer with the heads of one rank; `tp` must be valid for it."""
    if tp == 1:
        return mixer
    if isinstance(mixer, Recurrent):
        states = tuple(_rank_state(mixer, state, tp) for state in mixer.states)
        return replace(mixer, weights=ceil(mixer.weights / tp), states=states)
    heads = mixer.num_attention_heads // tp
    if isinstance(mixer, (LatentAttention, CompressedAttention)):
        return replace(mixer, num_attention_heads=heads)
    key_value = max(1, mixer.num_key_value_heads // tp)
    return replace(mixer.with_key_value_heads(key_value), num_attention_heads=heads)


def _rank_state(mixer: Recurrent, state: State, tp: int) -> State:
    """Divided evenly, but that Mamba-2's convolution has a group for the heads of each rank
    (MambaStateShapeCalculator.mamba2_state_shape of
    vllm/model_executor/layers/mamba/mamba_utils.py)."""
    whole = state.fixed + _copied_groups(mixer, state, tp)
    return state._replace(fixed=ceil(whole / tp))


def _copied_groups(mixer: Recurrent, state: State, tp: int) -> int:
    """Elements of `state` in the groups that several ranks have, but for the first's."""
    inner = (mixer.num_attention_heads or 0) * (mixer.head_dim or 0)
    if mixer.form != "Mamba-2" or not state.columns or not inner:
        return 0
    recurrent = next(other.fixed for other in mixer.states if not other.columns)
    group = 2 * (recurrent // inner) * state.columns
    groups = (state.fixed - inner * state.columns) // group
    return (tp - groups) * group if groups % tp else 0


def rank_spec(spec: ModelSpec, tp: int) -> ModelSpec:
    """The model with the mixers of one rank; `tp` must be valid for it."""
    layers = tuple(
        replace(layer, mixers=tuple(rank_mixer(mixer, tp) for mixer in layer.mixers))
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def key_value_copies(mixer: Mixer, tp: int) -> int:
    """How many ranks store the same K/V head, or the same latent."""
    if isinstance(mixer, Recurrent):
        return 1
    if isinstance(mixer, LowRankAttention):
        return tp
    return max(1, tp // mixer.num_key_value_heads)


def replicated_parameters(spec: ModelSpec, tp: int) -> int:
    """Parameters of q, k and v that all ranks hold together beyond one copy.

    Norms and the bias of the output projection are replicated too, and negligible.
    """
    mixers = Counter(heads_or_latents(spec))
    return sum(
        count * (tp * _projections(rank_mixer(mixer, tp)) - _projections(mixer))
        for mixer, count in mixers.items()
    )


def _projections(mixer: Mixer) -> int:
    parts = mixer.parameters()
    return parts.q + parts.k + parts.v
