"""TensorRT Model Optimizer: one algorithm for all linear layers, or a table of them."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.model.errors import short

from ..modules.module import LINEAR, Module
from .exceptions import ModuleList, entry_of, names_under
from .format import Format
from .known import FP8, INT8_ROWS, MXFP4, MXFP8, NVFP4, fp8_blocks, fp8_rows, grouped
from .scheme import Choice, UnknownFormatError
from .settings import Settings, may_be, size, table

# Weights of AWQ: a float32 for each group.
_INT4 = replace(grouped(4, 128, scale_bits=32), name="int4")
# A 16-bit factor for each input, and a float32 for all of them.
_SMOOTHED = replace(INT8_ROWS, column_bytes=2, matrix_bytes=4)
ALGORITHMS: Mapping[str, Format] = {
    **{"FP8": FP8, "FP8_PB_WO": fp8_blocks(128, 128), "FP8_PC_PT": fp8_rows()},
    **{"FP8_PER_CHANNEL_PER_TOKEN": fp8_rows(), "FP8_BLOCK": fp8_blocks(128, 128)},
    **dict.fromkeys(("NVFP4", "NVFP4_AWQ", "NVFP4_SVD"), NVFP4),
    "W4A8_NVFP4_FP8": replace(NVFP4, group=32),
    "W4A16_NVFP4": replace(NVFP4, matrix_bytes=4),
    **{"MXFP8": MXFP8, "MXFP4": MXFP4, "W4A8_MXFP4_FP8": MXFP4},
    **dict.fromkeys(("W4A16_AWQ", "INT4_AWQ"), _INT4),
    "W4A8_AWQ": replace(_INT4, matrix_bytes=8),
    **dict.fromkeys(("INT8_SQ", "W8A8_SQ_PER_CHANNEL"), _SMOOTHED),
    **dict.fromkeys(("INT8_WO", "W8A16"), INT8_ROWS),
}
_GROUPED = ("AWQ", "NVFP4")


def algorithm(name: object, settings: Settings) -> Format:
    """The format of an algorithm's name. Raises UnknownFormatError."""
    found = ALGORITHMS.get(name.upper()) if isinstance(name, str) else None
    if found is None:
        raise UnknownFormatError(f"Model Optimizer has stored it as {short(name)}")
    given = size(settings.get("group_size"))
    if given is not None and found.group and any(word in str(name) for word in _GROUPED):
        return replace(found, group=given)
    return found


def modelopt_scheme(settings: Settings, config: Settings) -> Choice:
    """`quantized_layers` says what each module has, or one `quant_algo` holds for all but those
    that `ignore`, or `exclude_modules`, names. Routers and the head stay where nothing lists
    them."""
    kept = ModuleList(names_under(settings, "ignore", "exclude_modules"))
    own = table(settings, "quantized_layers")
    name = settings.get("quant_algo")
    if name == "MIXED_PRECISION" or own:
        if not own:
            raise UnknownFormatError("its quant_algo is MIXED_PRECISION without quantized_layers")
        return lambda module, names: _of_table(module, names, own)
    form = algorithm(name, settings)

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        if not may_be(module, names, kept, head=False):
            return None
        return _unfused(form) if "AWQ" in str(name) and module.part in _NO_NORM_BEFORE else form

    return choose


# AWQ's factors for the inputs of the others are part of the norm that stands in front of them.
_NO_NORM_BEFORE = ("o", "down")


def _unfused(form: Format) -> Format:
    return replace(form, column_bytes=2)


def _of_table(module: Module, names: tuple[str, ...], own: Settings) -> Format | None:
    found = entry_of(own, names) if module.kind in LINEAR else None
    return algorithm(found.get("quant_algo"), found) if isinstance(found, Mapping) else None
