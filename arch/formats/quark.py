"""Quark (AMD): one scheme for all layers, others by name."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.model.errors import short

from ..modules.module import Module
from .exceptions import ModuleList, names_under
from .format import Format
from .known import FP8_MATRIX, MXFP4, MXFP6, fp8_rows, grouped
from .patterns import glob
from .scheme import Choice, UnknownFormatError
from .settings import Settings, group, may_be, table


def quark_scheme(settings: Settings, config: Settings) -> Choice:
    """`layer_quant_config` maps globs to schemes of their own."""
    kept = ModuleList(names_under(settings, "exclude"))
    plain = _format(table(settings, "global_quant_config"))
    rules = [
        (glob(text), _format(own))
        for text, own in table(settings, "layer_quant_config").items()
        if isinstance(own, Mapping)
    ]

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        if not may_be(module, names, kept, head=True):
            return None
        named = (form for pattern, form in rules if any(pattern.matches(name) for name in names))
        return next(named, plain)

    return choose


def _format(settings: Settings) -> Format:
    weight = table(settings, "weight")
    kind, scheme = str(weight.get("dtype")), str(weight.get("qscheme"))
    if kind in ("fp4", "mxfp4"):
        return MXFP4
    if kind in ("fp6_e2m3", "fp6_e3m2"):
        return MXFP6
    if kind in ("fp8_e4m3", "fp8_e5m2"):
        return FP8_MATRIX if scheme == "per_tensor" else fp8_rows(16)
    if kind == "int8":  # with a zero point, whether it is used or not
        whole = replace(FP8_MATRIX, name="int8", zero_bits=8)
        return whole if scheme == "per_tensor" else grouped(8, None, zero_bits=8)
    if kind in ("int4", "uint4"):
        return grouped(4, group(weight), scale_bits=16, zero_bits=4)
    raise UnknownFormatError(f"Quark has stored it as {short(kind)}, {short(scheme)}")
