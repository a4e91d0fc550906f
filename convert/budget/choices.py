"""The sizes that layers can get: K/V heads, or ranks of a latent."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from headcount.model.latent_rank import full_rank, kept_elements
from headcount.model.mixers import Attention

from ..homes.finding import find_home
from ..latent.ranks import cache_bits
from ..latent.refusals import check_latent
from ..latent.size import BytesPerToken, CacheBudget
from ..plan.errors import CannotConvertError, HeadCountError
from ..plan.refusals.merging import check_mergeable
from ..plan.refusals.types import STATES, refuse
from ..plan.request import ConversionRequest
from ..plan.source import ConversionSource
from .search_result import Kind

# Of a layer's full rank: where what it costs is measured. Errors fall steeply where ranks are few.
_SHARES = (
    *(Fraction(n, 64) for n in (1, 2, 4, 6, 8, 12)),
    *(Fraction(n, 8) for n in (2, 3, 4, 6)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerChoices:
    """The sizes of one layer at which it is measured, the smallest first and last the one that
    changes nothing; `elements` of a token are kept for each of a size."""

    sizes: tuple[int, ...]
    elements: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What all layers can get, by layer. A budget of `wanted` elements, of the `kept` ones of the
    source, each of `bits`; `equal` are the sizes of layers that keep equal shares within it."""

    kind: Kind
    layers: Mapping[int, LayerChoices]
    wanted: int
    kept: int
    bits: int
    equal: Mapping[int, int]

    def elements(self, sizes: Mapping[int, int]) -> int:
        """What layers of these sizes keep of a token."""
        return sum(size * self.layers[index].elements for index, size in sizes.items())

    def nbytes(self, elements: int) -> int:
        """What so many elements take."""
        return -(-elements * self.bits // 8)


def choices_of(
    source: ConversionSource, request: ConversionRequest, budget: CacheBudget
) -> Choices:
    """Raises CannotConvertError for a source whose layers cannot differ, and HeadCountError for a
    budget that no sizes fit, or that saves nothing."""
    kind: Kind = "num_key_value_heads" if request.latent is None else "latent_rank"
    refuse(source, STATES)
    check_mergeable(source)
    _check_alone(source)
    mixers = {index: mixer for (index, _), mixer in source.attention_map.mixers.items()}
    if kind == "latent_rank":
        check_latent(source)
        layers = {index: _ranks(mixer) for index, mixer in mixers.items()}
    else:
        layers = {index: _counts(mixer) for index, mixer in mixers.items()}
    kept = sum(map(kept_elements, mixers.values()))
    bits = cache_bits(source, request.cast)
    found = Choices(
        kind=kind,
        layers=layers,
        wanted=_wanted(budget, kept, bits),
        kept=kept,
        bits=bits,
        equal={},
    )
    _check_budget(source, found)
    equal = _equal(found, mixers)
    measured = {
        index: LayerChoices(sizes=tuple(sorted({*one.sizes, equal[index]})), elements=one.elements)
        for index, one in layers.items()
    }
    if kind == "num_key_value_heads":
        _check_home(source, request, found)
    return Choices(
        kind=kind, layers=measured, wanted=found.wanted, kept=kept, bits=bits, equal=equal
    )


def _check_alone(source: ConversionSource) -> None:
    found = source.attention_map
    reasons = {
        "cross-attention": any(cross for _, cross in found.mixers),
        "layers that read another's keys and values": bool(found.readers),
        "layers that its config does not count": bool(found.more),
    }
    for what, is_there in reasons.items():
        if is_there:
            raise CannotConvertError(
                f"{source.label}: has {what}, so that no layer can be measured alone: leave out"
                " --budget, and say with --kv-heads or --latent what each layer gets"
            )


def _ranks(mixer: Attention) -> LayerChoices:
    full = full_rank(mixer)
    measured = {int(share * full) for share in _SHARES}
    return LayerChoices(sizes=tuple(sorted({1, full, *measured} - {0})), elements=1)


def _counts(mixer: Attention) -> LayerChoices:
    """Numbers that need no padding."""
    now = mixer.num_key_value_heads
    counts = tuple(n for n in range(1, now + 1) if now % n == 0)
    return LayerChoices(sizes=counts, elements=mixer.head_dim + mixer.v_head_dim)


def _wanted(budget: CacheBudget, kept: int, bits: int) -> int:
    if isinstance(budget, BytesPerToken):
        return 8 * budget.nbytes // bits
    return int(budget * kept)


def _check_budget(source: ConversionSource, found: Choices) -> None:
    least = found.elements({index: one.sizes[0] for index, one in found.layers.items()})
    least_bytes, all_bytes = found.nbytes(least), found.nbytes(found.kept)
    asked = f"{source.label}: --budget leaves {found.nbytes(found.wanted):,} bytes a token"
    what = "K/V head" if found.kind == "num_key_value_heads" else "element of a latent"
    if found.wanted < least:
        raise HeadCountError(
            f"{asked}, and {least_bytes:,} are the least: one {what} in each of"
            f" {len(found.layers)} layers"
        )
    if found.wanted >= found.kept:
        raise HeadCountError(
            f"{asked}, and it keeps {all_bytes:,} now: nothing is saved; ask for less"
        )


def _equal(found: Choices, mixers: Mapping[int, Attention]) -> dict[int, int]:
    """Equal shares of what each layer keeps, as large as fit."""
    if found.kind == "latent_rank":
        share = Fraction(found.wanted, found.kept)
        return {
            index: max(1, min(int(share * kept_elements(mixer)), full_rank(mixer)))
            for index, mixer in mixers.items()
        }
    counts = sorted({size for one in found.layers.values() for size in one.sizes}, reverse=True)
    fitting = ({i: _at_most(one, count) for i, one in found.layers.items()} for count in counts)
    return next(sizes for sizes in fitting if found.elements(sizes) <= found.wanted)


def _at_most(one: LayerChoices, count: int) -> int:
    return max(size for size in one.sizes if size <= count)


def _check_home(source: ConversionSource, request: ConversionRequest, found: Choices) -> None:
    """Raises CannotConvertError where no class holds layers of different numbers."""
    smallest = {index: one.sizes[0] for index, one in found.layers.items()}
    several = [index for index, one in found.layers.items() if len(one.sizes) > 1]
    first = {several[0]: smallest[several[0]]} if several else smallest
    find_home(source, first, request.home)
