"""All re-homes, and which of them holds a config."""

from collections.abc import Mapping

from ..source import Source
from .bigcode import GPT2, OPT
from .falcon import FALCON
from .phi import CODEGEN, GPT_NEOX, GPTJ
from .row import OldConfig, Rehome
from .starcoder2 import GPT_NEOX_SEQUENTIAL

# model_type of the source -> what may hold it.
REHOMES: Mapping[str, tuple[Rehome, ...]] = {
    "codegen": (CODEGEN,),
    "falcon": (FALCON,),
    "gpt2": (GPT2,),
    "gpt_neox": (GPT_NEOX, GPT_NEOX_SEQUENTIAL),
    "gptj": (GPTJ,),
    "opt": (OPT,),
}


def find_rehome(source: Source) -> tuple[Rehome | None, tuple[str, ...]]:
    """The row that holds the source's function exactly; without one, why none does."""
    misfits = []
    for row in REHOMES.get(source.audit.spec.model_type, ()):
        misfit = row.fits(OldConfig(source, row.defaults))
        if misfit is None:
            return row, ()
        misfits.append(misfit)
    return None, tuple(misfits)
