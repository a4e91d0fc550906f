"""GPTQ, AWQ and auto-round: integers with a scale and a zero point for each group of inputs."""

from collections.abc import Mapping
from dataclasses import replace

from headcount.model.errors import short
from headcount.model.numbers import whole

from ..modules.module import Module
from .exceptions import ModuleList, entry_of, names_under
from .format import Format
from .known import MXFP4, MXFP8, NVFP4, fp8_rows, gptq
from .patterns import Pattern, expression
from .scheme import Choice, UnknownFormatError
from .settings import Settings, group, layers_only, table, width


def gptq_scheme(settings: Settings, config: Settings) -> Choice:
    """`dynamic` maps `+:` or `-:` and an expression to settings of some modules, or to none;
    `modules_in_block_to_quantize` lists the only ones, and the head joins with `lm_head`."""
    plain = gptq(width(settings), group(settings))
    inner = layers_only(settings, plain, "modules_to_not_convert")
    rules = [_rule(text, own, settings) for text, own in table(settings, "dynamic").items()]
    only = _only(settings)

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        if module.kind == "head":
            return plain if settings.get("lm_head") is True else None
        for pattern, form in rules:
            if any(pattern.matches(name) for name in names):
                return form
        return inner(module, names) if only is None or only.holds(names) else None

    return choose


def _rule(text: str, own: object, settings: Settings) -> tuple[Pattern, Format | None]:
    pattern = expression(text.removeprefix("+:").removeprefix("-:"))
    if text.startswith("-:"):
        return pattern, None
    all_of_it = {**settings, **(own if isinstance(own, Mapping) else {})}
    return pattern, gptq(width(all_of_it), group(all_of_it))


def _only(settings: Settings) -> ModuleList | None:
    key = "modules_in_block_to_quantize"
    given = settings.get(key)
    if not isinstance(given, list):
        return None
    flat = [name for each in given for name in (each if isinstance(each, list) else [each])]
    return ModuleList(names_under({key: flat}, key))


def awq_scheme(settings: Settings, config: Settings) -> Choice:
    bits = width(settings, "bits" if "bits" in settings else "w_bit", 4)
    groups = group(settings, "group_size" if "group_size" in settings else "q_group_size")
    return layers_only(settings, gptq(bits, groups, indexed=False), "modules_to_not_convert")


def auto_round_scheme(settings: Settings, config: Settings) -> Choice:
    """`extra_config` has settings of single modules; 16 bit means that one stays. Its own packings
    have no index of groups; what it packs for GPTQ itself is called gptq."""
    packing = str(settings.get("packing_format") or settings.get("backend") or "")
    if not any(word in packing for word in ("gptq", "awq", "auto_round")):
        raise UnknownFormatError(f"auto-round has packed it as {short(packing)}")
    plain = _rounded(settings)
    inner, own = layers_only(settings, plain), table(settings, "extra_config")

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        found = entry_of(own, names)
        if not isinstance(found, Mapping):
            return inner(module, names)
        merged = {**settings, **found}
        if (whole(merged.get("bits")) or 0) >= 16:
            return None
        return _rounded(merged)

    return choose


def _rounded(settings: Settings) -> Format:
    kind, bits = str(settings.get("data_type") or "int"), width(settings)
    if kind.startswith("int"):
        return gptq(bits, group(settings), indexed=False)
    if kind == "fp" and bits == 8 and group(settings) is None:
        is_static = settings.get("activation_scheme") == "static"
        return replace(fp8_rows(16), matrix_bytes=2 if is_static else 0)
    found = {("mx_fp", 4): MXFP4, ("mx_fp", 8): MXFP8, ("nv_fp", 4): NVFP4}.get((kind, bits))
    if found is None:
        raise UnknownFormatError(f"auto-round has rounded it to {bits} bit of {short(kind)}")
    return found
