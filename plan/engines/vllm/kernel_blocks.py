"""The tokens of a block where --block-size names none: what the attention kernel of the device and
the cache takes.

Since 0.18 the default of 16 if the first choice of kernels has it, else its least size
(update_block_size_for_backend of vllm/platforms/interface.py; the order of kernels is that of
_get_backend_priorities of vllm/platforms/cuda.py); before, what check_and_update_config there set.
"""

from headcount.model.dtypes import Bits
from headcount.model.mixers import LatentAttention, Mixer
from headcount.model.spec import ModelSpec

from ...devices import Device
from ..version import Version
from .defaults import is_blackwell, is_hopper

_DEFAULT = 16
_SPARSE, _SPARSE_LATENT = 128, 64  # of kernels that read the tokens that an indexer picks
_BY_KERNEL_SINCE = (0, 18)
_FLASH_MLA, _FLASHINFER_MLA, _CUTLASS_MLA = 64, 32, 128
_FLASHINFER_MLA_BEFORE, _FLASHINFER_SINCE = 64, (0, 15)
_FLASHINFER_HEAD_DIMS = (64, 128, 192)  # qk_nope_head_dim that its kernel for latents has


def kernel_block(spec: ModelSpec, version: Version, device: Device | None, kv_bits: Bits) -> int:
    """Tokens of a block of attention; `kv_bits` are those of an element of the cache."""
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    if any(map(_picks_tokens, mixers)):
        return _SPARSE_LATENT if latents else _SPARSE
    return _of_latents(latents[0], version, device, kv_bits) if latents else _DEFAULT


def _picks_tokens(mixer: Mixer) -> bool:
    return bool(mixer.num_key_value_heads) and any(state.per_token for state in mixer.states)


def _of_latents(mixer: LatentAttention, version: Version, device: Device | None, bits: Bits) -> int:
    """FlashMLA on Hopper, since 0.18 for 8-bit caches only (FlashAttention has no such); on data
    centres' Blackwell FlashInfer, or CUTLASS; Triton elsewhere."""
    by_kernel = version.at_least(*_BY_KERNEL_SINCE)
    if is_hopper(device):
        return _FLASH_MLA if bits == 8 or not by_kernel else _DEFAULT
    if not is_blackwell(device):
        return _DEFAULT
    has_kernel = mixer.qk_nope_head_dim in _FLASHINFER_HEAD_DIMS
    if not (has_kernel and version.at_least(*_FLASHINFER_SINCE)):
        return _CUTLASS_MLA
    return _FLASHINFER_MLA if by_kernel else _FLASHINFER_MLA_BEFORE
