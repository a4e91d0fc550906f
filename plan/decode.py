"""How fast decoding can be at most: a step reads all weights and the whole cache once."""

from headcount.arch.config_parts import has_experts, has_tower, whole_configs

from .cache import rank_cache
from .plan import Plan
from .planned_model import PlannedModel
from .weights import rank_weights

_PER_LAYER = "hidden_size_per_layer_input"


def decode_rate(plan: Plan) -> float | None:
    """Upper bound of tokens per second of each sequence; None without a device, where its bandwidth
    is not known, or where a step may read less than all weights.

    bandwidth / (weights + K/V read by a step), arithmetic and communication taking no time. The
    rows of an untied input embedding that a step does not read are left out. An engine reads no
    more than it stores, so that its blocks do not count.
    """
    device, work, weights = plan.request.device, plan.workload, plan.weights
    if device is None or device.bandwidth is None or weights is None:
        return None
    if no_rate_reason(plan) is not None:
        return None
    tp, batch = plan.request.attention_tp, plan.request.each_of_dp(work.batch_size)
    size, _ = rank_weights(plan.model, weights, tp)
    cache = rank_cache(plan.model, tp=tp, encoder_tokens=work.encoder_tokens, bits=work.kv_bits)
    read = size - weights.embedding_bytes // tp + cache.needed(work.context, batch)
    return device.bandwidth / max(1, read)


def no_rate_reason(plan: Plan) -> str | None:
    """Why no bound of the plan's speed can be told; None where it can."""
    if plan.request.cpu_offload_gb:
        return "a step reads weights of the host's memory, over a bus whose speed is not known"
    return unbounded_reason(plan.model)


def unbounded_reason(model: PlannedModel) -> str | None:
    """Why a decode step of `model` may read fewer weights than all; None if it reads all."""
    spec, config = model.spec, model.config
    if not spec.is_cached:
        return "an encoder does not decode"
    if any(layer.stack == "encoder" for layer in spec.layers):
        return "decoding does not read the encoder's weights"
    known = model.has_experts
    if has_experts(config, spec.model_type) if known is None else known:
        return "a step reads only the active experts' weights"
    if has_tower(config):
        return "decoding does not read the weights of the vision or audio tower"
    if any(holder.get(_PER_LAYER) for holder in whole_configs(config, spec.model_type)):
        return "a step reads only a few rows of the per-layer embeddings"
    return None
