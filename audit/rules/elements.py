"""H6xx: element types and quantisation, by the headers."""

from collections.abc import Iterator, Mapping

from headcount.model.units import format_bytes
from headcount.sources.safetensors import TensorInfo

from ..packed import FLOATS
from .alike import such
from .rule import Sighting, rule
from .weight_facts import WeightFacts

_PROJECTIONS = frozenset("gqkvo")
# Methods whose files hold codes; others may quantise while loading.
_STORED = frozenset({"gptq", "awq", "fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors"})
_LARGE = 2**30


@rule(
    "H601",
    "mixed-float-types",
    "warning",
    "loaders cast all to one type; a merge or a partial save may have gone wrong",
)
def mixed_floats(facts: WeightFacts) -> Iterator[Sighting]:
    """Attention projections are stored in more than one float type."""
    found: dict[str, str] = {}
    for _, _, placed in facts.mixers():
        for item in placed:
            stem = (item.place.part or "?").partition("_")[0]
            is_matrix = set(stem) <= _PROJECTIONS and len(item.tensor.shape) > 1
            if is_matrix and item.tensor.dtype in FLOATS:
                found.setdefault(item.tensor.dtype, item.tensor.name)
    if len(found) > 1 and not facts.inventory.codes:
        (first, one), (second, two), *_ = found.items()
        yield Sighting(two, f"is stored as {second}, {one} as {first}")


@rule(
    "H602",
    "quantised-without-codes",
    "warning",
    "remove quantization_config if the weights were dequantised",
)
def no_codes(facts: WeightFacts) -> Iterator[Sighting]:
    """The config says quantised, and all weights are plain floats."""
    found = facts.quantisation
    if found is None or found.method not in _STORED or facts.inventory.codes or not facts.whole:
        return
    yield Sighting(found.key, f"quant_method {found.method!r}, but no packed weight is stored")


@rule(
    "H603",
    "codes-without-config",
    "error",
    "transformers would not find the weights: add the quantization_config they were made with",
)
def codes_without_config(facts: WeightFacts) -> Iterator[Sighting]:
    """Packed weights are stored, and the config does not say how to read them."""
    codes = facts.inventory.codes
    if codes and facts.quantisation is None and not facts.beside:
        yield Sighting(codes[0], f"{len(codes):,} packed tensor(s), and no quantization_config")


@rule(
    "H604",
    "codes-without-scales",
    "error",
    "the codes mean nothing without their scales: the file is incomplete",
)
def codes_without_scales(facts: WeightFacts) -> Iterator[Sighting]:
    """Packed weights have no scales with them."""
    bare = facts.inventory.bare
    if bare and facts.whole:
        tensor = facts.checkpoint.tensors[bare[0]]
        yield Sighting(
            bare[0],
            f"{tensor.dtype} without a scale ({len(bare):,} such tensor(s))",
            severity="warning" if tensor.dtype.startswith("F") else None,
        )


@rule(
    "H609",
    "fp8-scales-not-read",
    "warning",
    "transformers would leave the scales of its class at random: quantise again, or correct"
    " quantization_config",
)
def other_scales(facts: WeightFacts) -> Iterator[Sighting]:
    """The scales of fp8 weights have another name or shape than the class of the method reads."""
    found = facts.quantisation
    if found is None or found.method != "fp8":
        return
    tensors = facts.checkpoint.tensors
    codes = [n for n in facts.inventory.codes if tensors[n].dtype.startswith("F8")]
    # transformers' class has weight_scale_inv, and reads `.scale` and `.qscale_weight` as it.
    named = [f"{n}_scale" for n in codes if f"{n}_scale" in tensors and not _is_read(n, tensors)]
    if named and found.blocks is None:
        yield Sighting(
            named[0],
            f"{len(named):,} scale(s) of fp8 weights are called so, not weight_scale_inv",
            severity="note",
            hint="one scale a tensor, as vLLM and SGLang read it; transformers does not",
        )
    elif named:
        yield Sighting(
            named[0], f"{len(named):,} scale(s) of blocks are called so, not weight_scale_inv"
        )
    if found.blocks is not None:
        yield from _other_blocks(codes, found.blocks, tensors)


def _is_read(name: str, tensors: Mapping[str, TensorInfo]) -> bool:
    base = name.removesuffix(".weight")
    return any(other in tensors for other in (f"{name}_scale_inv", f"{base}.scale"))


def _other_blocks(
    codes: list[str], blocks: tuple[int, int], tensors: Mapping[str, TensorInfo]
) -> Iterator[Sighting]:
    wrong: list[tuple[str, list[int], list[int]]] = []
    for name in codes:
        scale, shape = tensors.get(f"{name}_scale_inv"), tensors[name].shape
        if scale is None or len(shape) < 2:
            continue
        sides = [-(-n // block) for n, block in zip(shape[-2:], blocks, strict=True)]
        wanted = [*shape[:-2], *sides]
        if [*scale.shape] != wanted:
            wrong.append((scale.name, [*scale.shape], wanted))
    if wrong:
        where, held, wanted = wrong[0]
        yield Sighting(
            where,
            f"shape {held[:8]}; blocks of {blocks[0]} x {blocks[1]} make it {wanted}"
            f" ({len(wrong):,} such scale(s))",
        )


@rule(
    "H605",
    "float32-weights",
    "note",
    "twice the download, and twice the memory where dtype is not given",
)
def float32_weights(facts: WeightFacts) -> Iterator[Sighting]:
    """Most of a large model is stored in 32 bit."""
    sizes = facts.census.bytes_by_dtype
    wide = sizes.get("F32", 0) + sizes.get("F64", 0)
    if wide > _LARGE and 2 * wide > sum(sizes.values()):
        yield Sighting("weights", f"{format_bytes(wide)} are stored in 32 bit or more")


@rule("H608", "stored-twice", "warning", "one of the two is not loaded; remove it")
def stored_twice(facts: WeightFacts) -> Iterator[Sighting]:
    """A weight is stored both as codes and as floats."""
    twice: dict[str, str] = {}
    for name in facts.inventory.codes:
        base = name.rpartition(".")[0]
        plain = facts.checkpoint.tensors.get(f"{base}.weight")
        if plain is not None and plain.name != name and plain.dtype in FLOATS:
            twice.setdefault(plain.name, name)
    if twice:
        first, codes = next(iter(twice.items()))
        yield Sighting(first, f"is stored beside its codes {codes}{such([*twice])}")


RULES = (
    mixed_floats,
    no_codes,
    codes_without_config,
    codes_without_scales,
    other_scales,
    float32_weights,
    stored_twice,
)
