"""One conversion of a sweep, and what came of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.convert.plan.plan import ConversionPlan
from headcount.convert.plan.request import parse_key_value_heads
from headcount.model.errors import HeadcountError

MOST_TRIALS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """`plan` makes `num_key_value_heads` K/V heads with what `method` names."""

    num_key_value_heads: int
    method: str
    plan: ConversionPlan

    @property
    def calibrated(self) -> bool:
        """Whether text was read, and not the weights alone."""
        return self.plan.request.calibration is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A trial on the text: mean loss in nats a token, against the original's, KL(original ||
    result), the share of tokens that both rank first, and cache bytes of one sequence of
    `cache_tokens` tokens. `trial` is None for the original itself."""

    trial: Trial | None
    num_key_value_heads: int
    loss: float
    delta_loss: float
    kl_divergence: float
    top1_agreement: float
    cache_bytes: int
    cache_tokens: int

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "num_key_value_heads": self.num_key_value_heads,
            "method": None if self.trial is None else self.trial.method,
            "calibrated": self.trial is not None and self.trial.calibrated,
            "loss": self.loss,
            "delta_loss": self.delta_loss,
            "kl_divergence": self.kl_divergence,
            "top1_agreement": self.top1_agreement,
            "cache_bytes": self.cache_bytes,
            "cache_tokens": self.cache_tokens,
        }


def parse_counts(text: str) -> tuple[int, ...]:
    """`8,4,2,1`, from the most to the fewest, each once. Raises HeadcountError."""
    counts = [parse_key_value_heads(item.strip()) for item in text.split(",")]
    whole = {count for count in counts if isinstance(count, int) and count > 0}
    if len(whole) != len(set(map(str, counts))):
        raise HeadcountError(f"{text!r}: a sweep takes numbers of K/V heads, such as 8,4,2,1")
    return tuple(sorted(whole, reverse=True))


def parse_methods(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """`mean,merge`, each once, as given. Raises HeadcountError for one that is not `known`."""
    names = tuple(dict.fromkeys(item.strip() for item in text.split(",")))
    for name in names:
        if name not in known:
            raise HeadcountError(f"method {name!r} is not one of {', '.join(known)}")
    return names


def smallest_within(measured: Iterable[Measured], budget: float) -> Measured | None:
    """The one with the smallest cache whose loss rises by at most `budget`; of several with that
    cache the one with the least loss. None: no trial is within it."""
    within = (one for one in measured if one.trial is not None and one.delta_loss <= budget)
    return min(within, key=lambda one: (one.cache_bytes, one.delta_loss), default=None)
