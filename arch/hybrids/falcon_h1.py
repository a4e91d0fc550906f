"""Falcon Mamba, and Falcon-H1: attention beside Mamba-2 in every layer."""

from dataclasses import replace

from headcount.model.mixers import Mixer

from ..architecture import Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.shared import DECODER_MLP_BIAS, NO_MLP
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import HYBRID, LAYER_TYPES, LINEAR, MixerMaker, hybrid, plain_attention
from ..states.kinds import all_of
from ..states.mamba import BAMBA_KEYS, mamba1, mamba2
from ..tensors.names import HYBRID_NAMES


def side_by_side(one: MixerMaker, other: MixerMaker) -> MixerMaker:
    """Both mixers in one layer (Falcon-H1)."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        return (*one(shape, view, kind), *other(shape, view, kind))

    return make


ARCHITECTURES = (
    Architecture(
        types=("falcon_mamba",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=AttentionShape(
            build=hybrid({LINEAR: mamba1}, written=False), kinds=all_of(LINEAR)
        ),
        body=Body(norms=1, mlp=NO_MLP),
        tensors=HYBRID_NAMES,
    ),
    Architecture(
        types=("falcon_h1",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(
            LLAMA_ATTENTION,
            build=hybrid(
                {
                    HYBRID: side_by_side(
                        plain_attention,
                        mamba2(
                            {**BAMBA_KEYS, "out_bias": "projectors_bias"},
                            width="mamba_d_ssm",
                            gated_norm="mamba_rms_norm",
                        ),
                    )
                },
                written=False,
            ),
            kinds=all_of(HYBRID),
        ),
        body=DECODER_MLP_BIAS,
        tensors=HYBRID_NAMES,
        rotary="halves",
        gguf=(
            Gguf(
                architecture="falcon-h1",
                recurrence=Recurrence(form="Mamba-2", layers="all", beside=True),
            ),
        ),
    ),
)
