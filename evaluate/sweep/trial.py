"""One conversion of a sweep, and what came of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headcount.convert.latent.size import LatentSize, check_latent_size, parse_latent_size
from headcount.convert.plan.plan import ConversionPlan
from headcount.convert.plan.request import parse_key_value_heads
from headcount.model.errors import HeadcountError

MOST_TRIALS = 64


class SweptLatent(NamedTuple):
    """Latents of one size in one home, as `text` asks for them (`latent:1/4`, `mla:128`)."""

    text: str
    home: Literal["latent", "mla"]
    size: LatentSize


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """`plan` makes `num_key_value_heads` K/V heads with what `method` names; None: all stay, and
    latents are kept in their place, as `latent` says."""

    num_key_value_heads: int | None
    method: str
    plan: ConversionPlan
    latent: SweptLatent | None = None

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
    num_key_value_heads: int | None
    loss: float
    delta_loss: float
    kl_divergence: float
    top1_agreement: float
    cache_bytes: int
    cache_tokens: int

    @property
    def cost(self) -> float:
        """What a budget of loss is held against: a damaged model may have the lower loss on a text
        that does not suit it, and never the smaller divergence."""
        return max(self.delta_loss, self.kl_divergence)

    @property
    def latent(self) -> SweptLatent | None:
        """What is kept in place of K/V heads."""
        return None if self.trial is None else self.trial.latent

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "num_key_value_heads": self.num_key_value_heads,
            "latent": None if self.latent is None else self.latent.text,
            "method": None if self.trial is None else self.trial.method,
            "calibrated": self.trial is not None and self.trial.calibrated,
            "loss": self.loss,
            "delta_loss": self.delta_loss,
            "kl_divergence": self.kl_divergence,
            "top1_agreement": self.top1_agreement,
            "cache_bytes": self.cache_bytes,
            "cache_tokens": self.cache_tokens,
        }


def parse_sizes(text: str) -> tuple[tuple[int, ...], tuple[SweptLatent, ...]]:
    """`8,4,latent:1/2,mla:1/4`: numbers of K/V heads, and latents, each once. Raises
    HeadcountError."""
    items = [item.strip() for item in text.split(",")]
    latents = [_latent(item) for item in dict.fromkeys(items) if ":" in item]
    heads = [item for item in items if ":" not in item]
    for item in heads:
        if "/" in item:
            raise HeadcountError(
                f"{item!r}: a share is the size of a latent: write latent:{item} or mla:{item} in"
                " --sweep, or a number of K/V heads"
            )
    return parse_counts(",".join(heads)) if heads else (), tuple(latents)


def _latent(text: str) -> SweptLatent:
    home, _, size = text.partition(":")
    if home not in ("latent", "mla"):
        raise HeadcountError(
            f"{text!r}: a sweep takes numbers of K/V heads, and latents as latent:1/4 or mla:1/4"
        )
    found = parse_latent_size(size)
    check_latent_size(found)
    return SweptLatent(text, "latent" if home == "latent" else "mla", found)


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


def frontier(measured: Sequence[Measured]) -> list[Measured]:
    """Those that no other beats: none has a cache as small and diverges as little, and less of
    one."""
    return [one for one in measured if not any(_beats(other, one) for other in measured)]


def _beats(other: Measured, one: Measured) -> bool:
    theirs, own = ((m.cache_bytes, m.kl_divergence) for m in (other, one))
    return theirs != own and theirs[0] <= own[0] and theirs[1] <= own[1]


def smallest_within(measured: Iterable[Measured], budget: float) -> Measured | None:
    """The one with the smallest cache whose `cost` is at most `budget`; of several with that cache
    the one that diverges least. None: no trial is within it."""
    within = (one for one in measured if one.trial is not None and one.cost <= budget)
    return min(within, key=lambda one: (one.cache_bytes, one.kl_divergence), default=None)
