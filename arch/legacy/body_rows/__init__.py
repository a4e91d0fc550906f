"""Bodies of the types that are not among the common ones in `..bodies`: tables and no code."""

from functools import lru_cache

from ...body.body import Body
from ...body.towers import TwoTowers
from ...encoder_decoders.two_models import TwoModels
from ..bodies import BODIES


def find_body(model_type: str) -> Body | TwoTowers | TwoModels | None:
    """The body of `model_type`, or None where no row describes it. The rows of this room are
    imported only for a type that is not a common one."""
    return BODIES.get(model_type) or all_bodies().get(model_type)


@lru_cache
def all_bodies() -> dict[str, Body | TwoTowers | TwoModels]:
    """The common rows and those of this room."""
    from . import decoders, encoder_decoders, encoders, experts, remote, states

    return {
        **BODIES,
        **decoders.ROWS,
        **experts.ROWS,
        **states.ROWS,
        **encoders.ROWS,
        **encoder_decoders.ROWS,
        **remote.ROWS,
    }
