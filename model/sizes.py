"""What an audit sizes the cache for: context, batch and element type, with the model's defaults."""

from typing import NamedTuple

from .dtypes import CACHE_BITS, Bits, resolve_cache_dtype
from .errors import HeadcountError
from .mixers import Mixer
from .spec import Layer, ModelSpec

DEFAULT_CONTEXT = 8192  # where a model states no maximum of its own
ASSUMED_ENCODER = (  # behind their number
    "encoder tokens are assumed: the config does not say how long an encoding is; --encoder-tokens"
    " gives another number."
)


class AuditRequest(NamedTuple):
    """What to size the cache for. None: the model's own maximum and dtype."""

    context: int | None = None
    batch_size: int = 1
    kv_dtype: str | None = None
    encoder_tokens: int | None = None
    explain: bool = False


class Sizes(NamedTuple):
    """A request with its defaults filled in; `dtype_source` says where kv_dtype came from."""

    context: int
    batch_size: int
    kv_dtype: str
    dtype_source: str
    encoder_tokens: int

    @property
    def bits(self) -> Bits:
        return CACHE_BITS[self.kv_dtype]

    def layer_bytes(self, layer: Layer) -> int:
        return layer.cache_bytes(
            tokens=self.context,
            encoder_tokens=self.encoder_tokens,
            batch_size=self.batch_size,
            bits=self.bits,
            engine="transformers",
        )

    def mixer_bytes(self, mixer: Mixer) -> int:
        kept = mixer.state_bytes(self.context, self.encoder_tokens, self.bits)
        return kept * self.batch_size


def fill_in(spec: ModelSpec, request: AuditRequest) -> Sizes:
    """The request with the model's own values where nothing was asked for.

    A config that names no dtype, as those of 2019 do, is taken to be served at 16 bit.
    """
    if request.kv_dtype is not None and request.kv_dtype != "auto":
        kv_dtype, source = resolve_cache_dtype(request.kv_dtype), "asked for"
    elif spec.dtype is not None:
        kv_dtype, source = spec.dtype, spec.dtype_source
    else:
        kv_dtype, source = "bfloat16", "assumed: the config names no dtype"
    if request.batch_size < 1:
        raise HeadcountError(f"--batch-size {request.batch_size}: at least 1 is needed")
    return Sizes(
        context=request.context or spec.max_position_embeddings or DEFAULT_CONTEXT,
        batch_size=request.batch_size,
        kv_dtype=kv_dtype,
        dtype_source=source,
        encoder_tokens=request.encoder_tokens or spec.encoder_tokens,
    )


def mha_ratio(spec: ModelSpec, sizes: Sizes) -> float:
    """How many times smaller the cache is than with one K/V head per query head."""
    one = spec.cache_bytes(
        tokens=sizes.context, bits=sizes.bits, encoder_tokens=sizes.encoder_tokens
    )
    mha = spec.mha_cache_bytes(
        tokens=sizes.context, encoder_tokens=sizes.encoder_tokens, bits=sizes.bits
    )
    return mha / one if one else 1.0
