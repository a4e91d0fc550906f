"""llama.cpp's caches: cells of a context that is fixed at the start, by llama-kv-cache*.cpp.

Every sequence has a stream of `n_ctx` cells, padded to 256; layers with a window have fewer, room
for the window and one micro-batch. Recurrent state is float32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Recurrent, fills
from headcount.model.spec import ModelSpec

from ..gguf_mixes import mix_name
from ..parallel import rank_mixer
from ..planned_model import PlannedModel
from ..request import CacheType, PlanRequest, Workload
from ..stored import full_name, stored_as
from .budget_terms import unreserved
from .engine import Engine
from .launch import Launch, Served, beyond_maximum, gguf_file, is_gguf, own_format
from .loaded_weights import loaded_weights
from .pool import CachePool, SequencePool
from .staged_pool import pool_of_stages
from .version import Version

_PAD, UBATCH, _STATE_BITS = 256, 512, 32
# bytes of a block of 32 elements (ggml/src/ggml-common.h), scale included
_BLOCKS = {
    **{"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20},
    **{"q4_0": 18, "iq4_nl": 18},
}
_NAMES = {"fp16": "f16", "float16": "f16", "float32": "f32", "fp32": "f32", "bfloat16": "bf16"}


def cache_type(name: str | None) -> str:
    """llama.cpp's name of a type of cache; None is its default, f16. Raises HeadcountError."""
    wanted = "f16" if name is None or name == "auto" else name.lower()
    found = _NAMES.get(wanted, wanted)
    if found not in _BLOCKS:
        raise HeadcountError(
            f"llama.cpp has no cache of {name!r}; it has {', '.join(_BLOCKS)} (--cache-type-k)"
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class LlamaCppPool(SequencePool):
    """Rows are (elements per cell, window or None, number of layers); `state_elements` are those of
    one sequence."""

    rows: tuple[tuple[int, int | None, int], ...]
    state_elements: int
    type: str
    ubatch: int = UBATCH

    def bytes_per_token(self, within: int | None) -> int:
        growing = ((n, count) for n, window, count in self.rows if not fills(window, within))
        return sum(self._bytes(n) * count for n, count in growing)

    def _bytes(self, elements: int) -> int:
        return -(-elements // 32) * _BLOCKS[self.type]

    def cells(self, context: int, window: int | None) -> int:
        """Cells of a layer for one sequence of `context` tokens."""
        whole = _padded(context)
        if window is None:
            return whole
        return _padded(min(whole, window + self.ubatch))

    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence's stream: keys, values and state."""
        kept = sum(
            self._bytes(elements) * self.cells(context, window) * count
            for elements, window, count in self.rows
        )
        return kept + self.state_elements * _STATE_BITS // 8

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self.concurrency(available, context)) * _padded(context)

    def notes(self) -> Sequence[str]:
        found = [
            f"Each sequence (--parallel) has its own cells, padded to {_PAD}: tokens are those of"
            " whole sequences."
        ]
        if any(window is not None for _, window, _ in self.rows):
            found.append(
                f"Layers with a window have cells for it and a micro-batch of {self.ubatch}"
                " (--ubatch-size); --swa-full gives them all."
            )
        if self.state_elements:
            found.append("Recurrent state is float32, one per sequence.")
        return found


def _padded(tokens: int) -> int:
    return -(-tokens // _PAD) * _PAD


def llama_cpp_pool(spec: ModelSpec, *, tp: int, kv_dtype: str | None) -> LlamaCppPool:
    """The caches of one of `tp` devices. Raises HeadcountError for an unknown type."""
    rows: dict[tuple[int, int | None], int] = {}
    state = 0
    for layer in spec.layers:
        for mixer in (rank_mixer(m, tp) for m in layer.mixers):
            elements = mixer.key_value_elements(1, 1, "serving")
            if elements and not isinstance(mixer, Recurrent):
                key = (elements, mixer.window)
                rows[key] = rows.get(key, 0) + 1
            state += sum(s.fixed_elements("serving") for s in mixer.states)
    return LlamaCppPool(
        rows=tuple((elements, window, n) for (elements, window), n in rows.items()),
        state_elements=state,
        type=cache_type(kv_dtype),
    )


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    kind = cache_type(request.kv_dtype)
    return CacheType(kind, _BLOCKS[kind] * 8 // 32)


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    tp, kind = work.request.tp, work.kv_dtype
    return pool_of_stages(
        model.spec, work.request.pp, lambda spec: llama_cpp_pool(spec, tp=tp, kv_dtype=kind)
    )


def _launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    found = _served(model, work.request.dtype)
    if found.name is None:
        return Launch(command=None, notes=found.notes)
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
    note = f"llama.cpp has no weights of {stored}: its own are q4_k_m, q6_k, q8_0 and the like."
    return Served(name=None, notes=(note,))


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
    """The server has four slots unless it is told otherwise."""
    batch, kind, request = work.batch_size, work.kv_dtype, work.request
    yield f"-ngl 999 -c {work.context * batch} --parallel {batch}"
    if kind != "f16":
        yield f"--cache-type-k {kind} --cache-type-v {kind}"
    if request.tp > 1:
        yield f"--split-mode row --tensor-split {','.join(['1'] * request.tp)}"
    elif request.pp > 1:
        yield f"--split-mode layer --tensor-split {','.join(['1'] * request.pp)}"


ENGINE = Engine(
    name="llama.cpp",
    budget=unreserved,
    pool=_pool,
    launch=_launch,
    cache_type=_cache_type,
    listed_as="llama.cpp",
    weights=loaded_weights,
    options=frozenset({"version", "pp"}),
    narrower_caches=("q8_0", "q4_0"),
    platforms=lambda version: dict.fromkeys(("cuda", "rocm", "xpu", "metal")),  # docs/build.md
    narrower_weights=("Q8_0", "Q4_K_M"),
)
