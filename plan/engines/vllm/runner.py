"""Which of vLLM's two model runners profiles a start, and with which sampler.

V1 profiles sampling with top-k and top-p; V2 profiles it without, so that hardly more than the
logits count. From VllmConfig.use_v2_model_runner (vllm/config/vllm.py) and TopKTopPSampler
(vllm/v1/sample/ops/topk_topp_sampler.py) of 0.15 to 0.32.
"""

from collections.abc import Mapping
from typing import Any, Literal

from headcount.arch.config_parts import has_experts
from headcount.model.mixers import Recurrent
from headcount.model.spec import ModelSpec

from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ..version import Version
from .model_rules import default_runner_classes

Sampler = Literal["sort", "triton", "flashinfer", "none"]

_TRITON_SINCE, _FLASHINFER_SINCE = (0, 17), (0, 21)  # vllm-project/vllm#33538 and #40376
_TRITON_ROWS = 8  # fewer are sorted
_V2_SINCE, _V2_DENSE_SINCE, _V2_ALWAYS_SINCE = (0, 22), (0, 25), (0, 29)
_V2_PLAIN_UNTIL = (0, 24)  # neither experts nor quantised weights before
_V2_HYBRID_SINCE = (0, 27)  # where the class is one of those named


# What the V2 runner does not draft with (VllmConfig of vllm/config/vllm.py).
_DRAFTED_BY_V1 = frozenset({"suffix", "medusa"})


def uses_v2(model: PlannedModel, work: Workload) -> bool:
    """What was asked for (VLLM_USE_V2_MODEL_RUNNER), else the default: never before 0.22, always
    since 0.29, and between for more and more classes."""
    version, spec, asked = work.version, model.spec, work.request.model_runner
    if asked is not None:
        return asked == "v2"
    speculation = work.request.speculative_config
    if speculation is not None and speculation.method in _DRAFTED_BY_V1:
        return False
    if not version.at_least(*_V2_SINCE) or version.at_least(*_V2_ALWAYS_SINCE):
        return version.at_least(*_V2_ALWAYS_SINCE)
    named = bool(_classes(model.config) & default_runner_classes(version))
    is_moe = has_experts(model.config, spec.model_type)
    if not version.at_least(*_V2_DENSE_SINCE):
        plain = version.at_least(*_V2_PLAIN_UNTIL) or not (is_moe or _is_quantised(model, work))
        return named and plain
    if has_states(spec) and not (named and version.at_least(*_V2_HYBRID_SINCE)):
        return False
    return named or not is_moe


def _classes(config: Mapping[str, Any]) -> frozenset[str]:
    names = config.get("architectures")
    return frozenset(name for name in names if isinstance(name, str)) if names else frozenset()


def _is_quantised(model: PlannedModel, work: Workload) -> bool:
    return "quantization_config" in model.config or (work.dtype or "").startswith(("float8", "int"))


def has_states(spec: ModelSpec) -> bool:
    """Whether any layer is recurrent."""
    return any(isinstance(mixer, Recurrent) for layer in spec.layers for mixer in layer.mixers)


def v1_sampler(version: Version, asked: str | None, device: Device, rows: int) -> Sampler:
    """What the V1 runner profiles sampling with: `asked` is the user's, None the default."""
    is_default = asked is None and version.at_least(*_FLASHINFER_SINCE)
    if asked == "flashinfer" or (is_default and device.vendor == "NVIDIA"):
        return "flashinfer"
    if version.at_least(*_TRITON_SINCE) and rows >= _TRITON_ROWS:
        return "triton"
    return "sort"


def v2_copies_logits(version: Version) -> bool:
    """Whether the V2 runner makes a float32 copy of the logits of a profile: not in 0.26, and not
    since 0.28, where that is left to requests that need it."""
    is_first = version.at_least(*_V2_SINCE) and not version.at_least(0, 26)
    return is_first or (version.at_least(0, 27) and not version.at_least(0, 28))
