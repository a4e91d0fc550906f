"""GPTQ, AWQ and auto-round: integers with a scale and a zero point for each group of inputs."""

from collections.abc import Mapping

from headcount.model.errors import short
from headcount.model.numbers import whole

from ..modules.module import Module
from .exceptions import ModuleList, entry_of, names_under
from .format import Format
from .known import gptq
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
    """`extra_config` has settings of single modules; 16 bit means that one stays."""
    packing = str(settings.get("packing_format") or settings.get("backend") or "")
    kind = str(settings.get("data_type") or "int")
    if not kind.startswith("int") or not any(w in packing for w in ("gptq", "awq", "auto_round")):
        raise UnknownFormatError(f"auto-round has packed it as {short(packing)} of {short(kind)}")
    indexed = packing.endswith("auto_gptq")
    plain = gptq(width(settings), group(settings), indexed=indexed)
    inner, own = layers_only(settings, plain), table(settings, "extra_config")

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        found = entry_of(own, names)
        if not isinstance(found, Mapping):
            return inner(module, names)
        merged = {**settings, **found}
        if (whole(merged.get("bits")) or 0) >= 16:
            return None
        return gptq(width(merged), group(merged), indexed=indexed)

    return choose
