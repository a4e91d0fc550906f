"""The caches of transformers' `generate`: one that grows, and one of a fixed length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.model.dtypes import Bits
from headcount.model.spec import ModelSpec

from ..parallel import rank_spec
from ..planned_model import PlannedModel
from ..request import Workload
from .budget_terms import unreserved
from .cache_names import CacheNames
from .engine import Engine
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


def _launch(model_id: str, work: Workload, kv_tokens: int) -> Iterator[str]:
    implementation = ', cache_implementation="static"' if work.request.static_cache else ""
    yield f"model.generate(**inputs, max_length={work.context}{implementation})"


ENGINE = Engine(
    name="transformers",
    budget=unreserved,
    pool=_pool,
    launch=_launch,
    cache_type=paged_cache_type(_CACHES),
    weights=loaded_weights,
    options=frozenset({"version", "pp", "static_cache"}),
)
