"""MLX: whatever can be quantised, embeddings among it, in groups of inputs."""

from collections.abc import Mapping

from headcount.model.errors import short

from ..modules.module import Module
from .exceptions import entry_of
from .format import Format
from .known import MXFP4, MXFP8, affine
from .scheme import Choice, UnknownFormatError
from .settings import Settings, group, width

# Its own key; newer files repeat the settings under quantization_config.
MLX_KEY = "quantization"
_WRITTEN = frozenset({"bits", "group_size", "mode", "quant_method", "lm_head"})
_NVFP4 = Format(name="nvfp4", bits=4, packed=32, group=16, scale_bits=8)


def mlx_scheme(settings: Settings, config: Settings) -> Choice:
    """Linear layers, embeddings and routers whose inputs divide into groups; mlx-vlm leaves towers
    out. An entry under a module's name has its own settings, or is false."""
    plain = _format(settings)

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        own = entry_of(settings, names)
        if own is False or module.kind in ("tower", "other"):
            return None
        form = _format({**settings, **own}) if isinstance(own, Mapping) else plain
        return form if module.columns % (form.group or 1) == 0 else None

    return choose


def not_of_mlx(settings: Settings) -> list[str]:
    """Keys that are neither MLX's own nor the name of a module: those have dots, or settings."""
    return [
        key
        for key, value in settings.items()
        if key not in _WRITTEN and "." not in key and not isinstance(value, Mapping)
    ]


def _format(settings: Settings) -> Format:
    mode = str(settings.get("mode", "affine"))
    fixed = {"mxfp4": MXFP4, "mxfp8": MXFP8, "nvfp4": _NVFP4}
    if mode in fixed:
        return fixed[mode]
    groups = group(settings, otherwise=64)
    if mode != "affine" or groups is None:
        raise UnknownFormatError(f"MLX has stored it in the mode {short(mode)}")
    return affine(width(settings), groups)
