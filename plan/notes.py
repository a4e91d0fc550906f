"""What a plan takes for granted, in sentences. Each is there only where it bears on the plan."""

from collections.abc import Iterator

from headcount.model.dtypes import BITS
from headcount.model.units import format_bytes

from .overhead import RUNTIME_ALONE, RUNTIME_PARALLEL, SAMPLER_BYTES
from .planning import ModelPlan
from .replication import replication
from .stored import quantization_config, stored_format

# Words in the names of table rows that several devices, as a framework sees them, make up.
_WHOLE = ("whole card", "both stacks", "both cores", "all eight cores")


def warnings(plan: ModelPlan) -> Iterator[str]:
    """What may make the plan wrong for this model."""
    workload, spec = plan.workload, plan.spec
    limit = spec.max_position_embeddings
    if limit is not None and workload.context > limit:
        yield (
            f"The context of {workload.context:,} tokens is beyond the model's maximum of"
            f" {limit:,}: planned anyway."
        )
    if limit is None and plan.request.context is None:
        yield f"The model states no maximum context: {workload.context:,} tokens are assumed."
    if _is_unknown_quantisation(plan):
        yield (
            "The config has a quantization_config of an unknown kind: the weights are counted as"
            " not quantised. Plan a folder with the weights for the stored bytes."
        )
    limits = plan.memory.limits
    if limits is not None and limits.max_context is None:
        yield "All layers have a window and the model states no maximum: no context is too long."


def _is_unknown_quantisation(plan: ModelPlan) -> bool:
    """Headers tell the size whatever the kind, and a dtype that is asked for overrules it."""
    if plan.config is None or plan.workload.dtype or plan.weights.source == "headers":
        return False
    return quantization_config(plan.config) is not None and stored_format(plan.config) is None


def assumptions(plan: ModelPlan) -> Iterator[str]:
    """How the figures came about, from the weights to the speed."""
    if plan.request.tp > 1:
        yield from _parallel(plan)
    yield from _weights(plan)
    yield from _cache(plan)
    yield from _overhead(plan)
    yield (
        f"Of a device's usable memory {plan.request.utilisation:.2f} is planned with. The rest is"
        " left to the driver's context, CUDA graphs, fragmentation and other processes."
    )
    yield from _speed(plan)
    yield from _devices(plan)


def _parallel(plan: ModelPlan) -> Iterator[str]:
    tp, found = plan.request.tp, replication(plan)
    yield f"All bytes are those of each of the {tp} devices; weights are split evenly over them."
    if found.copies > 1:
        yield (
            f"{found.copies} devices each store the same K/V heads or latents: of the"
            f" {plan.request.tp} together, {format_bytes(found.cache_bytes)} of cache and"
            f" {format_bytes(found.weights_bytes)} of weights are copies."
        )


def _weights(plan: ModelPlan) -> Iterator[str]:
    spec, dtype = plan.spec, plan.workload.dtype
    if dtype is not None and BITS[dtype] < 16:
        yield f"All weights are taken at {BITS[dtype]} bit; scales and wider layers add to that."
    elif plan.weights.source == "quantised":
        yield (
            "Quantised weights are estimated from the config; plan a folder with the weights for"
            " the stored bytes."
        )
    elif plan.weights.source == "headers" or dtype is not None:
        return
    elif spec.dtype is None:
        yield "The config names no dtype: weights are taken at 16 bit."
    elif BITS[spec.dtype] > 16:
        yield f"The config says {spec.dtype}: --dtype bfloat16 halves the weights."


def _cache(plan: ModelPlan) -> Iterator[str]:
    if not plan.spec.is_cached:
        yield "The model keeps no cache: it sees a sequence whole."
        return
    yield (
        f"The KV cache is {plan.workload.kv_dtype}, reserved for whole sequences, without an"
        " engine's rounding to blocks; a window keeps its own length. --engine vllm, sglang,"
        " llama.cpp or transformers plans as that engine accounts, and gives the command to start"
        " it."
    )


def _overhead(plan: ModelPlan) -> Iterator[str]:
    runtime = RUNTIME_ALONE if plan.request.tp == 1 else RUNTIME_PARALLEL
    yield (
        f"Runtime ({format_bytes(runtime)}) and activations are estimates, the latter the larger of"
        f" the forward pass and of sampling ({SAMPLER_BYTES} B x sequences x vocabulary)."
    )
    vocabulary = plan.memory.rank.overhead.vocab_size
    if vocabulary:
        most = format_bytes(SAMPLER_BYTES * 1024 * vocabulary)
        yield (
            "An engine reserves for its own limit of sequences, often 256 or 1,024 (then up to"
            f" {most} for sampling): set it (vLLM: --max-num-seqs) to the batch size."
        )


def _speed(plan: ModelPlan) -> Iterator[str]:
    if plan.unbounded_reason is not None:
        yield f"No bound on decoding speed is given: {plan.unbounded_reason}."
    else:
        yield (
            "The decoding speed is an upper bound for each sequence, without speculation: bandwidth"
            " / (weights + K/V read per step). Nothing reaches it."
        )


def _devices(plan: ModelPlan) -> Iterator[str]:
    whole = [p.device.key for p in plan.placements if any(w in p.device.name for w in _WHOLE)]
    if whole:
        names = ", ".join(whole)
        yield f"Frameworks see {names} as several devices: such a row needs tp over its parts."
