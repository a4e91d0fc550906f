"""Libraries that quantise linear layers as they load them, and can save the outcome: bitsandbytes,
HQQ, optimum-quanto, torchao, EETQ, BitNet."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.model.errors import short

from ..our_types import base_type
from ..registry import architecture_of
from .exceptions import ModuleList
from .format import Format
from .known import FLOAT32, LLM_INT8, NF4, NF4_NESTED, TERNARY, grouped
from .scheme import Choice, UnknownFormatError
from .settings import Settings, all_linear, group, layers_only, size, table, width


def bitsandbytes_scheme(settings: Settings, config: Settings) -> Choice:
    """The head stays, unless a list of what stays is given and leaves it out."""
    if settings.get("load_in_4bit") or settings.get("_load_in_4bit"):
        form = NF4_NESTED if settings.get("bnb_4bit_use_double_quant") else NF4
    elif settings.get("load_in_8bit") or settings.get("_load_in_8bit"):
        form = LLM_INT8
    else:
        raise UnknownFormatError("its bitsandbytes settings load neither 4 nor 8 bit")
    plain = all_linear(settings, form, head=bool(settings.get("llm_int8_skip_modules")))
    return _with_kept(plain, config, FLOAT32)


def hqq_scheme(settings: Settings, config: Settings) -> Choice:
    """Scales and zero points of 16 bit, and 69 bytes that describe a matrix."""
    weights = table(table(settings, "quant_config"), "weight_quant_params")
    if not weights:
        raise UnknownFormatError("its HQQ settings give no weight_quant_params for all layers")
    bits = width(weights, "nbits")
    form = grouped(bits, group(weights, otherwise=64), scale_bits=16, zero_bits=16)
    form = replace(form, flat=form.group is not None, matrix_bytes=69)
    if bits == 3:  # ten codes to an int32
        form = replace(form, packed=32, whole=True)
    return all_linear(settings, form, head=False)


def quanto_scheme(settings: Settings, config: Settings) -> Choice:
    """8 bit by row, fewer in groups of 128 with a shift; two scales of what goes in and out."""
    kinds = {
        **dict.fromkeys(("int8", "float8"), grouped(8, None)),
        **{f"int{bits}": grouped(bits, 128, zero_bits=16) for bits in (2, 4)},
    }
    kind = str(settings.get("weights", "int8"))
    if kind not in kinds:
        raise UnknownFormatError(f"optimum-quanto has stored it as {short(kind)}")
    plain = all_linear(settings, replace(kinds[kind], matrix_bytes=4), head=False)
    return _with_kept(plain, config, None)


# Kinds of torchao, without the weights of 4 bit whose inputs are cut to 8.
_TORCHAO_INT4 = ("int4weightonly",)
_TORCHAO_INT8 = ("int8weightonly", "int8dynamicactivationint8weight")
_TORCHAO_FLOAT8 = ("float8weightonly", "float8dynamicactivationfloat8weight")


def torchao_scheme(settings: Settings, config: Settings) -> Choice:
    """`quant_type` is a name with its arguments beside it, or an object that a config class
    wrote."""
    kind, arguments = settings.get("quant_type"), table(settings, "quant_type_kwargs")
    inner = table(table(settings, "quant_type"), "default")
    if inner:
        kind, arguments = inner.get("_type"), table(inner, "_data")
    name = str(kind).lower().replace("_", "").removesuffix("config")
    head = bool(settings.get("include_input_output_embeddings"))
    return all_linear(settings, _torchao_format(name, arguments), head=head)


def _torchao_format(name: str, arguments: Mapping[str, object]) -> Format:
    if name in _TORCHAO_INT4:
        return grouped(4, size(arguments.get("group_size")) or 128, zero_bits=16)
    if name in _TORCHAO_INT8:
        return grouped(8, size(arguments.get("group_size")), scale_bits=32, zero_bits=8)
    if name in _TORCHAO_FLOAT8:
        return grouped(8, None, scale_bits=32)
    raise UnknownFormatError(f"torchao has stored it as {short(name)}")


def eetq_scheme(settings: Settings, config: Settings) -> Choice:
    return _with_kept(all_linear(settings, grouped(8, None), head=False), config, None)


def _with_kept(plain: Choice, config: Settings, form: Format | None) -> Choice:
    """`plain` but for the matrices that the model's class keeps wide, which have `form`."""
    found = architecture_of(base_type(str(config.get("model_type"))))
    kept = ModuleList(found.stored.kept_wide if found else ())
    return lambda module, names: form if kept.holds(names) else plain(module, names)


def bitnet_scheme(settings: Settings, config: Settings) -> Choice:
    return layers_only(settings, TERNARY)
