"""H7xx: what the values of the weights show. The scan itself is in convert/scan/."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headcount.model.units import format_indices

from .alike import such
from .rule import Sighting, rule


class TensorScan(NamedTuple):
    """The values of one tensor: how many are NaN or infinite, and whether all are 0."""

    name: str
    elements: int
    nans: int
    infinities: int
    zero: bool


class LayerScan(NamedTuple):
    """K/V heads of one layer: `repeated` is the number of distinct K/V heads if equal ones stand
    side by side in equal runs, else None. Similarities are mean cosines over all pairs of heads,
    None for a single head. `lost_by_mean` maps each smaller count of K/V heads to the share of the
    squared weights of K and V, half each, that is lost when each group becomes its mean."""

    layer: int
    num_key_value_heads: int
    repeated: int | None
    key_similarity: float | None
    value_similarity: float | None
    lost_by_mean: Mapping[int, float | None]


class TiedScan(NamedTuple):
    """A stored tensor of `elements` that the config ties to the tensor `to`, and whether it holds
    the same values."""

    name: str
    to: str
    elements: int
    same: bool


class ScanFacts(NamedTuple):
    """Everything that a scan saw."""

    tensors: tuple[TensorScan, ...]
    layers: tuple[LayerScan, ...]
    tied: tuple[TiedScan, ...] = ()


@rule("H701", "nan", "error", "every output would be NaN: restore the tensor from the original")
def nans(facts: ScanFacts) -> Iterator[Sighting]:
    """A tensor holds NaN."""
    yield from _values([(t, t.nans) for t in facts.tensors if t.nans], "NaN")


@rule(
    "H702",
    "infinity",
    "error",
    "a cast to float16 overflowed? convert from the original again, to bfloat16",
)
def infinities(facts: ScanFacts) -> Iterator[Sighting]:
    """A tensor holds infinite values."""
    yield from _values([(t, t.infinities) for t in facts.tensors if t.infinities], "infinite")


def _values(seen: list[tuple[TensorScan, int]], what: str) -> Iterator[Sighting]:
    """All of them in one: a fault of a cast or of training is in many tensors at once."""
    if seen:
        (first, count), names = seen[0], [tensor.name for tensor, _ in seen]
        yield Sighting(
            first.name, f"{count:,} of {first.elements:,} values are {what}{such(names)}"
        )


@rule(
    "H703",
    "all-zero",
    "warning",
    "a placeholder that was never filled, or a layer that does nothing",
)
def zeros(facts: ScanFacts) -> Iterator[Sighting]:
    """A matrix holds nothing but zeros."""
    seen = [t for t in facts.tensors if t.zero and t.name.endswith("weight")]
    if seen:
        names = [tensor.name for tensor in seen]
        yield Sighting(names[0], f"all {seen[0].elements:,} values are 0{such(names)}")


@rule(
    "H704",
    "repeated-kv-heads",
    "note",
    "`headcount convert --kv-heads N` to the distinct ones loses nothing",
)
def repeated_heads(facts: ScanFacts) -> Iterator[Sighting]:
    """Equal K/V heads stand side by side: fewer would compute the same."""
    counts = [layer.repeated for layer in facts.layers]
    fewer = [count for count in counts if count is not None]
    if fewer and len(fewer) == len(counts):
        indices = format_indices([layer.layer for layer in facts.layers])
        yield Sighting(
            f"layers {indices}",
            f"{facts.layers[0].num_key_value_heads} K/V heads, {max(fewer)} distinct",
        )


@rule(
    "H705",
    "tied-weights-differ",
    "warning",
    "set tie_word_embeddings to false if the stored one is meant; else remove it",
)
def tied_differ(facts: ScanFacts) -> Iterator[Sighting]:
    """The config ties two stored matrices that hold other values."""
    for one in facts.tied:
        if not one.same:
            yield Sighting(
                one.name,
                f"differs from {one.to}, to which the config ties it: transformers loads it as it"
                f" is, untied, with {one.elements:,} parameters more than are counted here",
            )


RULES = (nans, infinities, zeros, repeated_heads, tied_differ)
