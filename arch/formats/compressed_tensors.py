"""compressed-tensors (llm-compressor): groups of modules, each with a scheme of weights."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.model.errors import short

from ..modules.module import Module
from .exceptions import ModuleList, names_under
from .format import Format
from .known import MXFP4, NVFP4, fp8_blocks, fp8_rows, grouped, packed_integers
from .scheme import Choice, UnknownFormatError
from .settings import Settings, group, may_be, size, table, width


def compressed_tensors_scheme(settings: Settings, config: Settings) -> Choice:
    """The first group whose targets name a module, or else its class, says how it is stored.
    AutoRound leaves the head alone without a word."""
    groups = [own for own in table(settings, "config_groups").values() if isinstance(own, Mapping)]
    if not groups:
        raise UnknownFormatError("its compressed-tensors settings have no config_groups")
    kept = ModuleList(names_under(settings, "ignore"))
    head = settings.get("provider") != "auto-round"
    by_name, of_linear, of_tables = [], None, None
    for own in groups:
        form = _format(own, settings)
        targets = names_under(own, "targets")
        by_name.append((ModuleList(t for t in targets if t not in (*_LINEAR, *_TABLES)), form))
        if any(target in _LINEAR for target in targets):
            of_linear = of_linear or form
        if any(target in _TABLES for target in targets):
            of_tables = of_tables or form

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        is_table = module.kind == "embedding"
        if kept.holds(names) if is_table else not may_be(module, names, kept, head=head):
            return None
        named = (form for modules, form in by_name if modules.holds(names))
        return next(named, of_tables if is_table else of_linear)

    return choose


_LINEAR = ("Linear", "LinearBase", "MoEGate")
_TABLES = ("Embedding", "VocabParallelEmbedding")


def _format(own: Settings, settings: Settings) -> Format:
    weights = table(own, "weights")
    layout = str(own.get("format") or settings.get("format") or "")
    if not weights:
        raise UnknownFormatError("a group of its compressed-tensors settings has no weights")
    sparsity = table(settings, "sparsity_config").get("format")
    if "sparse" in layout or "24" in layout or sparsity not in (None, "dense"):
        raise UnknownFormatError(f"compressed-tensors has stored it as {short(layout)}")
    bits, kind = width(weights, "num_bits"), str(weights.get("type") or "int")
    groups = group(weights, otherwise=-1)
    inputs = table(own, "input_activations")
    if kind == "float" and bits == 4:
        if "mxfp4" in layout or groups == 32:
            return MXFP4
        return NVFP4 if inputs else replace(NVFP4, matrix_bytes=4)
    if kind == "float" and bits == 8:
        is_static = bool(inputs) and inputs.get("dynamic") is False
        return replace(_eight_bits(weights), matrix_bytes=2 if is_static else 0)
    if kind != "int":
        raise UnknownFormatError(f"compressed-tensors has stored it as {short(kind)} of {bits} bit")
    zero_point = weights.get("symmetric") is False
    if layout == "pack-quantized" or (bits < 8 and not layout):
        indexed = weights.get("actorder") in ("group", True)
        return packed_integers(bits, groups, zero_point=zero_point, indexed=indexed)
    form = _strategy(weights, replace(grouped(8, groups), name=f"int{bits}"))
    return replace(form, zero_bits=8) if zero_point else form


def _eight_bits(weights: Settings) -> Format:
    block = weights.get("block_structure")
    sides = [size(side) for side in block] if isinstance(block, list) else []
    if len(sides) == 2 and sides[0] and sides[1]:
        return fp8_blocks(sides[0], sides[1], scale_bits=16)
    if weights.get("strategy") == "block":
        return fp8_blocks(128, 128, scale_bits=16)
    if size(weights.get("group_size")) == 32:
        return replace(grouped(8, 32, scale_bits=8), name="mxfp8")
    return _strategy(weights, fp8_rows(16))


def _strategy(weights: Settings, form: Format) -> Format:
    """A scale for the matrix, where the strategy says so."""
    is_whole = weights.get("strategy") in ("tensor", None) and form.group is None
    return replace(form, group=0) if is_whole else form
