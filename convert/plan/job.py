"""What makes two conversions the same one: equal jobs write equal bytes."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from headcount.model.version import __version__

from .plan import ConversionPlan
from .request import CPU


def job_of(plan: ConversionPlan) -> str:
    """A digest of source, options and version of this program: all that the output depends on but
    the values of the tensors."""
    return _digest(_parts(plan))


def local_job_of(plan: ConversionPlan) -> str:
    """The same for what a killed run has left: also of the files themselves, by their identities,
    so that nothing goes on with other values."""
    return _digest((*_parts(plan), *(f"{p.name} {i.lasting}" for p, i in plan.source.files)))


def _parts(plan: ConversionPlan) -> Iterator[str]:
    request = plan.request
    yield __version__
    yield plan.source.fingerprint
    yield f"{plan.source.name} {request.method} {request.num_key_value_heads} {request.seed}"
    if request.pruned_heads is not None:
        yield f"pruned {request.pruned_heads}"
    if request.latent is not None:
        yield f"latent {request.latent}"
    if plan.budget is not None:
        yield f"budget {plan.budget}"
    if plan.rewriting is not None:
        calibration = (plan.rewriting.calibration_sha256, plan.rewriting.calibration_tokens)
        yield f"{plan.rewriting.ladder} {calibration}"
        if plan.rewriting.calibration_row_tokens is not None:
            yield f"rows of {plan.rewriting.calibration_row_tokens}"
    if request.device != CPU:
        yield f"on {request.device.partition(':')[0]}"
    for file in plan.files:
        yield f"{file.name} {json.dumps(file.metadata)}"
        yield from map(repr, file.steps)
    yield json.dumps([plan.config, plan.index_name, plan.index])
    yield repr([(file.name, file.nbytes) for file in plan.side_files])
    yield plan.card
    if plan.gguf is not None:
        yield repr(plan.gguf)


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part}\0".encode("utf-8", "surrogatepass"))
    return f"sha256:{digest.hexdigest()}"
