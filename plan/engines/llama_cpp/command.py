"""The command that starts llama-server as planned."""

from collections.abc import Iterator

from ...gguf_names import mix_name
from ...planned_model import PlannedModel
from ...request import Workload
from ...stored import full_name, stored_as
from ..launch import Launch, Served, beyond_maximum, gguf_file, is_gguf, option, own_format
from .aborts import abort
from .cache_types import CacheTypes
from .settings import cache_types, layout_of
from .slots import UBATCH


def launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    found = _served(model, work.request.dtype)
    refusals = (*found.refusals, *filter(None, [abort(model, work)]))
    if found.name is None or refusals:
        return Launch(command=None, refusals=refusals)
    notes = list(found.notes)
    if found.notes:
        notes.append("-hf in place of -m takes a repository of the Hub that has GGUF files.")
    if beyond := beyond_maximum(model, work):
        notes.append(f"llama-server caps a request at the model's {beyond:,} tokens.")
    words = [f"llama-server -m {found.name}", *_options(work)]
    return Launch(command=" ".join(words), notes=tuple(notes))


def _served(model: PlannedModel, dtype: str | None) -> Served:
    """A GGUF file; of a model that is none, a placeholder for one."""
    if is_gguf(model) and dtype is None:
        return gguf_file(model, None)
    stored = _format(model, dtype)
    mix = mix_name(_AS_MIXES.get(stored, stored))
    if mix is not None:
        return gguf_file(model, mix)
    reason = f"llama.cpp has no weights of {stored}: its own are q4_k_m, q6_k, q8_0 and the like"
    return Served(name=None, refusals=(reason,))


def _format(model: PlannedModel, dtype: str | None) -> str:
    """The name of what the weights are planned as."""
    if dtype is not None:
        return full_name(dtype)
    own = own_format(model)
    if own is None:
        return model.spec.dtype or "bfloat16"
    return stored_as(own) or str(own.get("quant_method", "the config's own format"))


_AS_MIXES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "mxfp4": "mxfp4_moe"}


def _options(work: Workload) -> Iterator[str]:
    request, kinds = work.request, cache_types(work.request)
    layout = layout_of(work)
    layers = request.gpu_layers
    yield f"-ngl {999 if layers is None else layers}"
    yield from ("--cpu-moe",) if request.cpu_moe else option("--n-cpu-moe", request.n_cpu_moe, 0)
    yield from ("--no-kv-offload",) if request.no_kv_offload else ()
    yield f"-c {layout.asked}"
    if not layout.by_itself:
        yield f"--parallel {layout.count}"
        yield from ("--kv-unified",) if layout.unified and request.kv_unified else ()
    yield from option("--ubatch-size", request.ubatch_size, UBATCH)
    if kinds != CacheTypes():
        yield f"--cache-type-k {kinds.keys} --cache-type-v {kinds.values}"
    if request.flash_attn not in (None, "auto"):
        yield f"--flash-attn {request.flash_attn}"
    yield from ("--swa-full",) if request.swa_full else ()
    if request.tp > 1:
        yield f"--split-mode tensor --tensor-split {','.join(['1'] * request.tp)}"
    elif request.pp > 1:
        yield f"--split-mode layer --tensor-split {','.join(['1'] * request.pp)}"
