"""What a plan takes for granted, in sentences. Each is there only where it bears on the plan."""

from collections.abc import Iterable, Iterator
from math import ceil

from headcount.model.dtypes import BITS
from headcount.model.sizes import ASSUMED_ENCODER
from headcount.model.units import format_bytes

from ..decode import no_rate_reason
from ..devices import Device, sold_as
from ..engines.registry import started
from ..hardware.candidates import MACHINE, Candidate
from ..hardware.cost import HOURS_A_MONTH
from ..overhead import RUNTIME_ALONE, RUNTIME_PARALLEL, SAMPLER_BYTES
from ..plan import Plan
from ..replication import replication
from ..result import PlanResult
from ..weights import nothing_describes

_SOLD = 6  # devices of a size that are named


def report_notes(result: PlanResult) -> list[str]:
    """Warnings first."""
    return [*(f"Warning: {text}" for text in warnings(result.plan)), *assumptions(result)]


def warnings(plan: Plan) -> Iterator[str]:
    """What may make the plan wrong for this model."""
    workload, spec = plan.workload, plan.spec
    limit = spec.max_position_embeddings
    if limit is not None and workload.context > limit:
        yield (
            f"The context of {workload.context:,} tokens is beyond the model's maximum of"
            f" {limit:,}: planned anyway."
        )
    if (device := plan.request.device) is not None and (sold := sold_as(device)):
        yield _taken_literally(device, sold)
    if spec.assumed:
        unknown = nothing_describes(spec.model_type or "")
        yield (
            f"{unknown[0].upper()}{unknown[1:]}: its config was read by the standard names."
            " `headcount audit` lists what was assumed."
        )
    if limit is None and plan.request.context is None:
        yield f"The model states no maximum context: {workload.context:,} tokens are assumed."
    if plan.model.stands_in is not None:
        yield plan.model.stands_in
    if plan.model.overruled is not None:
        yield plan.model.overruled
    if plan.model.counted is not None:
        yield plan.model.counted
    if plan.model.lacking is not None:
        yield (
            f"The files are incomplete: {plan.model.lacking}. The weights are those of the whole"
            " model, as the config describes it."
        )
    if note := plan.engine.releases.note(plan.engine.name, plan.workload.version):
        yield note
    if plan.fits is not None and plan.limits.max_context is None:
        yield "All layers have a window and the model states no maximum: no context is too long."


def _taken_literally(device: Device, sold: tuple[Device, ...]) -> str:
    named = ", ".join(one.key for one in sold[:_SOLD])
    more = f" and {len(sold) - _SOLD:,} more" if len(sold) > _SOLD else ""
    return (
        f"{device.key} is {format_bytes(device.memory)} of usable memory, no card's: name one that"
        f" is sold so ({named}{more})."
    )


def assumptions(result: PlanResult) -> Iterator[str]:
    """What the command wants, and how the figures came about, from the weights to the speed."""
    plan = result.plan
    yield from (f"To start: {note}" for note in (plan.launch.notes if plan.launch else ()))
    yield from _replicas(result)
    yield from _machines(plan)
    if plan.request.tp > 1:
        yield from _parallel(plan)
    yield from _weights(plan)
    yield from _cache(plan)
    yield from _accounted(plan) if plan.engine.starts else _estimated(plan)
    yield from _speed(plan)
    yield from _latents(result)
    yield from _devices(result)


def _replicas(result: PlanResult) -> Iterator[str]:
    chosen = result.chosen
    if chosen is not None and chosen.replicas > 1:
        yield (
            f"Each of the {chosen.replicas:,} replicas is an engine of its own with its own copy of"
            f" the weights; users are spread evenly, at most {chosen.plan.workload.batch_size:,} on"
            " each."
        )


def _latents(result: PlanResult) -> Iterator[str]:
    """How the rows with latents are made."""
    made = [row.variant.latent for row in result.variants if row.variant.latent]
    if made:
        yield (
            f"Latents are made by headcount convert {', or '.join(made)}; docs/latent.md says what"
            " they cost a model."
        )


def _machines(plan: Plan) -> Iterator[str]:
    """Of what goes beyond one machine, which no command starts alone."""
    request = plan.request
    if not plan.engine.starts or request.ranks <= MACHINE:
        return
    yield (
        f"{request.ranks} devices are more than the {MACHINE} of one machine: {plan.engine.name}"
        " has to be started on each of several that are joined first (its pages on several nodes"
        " say how); the command says what all of them share."
    )
    if request.tp > MACHINE:
        stages = ceil(request.tp / MACHINE) * request.pp
        yield (
            f"With tp {request.tp} each layer waits for the network between machines: tp {MACHINE}"
            f" with --pp {stages} keeps that within one."
        )


def _parallel(plan: Plan) -> Iterator[str]:
    tp, found = plan.request.tp, replication(plan)
    yield f"All bytes are those of each of the {tp} devices; weights are split evenly over them."
    if found.copies > 1:
        yield (
            f"{found.copies} devices each store the same K/V heads or latents: of the"
            f" {plan.request.tp} together, {format_bytes(found.cache_bytes)} of cache and"
            f" {format_bytes(found.weights_bytes)} of weights are copies."
        )


def _weights(plan: Plan) -> Iterator[str]:
    spec, dtype, weights = plan.spec, plan.workload.dtype, plan.weights
    if weights is None:
        return
    if dtype is not None and BITS[dtype] < 16 and weights.source == "quantised":
        yield (
            f"Linear layers are taken to be quantised to {BITS[dtype]} bit on loading; embeddings"
            " and the output head stay as they are."
        )
    elif dtype is not None and BITS[dtype] < 16:
        yield f"All weights are taken at {BITS[dtype]} bit; scales and wider layers add to that."
    elif weights.source == "quantised":
        yield (
            "Quantised weights are estimated from the config; plan a folder with the weights for"
            " the stored bytes."
        )
    elif dtype is not None or (weights.source == "headers" and plan.engine.keeps_float32):
        return
    elif spec.dtype is None:
        yield "The config names no dtype: weights are taken at 16 bit."
    elif BITS[spec.dtype] > 16 and plan.engine.keeps_float32:
        yield f"The config says {spec.dtype}: --dtype bfloat16 halves the weights."
    elif BITS[spec.dtype] > 16:
        yield (
            f"The config says {spec.dtype}, which {plan.engine.name} loads as"
            f" {plan.workload.compute_dtype} unless it is started with --dtype {spec.dtype}."
        )


def _cache(plan: Plan) -> Iterator[str]:
    if not plan.spec.is_cached:
        yield "The model keeps no cache: it sees a sequence whole."
        return
    encoded = plan.workload.encoder_tokens
    if plan.spec.assumes_encoder_tokens and plan.request.encoder_tokens is None:
        yield f"Warning: {encoded:,} {ASSUMED_ENCODER}"
    if plan.engine.starts:
        return
    *most, last = started()
    yield (
        f"The KV cache is {plan.workload.kv_dtype}, reserved for whole sequences, without an"
        " engine's rounding to blocks; a window keeps its own length. --engine"
        f" {', '.join(most)} or {last} plans as that engine accounts, and gives the command to"
        " start it."
    )


def _accounted(plan: Plan) -> Iterator[str]:
    if plan.budget is not None:
        yield (
            "Of the budget, terms with a +/- are estimates; docs/engines.md holds them against"
            " start-up logs."
        )
    yield from plan.pool.notes()
    yield from plan.engine.notes(plan.model, plan.request.device, plan.workload)


def _estimated(plan: Plan) -> Iterator[str]:
    runtime = RUNTIME_ALONE if plan.request.tp == 1 else RUNTIME_PARALLEL
    yield (
        f"Runtime ({format_bytes(runtime)}) and activations are estimates, the latter the larger of"
        f" the forward pass and of sampling ({SAMPLER_BYTES} B x sequences x vocabulary)."
    )
    vocabulary = plan.spec.vocab_size
    if vocabulary and plan.spec.is_cached:
        most = format_bytes(SAMPLER_BYTES * 1024 * vocabulary)
        yield (
            "An engine reserves for its own limit of sequences, often 256 or 1,024 (then up to"
            f" {most} for sampling): set it (vLLM: --max-num-seqs) to the batch size."
        )
    yield (
        f"Of a device's usable memory {plan.utilisation or 0:.2f} is planned with. The rest is"
        " left to the driver's context, CUDA graphs, fragmentation and other processes."
    )


def _speed(plan: Plan) -> Iterator[str]:
    reason = no_rate_reason(plan)
    if reason is not None:
        yield f"No bound on decoding speed is given: {reason}."
    else:
        yield (
            "The decoding speed is an upper bound for each sequence, without speculation: bandwidth"
            " / (weights + K/V read per step). Nothing reaches it."
        )


def refused(options: Iterable[Candidate]) -> Iterator[str]:
    """Why some of them do not start."""
    for option in options:
        if option.plan.refusals:
            yield f"On {option.device.key} it does not start: {'; '.join(option.plan.refusals)}."


def of_cards(devices: Iterable[Device]) -> Iterator[str]:
    """Which of them are parts of what is bought."""
    several = [f"{n.key} ({n.per_card})" for n in devices if n.per_card > 1]
    if several:
        yield (
            "A card, or chip, is several devices to a framework, of which a row shows one:"
            f" {', '.join(several)}. Memory in all and prices are those of whole cards."
        )


def _devices(result: PlanResult) -> Iterator[str]:
    keys = [device.key for device, _ in result.left_out]
    if keys:
        version = result.plan.workload.version.text
        engine = f"{result.plan.engine.name} {version}".strip()
        yield f"Not searched, since {engine} does not run on them: {', '.join(keys)}."
    yield from refused(result.of_each_device)
    devices = [option.device for option in result.of_each_device]
    yield from of_cards(devices or [shown.device for shown in (result.shown,) if shown])
    if result.plan.verdict == "borderline" or any(
        option.verdict == "borderline" for option in result.of_each_device
    ):
        yield (
            "Borderline is what the estimates' error decides: start it to know. Replicas and"
            " requirements go by what is left if all estimates err."
        )
    unpriced = [device.key for device in devices if device.key not in result.prices]
    if result.prices and devices:
        missing = f" No price is given of {', '.join(unpriced)}." if unpriced else ""
        yield f"Prices are those given, of {HOURS_A_MONTH} hours a month.{missing}"
