"""Types whose code is published with their weights, beside those in `..bodies`."""

from dataclasses import replace

from ...body.body import Body
from ...body.feed_forward import Mlp
from .. import remote_bodies
from ..bodies import GPT2, PHI
from .experts import LAGUNA

ROWS: dict[str, Body] = {
    "laguna_text": LAGUNA,
    "openelm": Body(mlp=Mlp(width=remote_bodies.openelm_width)),
    "phi-msft": replace(PHI, mlp=GPT2.mlp),
}
