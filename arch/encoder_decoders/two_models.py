"""Any encoder with any decoder, each described by a nested config of its own type."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys
from ..attention.layers import build_layers
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Head, Layers, find_head, no_head
from ..body.uncounted import UncountedError
from ..config_view import ConfigView
from ..nested import nested


def decoder_says(view: ConfigView, text: ConfigView) -> bool:
    """The decoder is a whole model of its own type (vision-encoder-decoder)."""
    return nested(view, "decoder")[0].flag("tie_word_embeddings")


def layers_of_both(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The layers of both, each by the architecture of its type."""
    found = (nested(view, "encoder"), nested(view, "decoder"))
    return tuple(layer for inner, one in found for layer in build_layers(one.attention, inner))


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoModels:
    """An encoder and a decoder that are models of their own types, the first one bare and the
    second one with its head, and a matrix between them where their widths differ."""

    classes: Mapping[str, Head | None]

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        find_head(self.classes, view, next(iter(self.classes)))
        total, widths = 0, []
        for key, *endings in (
            ("encoder", "BertModel", "RobertaModel", "ViTModel", "Model"),
            ("decoder", "ForCausalLM", "LMHeadModel"),
        ):
            inner, architecture = nested(view, key)
            body = architecture.body
            if not isinstance(body, Body):
                raise UncountedError(f"its {key} of the type {inner.model_type!r} is not described")
            own = body.head(*endings)
            total += body.trunk(inner, build_layers(architecture.attention, inner))
            total += own(body, inner, inner.flag("tie_word_embeddings"))
            widths.append(inner.integer("hidden_size"))
        joined = nested(view, "decoder")[0].optional("cross_attention_hidden_size") is None
        return total + ((widths[0] + 1) * widths[1] if joined and widths[0] != widths[1] else 0)

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0


def _pair(name: str, body: TwoModels | None) -> Architecture:
    return Architecture(
        types=(name,),
        config=ConfigKeys(models=("encoder", "decoder"), tied=decoder_says),
        attention=replace(LLAMA_ATTENTION, build=layers_of_both),
        body=body,
    )


ARCHITECTURES = (
    _pair("encoder-decoder", TwoModels(classes={"EncoderDecoderModel": no_head})),
    _pair("speech-encoder-decoder", None),
    _pair("vision-encoder-decoder", TwoModels(classes={"VisionEncoderDecoderModel": no_head})),
)
