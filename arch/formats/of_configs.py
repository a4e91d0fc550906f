"""The scheme that a config.json states: one reader for each `quant_method`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headcount.model.errors import short

from .compressed_tensors import compressed_tensors_scheme
from .eight_bit_floats import fp8_scheme, mxfp4_scheme
from .integer_groups import auto_round_scheme, awq_scheme, gptq_scheme
from .mlc import mlc_name, mlc_scheme
from .mlx import MLX_KEY, mlx_scheme, not_of_mlx
from .modelopt import modelopt_scheme
from .on_loading import (
    bitnet_scheme,
    bitsandbytes_scheme,
    eetq_scheme,
    hqq_scheme,
    quanto_scheme,
    torchao_scheme,
)
from .quark import quark_scheme
from .scheme import Choice, Scheme, UnknownFormatError
from .settings import Settings, size, table

MLX_BY_KEYS = "no quant_method, taken for MLX's"
# quant_method -> (the settings, the whole config) -> which format each matrix has.
_READERS: Mapping[str, Callable[[Settings, Settings], Choice]] = {
    **{"gptq": gptq_scheme, "awq": awq_scheme},
    **dict.fromkeys(("auto-round", "auto_round", "intel/auto-round"), auto_round_scheme),
    "bitsandbytes": bitsandbytes_scheme,
    "compressed-tensors": compressed_tensors_scheme,
    **dict.fromkeys(("fp8", "fbgemm_fp8"), fp8_scheme),
    "mxfp4": mxfp4_scheme,
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_mixed"), modelopt_scheme),
    **{
        "mlc": mlc_scheme,
        "mlx": mlx_scheme,
        MLX_BY_KEYS: mlx_scheme,
        "hqq": hqq_scheme,
        "quanto": quanto_scheme,
        "torchao": torchao_scheme,
    },
    **{"eetq": eetq_scheme, "bitnet": bitnet_scheme, "quark": quark_scheme},
}

# Those of libraries that save a model which they, or transformers, have loaded: the classes of both
# leave out the layers that predict further tokens (`sanitize` in mlx_lm/models/*.py drops them).
_AS_BUILT = frozenset(
    {"mlx", MLX_BY_KEYS, "mlc", "bitsandbytes", "hqq", "quanto", "torchao", "eetq", "bitnet"}
)

# compressed-tensors and MLX have names of their own for it.
_KEYS = ("quantization_config", "compression_config", MLX_KEY)


def quantization_config(config: Settings) -> Settings | None:
    """The settings, which multimodal configs keep at the top or in text_config."""
    found = _stated(config)
    return found.settings if found else None


class _Stated(NamedTuple):
    """Settings, whether they are those of the language model alone (Kimi-K2.5), and whether they
    stand under the key that only MLX writes."""

    settings: Settings
    of_text: bool
    as_mlx: bool = False


def _stated(config: Settings) -> _Stated | None:
    mlc = mlc_name(config)
    if mlc is not None:
        return _Stated({"quant_method": "mlc", "name": mlc}, of_text=False)
    for holder in (config, config.get("text_config")):
        for key in _KEYS:
            if isinstance(holder, Mapping) and isinstance(holder.get(key), Mapping):
                found: Settings = holder[key]
                if found:
                    as_mlx = isinstance(holder.get(MLX_KEY), Mapping)
                    return _Stated(found, holder is not config, as_mlx)
    return None


def scheme_of(config: Settings) -> Scheme | None:
    """How the weights that `config` describes are stored; None where it quantises nothing.

    Raises UnknownFormatError where it does so in a way that is not understood, InvalidConfigError
    for settings of an impossible kind."""
    stated = _stated(config)
    if stated is None:
        return None
    settings, method = stated.settings, _method(stated)
    reader = _READERS.get(method)
    if reader is None:
        raise UnknownFormatError(f"its quantization_config is of the kind {short(method)}")
    choose = reader(settings, config)
    choose = _without_towers(choose) if stated.of_text else choose
    return Scheme(name=method, choose=choose, as_built=method in _AS_BUILT)


def _without_towers(choose: Choice) -> Choice:
    return lambda module, names: None if module.kind == "tower" else choose(module, names)


def _method(stated: _Stated) -> str:
    """The kind, which Model Optimizer and MLX leave out.

    Raises UnknownFormatError for a width and a group that need not be MLX's."""
    settings = stated.settings
    given = settings.get("quant_method")
    if given is not None:
        return str(given).lower()
    if "quant_algo" in settings or table(settings, "producer").get("name") == "modelopt":
        return "modelopt"
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return "bitsandbytes"
    if "config_groups" in settings:
        return "compressed-tensors"
    if size(settings.get("bits")) and size(settings.get("group_size")):
        return _by_keys(stated)
    return "unnamed"


def _by_keys(stated: _Stated) -> str:
    others = not_of_mlx(stated.settings)
    if others:
        raise UnknownFormatError(
            "its quantization_config names no quant_method, and gives beside bits and group_size"
            f" what MLX does not write ({', '.join(others[:4])[:100]})"
        )
    return "mlx" if stated.as_mlx else MLX_BY_KEYS
