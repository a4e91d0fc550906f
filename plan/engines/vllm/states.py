"""How many blocks of recurrent state a request of vLLM takes: it depends on prefix caching.

Without it a request has one block. In mode `align` it has two, the newest state and the one that a
prefix may be resumed from, and one more where kernels write a checkpoint amid a prefill. In mode
`all` every block of the prompt has its state. From MambaModelConfig of
vllm/model_executor/models/config.py and MambaSpec of vllm/v1/kv_cache_interface.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headcount.model.mixers import Recurrent
from headcount.model.numbers import size
from headcount.model.spec import ModelSpec

from ...devices import Device
from ...request import StateMode
from ..version import Version
from .defaults import is_hopper_or_newer
from .model_rules import is_attention_free

# Hybrid models cache prefixes by default since 0.26; until 0.28 those of Mamba in mode `all`.
_SINCE, _NO_ALL_SINCE = (0, 26), (0, 29)
_MAMBA_CHECKPOINTS_SINCE, _CHECKPOINTS_SINCE = (0, 32), (0, 33)
# Before 0.15 there is no mode `align`: prefixes of other models are not cached, and until 0.12
# those of no hybrid are (MambaModelConfig and HybridAttentionMambaModelConfig of
# vllm/model_executor/models/config.py).
_ALIGN_SINCE, _ALL_SINCE = (0, 15), (0, 12)
_KIMI_CHECKPOINTS_SINCE, _KIMI_WIDTH = (0, 29), 128
_MAMBA = ("Mamba", "Mamba-2")
_MAMBA_1_CHUNK = 2048  # tokens, where a config names none
_GDN_CHUNK = 64  # FlashInfer's kernel writes checkpoints at its multiples


class StateRule(NamedTuple):
    """`blocks` that a request takes in a group of states; None: as many as its tokens fill, and one
    for each of `speculated`. The tokens of a block are a multiple of `chunk`."""

    mode: StateMode = "none"
    blocks: int | None = 1
    chunk: int = 1
    speculated: int = 0


def state_rule(
    spec: ModelSpec,
    config: Mapping[str, Any],
    version: Version,
    *,
    mode: StateMode | None = None,
    caches_prefixes: bool | None = None,
    device: Device | None = None,
    speculated: int = 0,
) -> StateRule:
    """The rule of `version`; `mode` and `caches_prefixes` are the user's. A class of recurrent
    layers alone caches no prefixes. Each of `speculated` tokens takes a block more."""
    forms = {m.form for n in spec.layers for m in n.mixers if isinstance(m, Recurrent)}
    if caches_prefixes is None:
        has_attention = not is_attention_free(spec.model_type)
        caches_prefixes = has_attention and version.at_least(*_SINCE)
    wanted = mode or (_default(forms, version) if caches_prefixes else "none")
    if wanted == "none":
        return StateRule(blocks=1 + speculated)
    if wanted == "all":
        chunk = _chunk(config)
        return StateRule(mode="all", blocks=None, chunk=chunk, speculated=speculated)
    with_checkpoint = _checkpoints(forms, version, device) or _kimi_checkpoints(
        spec, config, version, device
    )
    is_gdn = with_checkpoint and "gated delta net" in forms
    return StateRule(
        mode="align",
        blocks=2 + with_checkpoint + speculated,
        chunk=_GDN_CHUNK if is_gdn else 1,
    )


def _default(forms: set[str], version: Version) -> StateMode:
    is_mamba = bool(forms & set(_MAMBA))
    if is_mamba and version.at_least(*_ALL_SINCE) and not version.at_least(*_NO_ALL_SINCE):
        return "all"
    return "align" if version.at_least(*_ALIGN_SINCE) else "none"


def _checkpoints(forms: set[str], version: Version, device: Device | None) -> bool:
    """Mamba-2 (MambaMixer2.get_kv_cache_spec of vllm/model_executor/layers/mamba/mamba_mixer2.py);
    gated delta nets with FlashInfer's kernel, which needs Hopper or newer."""
    if forms == {"Mamba-2"}:
        return version.at_least(*_MAMBA_CHECKPOINTS_SINCE)
    if forms != {"gated delta net"} or not version.at_least(*_CHECKPOINTS_SINCE):
        return False
    return device is None or is_hopper_or_newer(device)


def _kimi_checkpoints(
    spec: ModelSpec, config: Mapping[str, Any], version: Version, device: Device | None
) -> bool:
    """Kimi delta attention with FlashKDA's kernel, for gates with a bound and heads of 128
    (is_flashkda_supported of vllm/models/kimi_k3/nvidia/kda.py)."""
    mixers = [m for n in spec.layers for m in n.mixers if isinstance(m, Recurrent)]
    has_kernel = device is None or is_hopper_or_newer(device)
    return (
        version.at_least(*_KIMI_CHECKPOINTS_SINCE)
        and has_kernel
        and all(m.form == "Kimi delta attention" and m.head_dim == _KIMI_WIDTH for m in mixers)
        and any(n.get("gate_lower_bound") is not None for n in _delta_configs(config))
    )


def _delta_configs(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for holder in _holders(config):
        own = holder.get("linear_attn_config")
        if isinstance(own, Mapping):
            yield own


def _holders(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The language model's config and the whole."""
    for holder in (config.get("text_config"), config):
        if isinstance(holder, Mapping):
            yield holder


def _chunk(config: Mapping[str, Any]) -> int:
    """Tokens of a chunk of the kernel (ModelConfig.get_mamba_chunk_size)."""
    return next(_chunks(config), _MAMBA_1_CHUNK)


def _chunks(config: Mapping[str, Any]) -> Iterator[int]:
    for holder in _holders(config):
        for name in ("mamba_chunk_size", "chunk_size"):
            if chunk := size(holder.get(name)):
                yield chunk
