"""The caches of transformers' `generate`: one that grows, and one of a fixed length."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.arch.model_classes import model_classes
from headcount.model.dtypes import Bits
from headcount.model.spec import ModelSpec

from ..parallel import rank_spec
from ..planned_model import PlannedModel
from ..request import Workload
from .budget_terms import unreserved
from .cache_names import CacheNames
from .engine import Engine
from .launch import Launch, beyond_maximum, served
from .loaded_weights import loaded_weights
from .paged import paged_cache_type
from .pool import CachePool, SequencePool
from .staged_pool import pool_of_stages

# A dynamic and a static cache keep what attention computes, as it is.
_CACHES = CacheNames(engine="transformers", option="--kv-dtype", since={})


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersPool(SequencePool):
    """`spec` has the heads of one rank. A static cache reserves whole windows and whole contexts
    from the first token; a dynamic one keeps what was seen, of a window all but the newest."""

    spec: ModelSpec
    bits: Bits
    encoder_tokens: int
    static: bool = False

    def bytes_per_token(self, within: int | None) -> int:
        return self.spec.cache_bytes_per_token(bits=self.bits, within=within)

    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence of `context` tokens."""
        return self.spec.cache_bytes(
            tokens=context,
            bits=self.bits,
            encoder_tokens=self.encoder_tokens,
            engine="serving" if self.static else "transformers",
        )

    def notes(self) -> Sequence[str]:
        if self.static:
            return ["A static cache (cache_implementation=static) reserves the whole context."]
        return [
            "A dynamic cache grows by copying: for a moment a layer's old and new keys and values"
            " both exist."
        ]


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    def of_layers(spec: ModelSpec) -> TransformersPool:
        return TransformersPool(
            spec=rank_spec(spec, work.request.tp),
            bits=work.kv_bits,
            encoder_tokens=work.encoder_tokens,
            static=work.request.static_cache,
        )

    return pool_of_stages(model.spec, work.request.pp, of_layers)


_TASKS = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq", "AutoModelForCausalLM")
_BITSANDBYTES = "quantization_config=transformers.BitsAndBytesConfig"
# What from_pretrained makes of weights while it loads them.
_ON_LOADING = {
    **{name: f'dtype="{name}"' for name in ("float16", "bfloat16", "float32")},
    "nf4": f'{_BITSANDBYTES}(load_in_4bit=True, bnb_4bit_quant_type="nf4")',
    "int8": f"{_BITSANDBYTES}(load_in_8bit=True)",
    "float8_e4m3fn": "quantization_config=transformers.FineGrainedFP8Config()",
}

_UNKNOWN = ("float8_e5m2", "mxfp8")


def _launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    """Two statements of Python."""
    request = work.request
    if request.tp > 1 and request.pp > 1:
        reason = "transformers splits by tp, or by layers: not both"
        return Launch(command=None, refusals=(reason,))
    if work.kv_dtype != work.compute_dtype:
        reason = f"transformers' cache has the dtype that is computed in, {work.compute_dtype}"
        return Launch(command=None, refusals=(reason,))
    found = served(
        model, request.dtype, engine="transformers", on_loading=_ON_LOADING, unknown=_UNKNOWN
    )
    if found.name is None:
        return Launch(command=None, refusals=found.refusals)
    (name,) = shlex.split(found.name)
    words = [json.dumps(name), *(found.words or ('dtype="auto"',))]
    words.append('tp_plan="auto"' if request.tp > 1 else 'device_map="auto"')
    load = f"model = transformers.{_auto_class(model)}.from_pretrained({', '.join(words)})"
    return Launch(
        command=f"{load}; {_call(model, work)}", notes=(*found.notes, *_notes(model, work))
    )


def _call(model: PlannedModel, work: Workload) -> str:
    if not model.spec.is_cached:
        return "model(**inputs)"
    implementation = ', cache_implementation="static"' if work.request.static_cache else ""
    return f"model.generate(**inputs, max_length={work.context}{implementation})"


def _auto_class(model: PlannedModel) -> str:
    classes = model_classes(model.spec.model_type or "")
    tasks = _TASKS if model.spec.encoder_tokens else _TASKS[2:]
    found = next((task for task in tasks if task in classes), _TASKS[2])
    return found if model.spec.is_cached else "AutoModel"


def _notes(model: PlannedModel, work: Workload) -> Iterator[str]:
    request = work.request
    if request.tp > 1:
        yield f"Run it with torchrun --nproc-per-node {request.tp}."
    else:
        yield "device_map wants the package accelerate."
    if request.pp > 1:
        yield f"device_map spreads the layers over all devices that are visible: {request.pp}."
    if work.batch_size > 1:
        yield f"The inputs are {work.batch_size:,} sequences."
    if beyond := beyond_maximum(model, work):
        yield f"The context is beyond the model's {beyond:,} tokens: nothing checks it."


ENGINE = Engine(
    name="transformers",
    latents="latent",
    budget=unreserved,
    pool=_pool,
    launch=_launch,
    cache_type=paged_cache_type(_CACHES),
    weights=loaded_weights,
    options=frozenset({"version", "pp", "static_cache"}),
)
