"""What each engine leaves for the cache on a device, stage by stage of a pipeline."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

from ..devices import Device
from ..engines.serving_weights import padded_experts, rope_table
from ..engines.terms import Budget, BudgetTerm
from ..memory import plan_rank
from ..overhead import Overhead
from ..request import Workload
from ..weights import Weights
from .request import ServingRequest, Subject

_GIB = 2**30
_ERROR = {"headers": 0.003, "parameters": 0.015, "quantised": 0.02}
_BUFFERS = 40 * 2**20  # bytes: what a model registers beside its parameters, such as a second table
_SOURCES = {
    "headers": "the files' headers",
    "parameters": "the config's count of parameters",
    "quantised": "the config's count of parameters and quantization_config",
}


def budgets(
    subject: Subject, request: ServingRequest, workload: Workload, weights: Weights
) -> tuple[Budget, ...]:
    """The budget of one rank of each stage; empty without a device."""
    if request.device is None:
        return ()
    make = _BUDGETS[request.engine]
    return tuple(
        make(subject, request, workload, request.device, term)
        for term in _weights(subject, request, workload, weights)
    )


def _weights(
    subject: Subject, request: ServingRequest, workload: Workload, weights: Weights
) -> Iterator[BudgetTerm]:
    """The weights of a rank on each stage: layers evenly, the input embedding on the first stage
    and the output head on the last."""
    spec, pp = subject.spec, request.pp
    rank = plan_rank(spec, workload, weights, request.tp)
    ranks = request.tp * pp
    extras = [rope_table(spec), padded_experts(subject.config, ranks, with_marlin=_marlin(request))]
    known = [extra for extra in extras if extra is not None]
    added = sum(extra.bytes for extra in known)
    table = ceil(
        (spec.vocab_size or 0) * spec.hidden_size * weights.per_attention_parameter / request.tp
    )
    ends = min(rank.weights_bytes, table * (1 if spec.tie_word_embeddings else 2))
    for stage in range(pp):
        own = rank.weights_bytes
        if pp > 1:
            at_end = table * (stage in (0, pp - 1))
            own = (rank.weights_bytes - ends) // pp + at_end
        yield BudgetTerm(
            key="weights",
            title="Weights",
            bytes=own + added,
            formula=" + ".join([rank.weights_formula, *(extra.formula for extra in known)])
            + (f", stage {stage + 1} of {pp}" if pp > 1 else ""),
            source=_SOURCES[weights.source],
            error_bytes=max(_BUFFERS, ceil(own * _ERROR[weights.source])),
        )


def _marlin(request: ServingRequest) -> bool:
    """Whether MXFP4 experts run on Marlin, as on every device until Triton's kernels in 0.11, which
    need Hopper (get_mxfp4_backend of vllm/model_executor/layers/quantization/mxfp4.py)."""
    from ..engines.vllm_defaults import is_hopper_or_newer

    if request.engine != "vllm":
        return False
    old = request.device is not None and not is_hopper_or_newer(request.device)
    return old or not request.version.at_least(0, 11)


def _vllm(
    subject: Subject, request: ServingRequest, workload: Workload, device: Device, term: BudgetTerm
) -> Budget:
    from ..engines.vllm_budget import BudgetInputs, vllm_budget
    from ..engines.vllm_defaults import default_step, default_utilisation

    step = default_step(request.version, device, request.usage)
    step = replace(
        step,
        max_num_seqs=request.max_num_seqs or step.max_num_seqs,
        max_num_batched_tokens=request.max_num_batched_tokens or step.max_num_batched_tokens,
    )
    inputs = BudgetInputs(
        spec=subject.spec,
        config=subject.config,
        device=device,
        version=request.version,
        utilisation=request.utilisation or default_utilisation(request.version),
        ranks=request.tp * request.pp,
        weights=term,
        overhead=_overhead(subject, request, workload),
        step=step,
        sampler=request.sampler,
        enforce_eager=request.enforce_eager,
    )
    return vllm_budget(inputs)


def _overhead(subject: Subject, request: ServingRequest, workload: Workload) -> Overhead:
    from ..overhead import plan_overhead

    found = plan_overhead(subject.spec, workload, request.tp)
    return replace(found, step_limit=None)


def _sglang(
    subject: Subject, request: ServingRequest, workload: Workload, device: Device, term: BudgetTerm
) -> Budget:
    from headcount.model.mixers import LatentAttention

    from ..engines.sglang import mem_fraction_static

    ranks = request.tp * request.pp
    latent = any(isinstance(m, LatentAttention) for n in subject.spec.layers for m in n.mixers)
    default = mem_fraction_static(device.usable_memory, ranks=ranks, is_latent=latent)
    share = request.utilisation or default
    return Budget(
        allowed=_share(device, share, "mem_fraction_static"),
        taken=(term, _runtime(0.5 if ranks == 1 else 1.0, "context and communication")),
    )


def _plain(
    subject: Subject, request: ServingRequest, workload: Workload, device: Device, term: BudgetTerm
) -> Budget:
    """Of an engine that reserves nothing for itself: all memory but a step's activations."""
    overhead = _overhead(subject, request, workload)
    batch = min(request.batch_size, 512)
    forward = overhead.forward_bytes(512, 1) + overhead.sampler_bytes(batch) // 4
    return Budget(
        allowed=_share(device, request.utilisation or 0.95, "of the visible memory"),
        taken=(
            term,
            _runtime(0.5, "context and workspaces"),
            BudgetTerm(
                key="activations",
                title="Activations",
                bytes=forward,
                formula=f"forward of 512 tokens and logits of {batch:,} sequences",
                source="widths of the layers",
                error_bytes=forward,
            ),
        ),
    )


def _share(device: Device, share: float, name: str) -> BudgetTerm:
    from headcount.model.units import format_bytes

    return BudgetTerm(
        key="requested",
        title="Requested",
        bytes=ceil(device.usable_memory * share),
        formula=f"{format_bytes(device.usable_memory)} visible x {share:g} ({name})",
        source=f"visible of nominal {format_bytes(device.memory)}: {device.usable_source}",
    )


def _runtime(gib: float, what: str) -> BudgetTerm:
    return BudgetTerm(
        key="runtime",
        title="Runtime",
        bytes=ceil(gib * _GIB),
        formula=f"{gib:g} GiB of {what}",
        source="an assumption",
        error_bytes=ceil(gib / 2 * _GIB),
    )


_BUDGETS: dict[str, Callable[[Subject, ServingRequest, Workload, Device, BudgetTerm], Budget]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _plain,
    "transformers": _plain,
}
