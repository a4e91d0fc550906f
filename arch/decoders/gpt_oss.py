"""Decoders of experts with attention sinks: gpt-oss and Flint."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.layer_kinds import FULL, SLIDING, full_every
from ..attention.more_parameters import sink_per_head
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.shared import ONE_SHARED, SAME_WIDTH
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..modules.names import ROUTER
from ..tensors.names import LLAMA_NAMES


def flint_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Full: the first two, every fourth, and the last."""
    full = {0, 1, count - 1}
    return tuple(FULL if i in full or i % 4 == 1 else SLIDING for i in range(count))


def flint_sparse_layers(view: ConfigView, count: int) -> frozenset[int]:
    """All but those of `mlp_only_layers`, which are the first two where it is absent."""
    dense = view.integers("mlp_only_layers")
    step = view.optional("decoder_sparse_step") or 1
    sparse = frozenset(i for i in range(count) if (i + 1) % step == 0)
    return sparse - frozenset((0, 1) if dense is None else dense)


FLINT_NAMES = LLAMA_NAMES.also({"self_attn.softmax_offset": "other"})

ARCHITECTURES = (
    Architecture(
        types=("gpt_oss",),
        attention=replace(LLAMA_ATTENTION, kinds=full_every(2), other=sink_per_head),
        body=Body(experts=replace(SAME_WIDTH, bias=True), named=True),
        feed_forward=ROUTER,
        rotary="halves",
        gguf=(Gguf(architecture="gpt-oss", windows=Windows(period=2)),),
    ),
    Architecture(
        types=("flint",),
        attention=replace(LLAMA_ATTENTION, kinds=flint_kinds, norm="head", other=sink_per_head),
        body=Body(experts=replace(ONE_SHARED, layers=flint_sparse_layers)),
        tensors=FLINT_NAMES,
    ),
)
