"""Mamba and Mamba-2: nothing attends."""

from ..architecture import Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.shared import NO_MLP
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid
from ..states.kinds import all_of
from ..states.mamba import mamba1, mamba2
from ..tensors.names import HYBRID_NAMES

MAMBA = Architecture(
    types=("mamba",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(build=hybrid({LINEAR: mamba1}, written=False), kinds=all_of(LINEAR)),
    body=Body(norms=1, mlp=NO_MLP),
    tensors=HYBRID_NAMES,
    gguf=(Gguf(architecture="mamba", recurrence=Recurrence(form="Mamba", layers="all")),),
)

ARCHITECTURES = (
    MAMBA,
    MAMBA.relative(
        "mamba2",
        attention={
            "build": hybrid(
                {
                    LINEAR: mamba2(
                        {
                            "expand": "expand",
                            "n": "state_size",
                            "groups": "n_groups",
                            "kernel": "conv_kernel",
                            "heads": "num_heads",
                            "head_dim": "head_dim",
                            "conv_bias": "use_conv_bias",
                            "in_bias": "use_bias",
                            "out_bias": "use_bias",
                        }
                    )
                },
                written=False,
            )
        },
        gguf=(Gguf(architecture="mamba2", recurrence=Recurrence(form="Mamba-2", layers="all")),),
    ),
)
