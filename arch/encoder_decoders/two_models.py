"""Any encoder with any decoder, each described by a nested config of its own type."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys
from ..attention.layers import build_layers
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Head, Layers, find_head, no_head
from ..body.stages import Stages
from ..built_classes import built_class, classes_of_type
from ..config_view import ConfigView
from ..model_classes import model_classes
from ..nested import nested
from ..parameters import other_parameters


def decoder_says(view: ConfigView, text: ConfigView) -> bool:
    """The decoder is a whole model of its own type (vision-encoder-decoder)."""
    inner, architecture = nested(view, "decoder")
    return architecture.config.tied(inner, inner)


def _encoder(view: ConfigView) -> tuple[ConfigView, Architecture]:
    """The encoder, as the base class of its type builds it; it is asked for no cache, whatever its
    own config says."""
    inner, architecture = nested(view, "encoder")
    base = next(iter(classes_of_type(inner.model_type)), None)
    named = {"architectures": [base]} if base else {}
    alone = {"is_decoder": False} if inner.config.get("is_decoder") else {}
    return inner.overridden({**named, **alone}), architecture


def _decoder(view: ConfigView) -> tuple[ConfigView, Architecture]:
    """The decoder, as the causal class of its type builds it: of a BART, its decoder alone."""
    inner, architecture = nested(view, "decoder")
    causal = model_classes(inner.model_type).get("AutoModelForCausalLM")
    return inner.overridden({"architectures": [causal]} if causal else {}), architecture


def _layers(inner: ConfigView, architecture: Architecture) -> Layers:
    named, layers = built_class(inner), build_layers(architecture.attention, inner)
    return layers if named is None else named.layers(layers)


def layers_of_both(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The layers of both, each by the architecture of its type."""
    return (*_layers(*_encoder(view)), *_layers(*_decoder(view)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoModels:
    """An encoder and a decoder that are models of their own types, the first one bare and the
    second one with its head, and a matrix between them where their widths differ."""

    classes: Mapping[str, Head | None]

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        find_head(self.classes, view, next(iter(self.classes)))
        (encoder, of_encoder), (decoder, of_decoder) = _encoder(view), _decoder(view)
        read, written = _width(encoder, of_encoder), decoder.integer("hidden_size")
        joined = decoder.optional("cross_attention_hidden_size") is None and read != written
        return (
            _outside_attention(encoder, of_encoder)
            + _outside_attention(decoder, of_decoder)
            + ((read + 1) * written if joined else 0)
        )

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0


def _width(inner: ConfigView, architecture: Architecture) -> int:
    """Of what the encoder gives."""
    body = architecture.body
    return body.width(inner) if isinstance(body, Stages) else inner.integer("hidden_size")


def _outside_attention(inner: ConfigView, architecture: Architecture) -> int:
    tied = architecture.config.tied(inner, inner)
    layers = _layers(inner, architecture)
    return other_parameters(inner, inner.model_type, layers, tied=tied)


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
