"""What the numbers of an output are rounded to: a narrower type, and a norm that is folded into a
matrix. The merging of heads is not meant: equal heads give themselves."""

from collections.abc import Mapping
from typing import NamedTuple

from headcount.model.dtypes import CONFIG_NAME

from ..gguf.gguf_file import GgufFile
from .plan import ConversionPlan
from .steps import Step

# stored type -> those whose every number it has
_HOLDS = {"F64": {"F64", "F32", "F16", "BF16"}, "F32": {"F32", "F16", "BF16"}}


class Rounding(NamedTuple):
    """The types, as configs name them: `cast` that of --dtype where it has not all numbers of the
    source, `folded` that of matrices which took up a norm."""

    cast: str | None = None
    folded: str | None = None

    @property
    def type(self) -> str | None:
        return self.cast or self.folded


NO_ROUNDING = Rounding()


def rounding_of(plan: ConversionPlan) -> Rounding:
    """What `plan` rounds; neither, where every number is kept."""
    steps = [step for file in plan.files for step in file.steps]
    cast = next((step.dtype for step in steps if _narrows(step)), None)
    if plan.gguf is not None:
        cast = _narrower(plan.gguf, {step.name: step.dtype for step in steps})
    folded = next((step.dtype for step in steps if getattr(step.action, "folded", "")), None)
    return Rounding(
        cast=None if cast is None else CONFIG_NAME.get(cast, cast),
        folded=None if folded is None else CONFIG_NAME[folded],
    )


def _narrower(file: GgufFile, dtypes: Mapping[str, str]) -> str | None:
    """The type of a tensor that has not all numbers of what it is made of, if there is one."""
    return next(
        (
            tensor.type
            for tensor in file.tensors
            for name in tensor.steps
            if dtypes[name] not in _HOLDS.get(tensor.type, {tensor.type})
        ),
        None,
    )


def _narrows(step: Step) -> bool:
    held = _HOLDS.get(step.dtype, {step.dtype})
    return any(source.dtype not in held for source in step.sources)
