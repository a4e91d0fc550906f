"""Blocks of attention by device, cache and version. Expected sizes are those that the kernels
declare in vllm/v1/attention/backends and vllm/models/minimax_m3, in the order of choice of
vllm/platforms/cuda.py; those of Hopper since 0.32 are vLLM's own answers, too (test_vllm_judge)."""

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.kernel_blocks import kernel_block
from headcount.plan.engines.vllm.vllm import ENGINE


@pytest.mark.parametrize(
    ("model", "version", "device", "bits", "size"),
    [
        ("qwen3-8b", "0.32.0", "h100", 16, 16),
        ("deepseek-v3", "0.9.2", "h100", 16, 64),  # FlashMLA
        ("deepseek-v3", "0.17.0", "h100", 16, 64),
        ("deepseek-v3", "0.18.0", "h100", 16, 16),  # FlashAttention
        ("deepseek-v3", "0.18.0", "h100", 8, 64),  # which has no 8-bit caches
        ("deepseek-v3", "0.32.0", None, 16, 16),
        ("deepseek-v3", "0.14.0", "b200", 16, 128),  # CUTLASS
        ("deepseek-v3", "0.15.0", "b200", 16, 64),  # FlashInfer
        ("deepseek-v3", "0.18.0", "b200", 16, 32),
        ("deepseek-v3", "0.17.0", "a100", 16, 16),  # Triton
        ("deepseek-v3", "0.32.0", "rtx-pro-6000", 16, 16),
        ("deepseek-v3", "0.32.0", "mi300x", 16, 16),
        ("deepseek-v3.2", "0.12.0", "h100", 16, 64),  # tokens picked by an indexer
        ("deepseek-v3.2", "0.32.0", "h100", 16, 64),
        ("minimax-m3", "0.32.0", "h100", 16, 128),
    ],
)
def test_a_block_has_what_the_kernel_takes(
    model: str, version: str, device: str | None, bits: int, size: int
) -> None:
    found = None if device is None else find_device(device)
    spec = audit_model(model).spec
    assert kernel_block(spec, ENGINE.releases.parse(version), found, bits) == size
