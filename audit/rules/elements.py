"""H6xx: element types and quantisation, by the headers."""

from collections.abc import Iterator

from headcount.model.units import format_bytes

from ..packed import FLOATS
from .facts import Facts
from .rule import Rule, Seen

_PROJECTIONS = frozenset("gqkvo")
# Methods whose files hold codes; others may quantise while loading.
_STORED = frozenset({"gptq", "awq", "fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors"})
_LARGE = 2**30


def mixed_floats(facts: Facts) -> Iterator[Seen]:
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
        yield Seen(two, f"is stored as {second}, {one} as {first}")


def no_codes(facts: Facts) -> Iterator[Seen]:
    """The config says quantised, and all weights are plain floats."""
    found = facts.quantisation
    if found is None or found.method not in _STORED or facts.inventory.codes or not facts.whole:
        return
    yield Seen(found.key, f"quant_method {found.method!r}, but no packed weight is stored")


def codes_without_config(facts: Facts) -> Iterator[Seen]:
    """Packed weights are stored, and the config does not say how to read them."""
    codes = facts.inventory.codes
    if codes and facts.quantisation is None and not facts.beside:
        yield Seen(codes[0], f"{len(codes):,} packed tensor(s), and no quantization_config")


def codes_without_scales(facts: Facts) -> Iterator[Seen]:
    """Packed weights have no scales with them."""
    bare = facts.inventory.bare
    if bare and facts.whole:
        tensor = facts.checkpoint.tensors[bare[0]]
        yield Seen(
            bare[0],
            f"{tensor.dtype} without a scale ({len(bare):,} such tensor(s))",
            severity="warning" if tensor.dtype.startswith("F") else None,
        )


def float32_weights(facts: Facts) -> Iterator[Seen]:
    """Most of a large model is stored in 32 bit."""
    sizes = facts.census.bytes_by_dtype
    wide = sizes.get("F32", 0) + sizes.get("F64", 0)
    if wide > _LARGE and 2 * wide > sum(sizes.values()):
        yield Seen("weights", f"{format_bytes(wide)} are stored in 32 bit or more")


def stored_twice(facts: Facts) -> Iterator[Seen]:
    """A weight is stored both as codes and as floats."""
    for name in facts.inventory.codes:
        base = name.rpartition(".")[0]
        plain = facts.checkpoint.tensors.get(f"{base}.weight")
        if plain is not None and plain.name != name and plain.dtype in FLOATS:
            yield Seen(plain.name, f"is stored beside its codes {name}")


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        code="H601",
        name="mixed-float-types",
        severity="warning",
        hint="loaders cast all to one type; a merge or a partial save may have gone wrong",
        check=mixed_floats,
    ),
    Rule(
        code="H602",
        name="quantised-without-codes",
        severity="warning",
        hint="remove quantization_config if the weights were dequantised",
        check=no_codes,
    ),
    Rule(
        code="H603",
        name="codes-without-config",
        severity="error",
        hint="transformers would not find the weights: add the quantization_config they were"
        " made with",
        check=codes_without_config,
    ),
    Rule(
        code="H604",
        name="codes-without-scales",
        severity="error",
        hint="the codes mean nothing without their scales: the file is incomplete",
        check=codes_without_scales,
    ),
    Rule(
        code="H605",
        name="float32-weights",
        severity="note",
        hint="twice the download, and twice the memory where dtype is not given",
        check=float32_weights,
    ),
    Rule(
        code="H608",
        name="stored-twice",
        severity="warning",
        hint="one of the two is not loaded; remove it",
        check=stored_twice,
    ),
)
