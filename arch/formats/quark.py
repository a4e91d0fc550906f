"""Quark (AMD): one scheme for all layers, others by name."""

from collections.abc import Mapping

from headcount.model.errors import short

from ..modules.module import Module
from .exceptions import ModuleList, names_under
from .format import Format
from .known import FP8_MATRIX, MXFP4, fp8_rows, grouped
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
    if kind in ("fp8_e4m3", "fp8_e5m2", "int8"):
        return FP8_MATRIX if scheme == "per_tensor" else fp8_rows()
    if kind in ("int4", "uint4"):
        return grouped(4, group(weight), scale_bits=16, zero_bits=4)
    raise UnknownFormatError(f"Quark has stored it as {short(kind)}, {short(scheme)}")
