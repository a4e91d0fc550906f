"""`quant_method` fp8, and the formats of routed experts alone that stand beside it."""

from collections.abc import Mapping

from headcount.model.errors import InvalidConfigError, short

from ..modules.module import IN_LAYERS, Module
from .exceptions import ModuleList, entry_of, names_under
from .format import Format
from .known import FP8_MATRIX, MXFP4, fp8_blocks, fp8_rows
from .modelopt import ALGORITHMS, algorithm
from .scheme import Choice, UnknownFormatError
from .settings import SKIPPED, Settings, all_linear, size, table


def fp8_scheme(settings: Settings, config: Settings) -> Choice:
    """Blocks as the file says, else a scale for each matrix. `expert_dtype` (DeepSeek-V4) and
    `moe_quant_algo` (Model Optimizer) are formats of the routed experts; with the latter, lists
    speak of what has that format, and the layers that predict keep the former."""
    form = _form(settings)
    plain = all_linear(settings, form, head=False)
    before = _expert_dtype(config)
    after = settings.get("moe_quant_algo")
    experts = before if after is None else algorithm(after, settings)
    mixed = settings.get("quant_algo")
    if mixed not in (None, "MIXED_PRECISION", *ALGORITHMS):
        raise UnknownFormatError(f"its quant_algo is {short(mixed)}")
    own = table(settings, "quantized_layers")

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        found = entry_of(own, names)
        if isinstance(found, Mapping):
            return algorithm(found.get("quant_algo"), found)
        if module.kind == "experts" and experts is not None:
            return experts if module.name.startswith("layers.") else before or experts
        if mixed is not None and own:
            return form if module.kind in IN_LAYERS else None
        return plain(module, names)

    return choose


def _form(settings: Settings) -> Format:
    block = settings.get("weight_block_size")
    if block is None:
        is_by_row = settings.get("quant_method") == "fbgemm_fp8"
        return fp8_rows() if is_by_row else FP8_MATRIX
    sizes = [size(side) for side in block] if isinstance(block, list) else []
    if len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
        raise InvalidConfigError(
            f"config.json: quantization_config.weight_block_size is {short(block)}; two numbers are"
            " expected"
        )
    return fp8_blocks(sizes[0], sizes[1])


def _expert_dtype(config: Settings) -> Format | None:
    given = config.get("expert_dtype")
    if given in (None, "fp8", "float8_e4m3fn"):
        return None
    if given not in ("fp4", "mxfp4"):
        raise UnknownFormatError(f"its expert_dtype is {short(given)}")
    return MXFP4


def mxfp4_scheme(settings: Settings, config: Settings) -> Choice:
    """Routed experts only."""
    kept = ModuleList(names_under(settings, *SKIPPED))
    return lambda module, names: (
        MXFP4 if module.kind == "experts" and not kept.holds(names) else None
    )
