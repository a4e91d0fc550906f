"""What a plan is asked for, and the same with every default filled in from the model."""

from dataclasses import dataclass

from headcount.model.dtypes import BITS, resolve_dtype
from headcount.model.errors import HeadcountError
from headcount.model.sizes import DEFAULT_CONTEXT
from headcount.model.spec import ModelSpec

from .devices import Device

UTILISATION = 0.90  # what serving engines take of a device's visible memory unless told otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """None stands for the model's own: its maximum context, its encoder's length, its dtypes.

    `context` is in tokens of one sequence, `utilisation` the fraction of a device's usable memory
    that may be planned with, `tp` the number of devices that share the model (tensor parallel).
    Raises HeadcountError for impossible values.
    """

    context: int | None = None
    batch_size: int = 1
    encoder_tokens: int | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    tp: int = 1
    device: Device | None = None
    utilisation: float = UTILISATION

    def __post_init__(self) -> None:
        for name in ("context", "batch_size", "encoder_tokens", "tp"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise HeadcountError(f"{name} is {value}; it must be 1 or more")
        if not 0 < self.utilisation <= 1:
            raise HeadcountError(
                f"utilisation is {self.utilisation}; above 0 and at most 1 is meant"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A request with the model's defaults. `dtype` is None: weights stay as they are stored."""

    context: int
    batch_size: int
    encoder_tokens: int
    dtype: str | None
    compute_dtype: str
    kv_dtype: str

    @property
    def kv_bits(self) -> int:
        return BITS[self.kv_dtype]

    @property
    def compute_bits(self) -> int:
        return BITS[self.compute_dtype]


def resolve_workload(request: PlanRequest, spec: ModelSpec) -> Workload:
    """The request with what the model says filled in. Raises HeadcountError for unknown dtypes."""
    dtype = resolve_dtype(request.dtype) if request.dtype else None
    compute = _compute_dtype(dtype, spec.dtype)
    encoder = spec.encoder_tokens if request.encoder_tokens is None else request.encoder_tokens
    return Workload(
        context=request.context or spec.max_position_embeddings or DEFAULT_CONTEXT,
        batch_size=request.batch_size,
        encoder_tokens=encoder,
        dtype=dtype,
        compute_dtype=compute,
        kv_dtype=resolve_dtype(request.kv_dtype) if request.kv_dtype else compute,
    )


def _compute_dtype(*wanted: str | None) -> str:
    """The first that can be computed in: weights of 8 bits or fewer are used at 16."""
    return next((name for name in wanted if name is not None and BITS[name] >= 16), "bfloat16")
