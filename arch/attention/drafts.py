"""Models that draft for another one, published under the type of that model: what they hold and
keep themselves. Their classes are those that the registries of vLLM 0.25 and SGLang name."""

import re
from dataclasses import replace

from headcount.model.errors import UnsupportedModelError
from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..config_view import ConfigView
from ..modules.names import Prediction

_DRAFTING = re.compile(r"Draft|E(agle|AGLE)|eagle|Medusa|MTP|Speculat")
_HEADS_ALONE = re.compile(r"medusa|mlp_?speculator", re.IGNORECASE)
_EAGLE3 = re.compile(r"eagle3", re.IGNORECASE)
_COUNT = "num_nextn_predict_layers"


def drafts(name: str) -> bool:
    """Whether the class `name` drafts: it shares the embeddings of another model, and reads its
    hidden states by matrices of its own."""
    return bool(_DRAFTING.search(name))


def refuse_heads(name: str, model_type: str, where: str) -> None:
    """Raises UnsupportedModelError for MLPs that predict from a hidden state (Medusa)."""
    if _HEADS_ALONE.search(f"{model_type} {name}"):
        raise UnsupportedModelError(
            f"{where}: {name or model_type} drafts with MLPs on the hidden state of another model:"
            " it attends to nothing and keeps no cache, so audit the model that it drafts for"
        )


def draft_layers(
    name: str, view: ConfigView, layers: tuple[Layer, ...], prediction: Prediction | None
) -> tuple[Layer, ...]:
    """The layers that a class which drafts builds, of those of the model whose config it has: the
    ones that predict further tokens, behind the model's own and as its last; or the config's own,
    of which the first of EAGLE-3 reads an embedding and a hidden state, one behind the other."""
    if not drafts(name):
        return layers
    if "MTP" in name:
        count = view.optional(prediction.key if prediction else _COUNT) or 1
        last = next((la for la in reversed(layers) if _attends(la)), layers[-1])
        return tuple(replace(last, index=len(layers) + i) for i in range(count))
    return (reading_two(layers[0]), *layers[1:]) if _EAGLE3.search(name) else layers


def reading_two(layer: Layer) -> Layer:
    """`layer` with q, k and v of twice the width (EAGLE-3, arXiv 2503.01840)."""
    return replace(layer, mixers=tuple(_of_two(mixer) for mixer in layer.mixers))


def _of_two(mixer: Mixer) -> Mixer:
    if type(mixer) is not Attention:
        return mixer
    return replace(mixer, query_size=2 * mixer.hidden_size, key_value_size=2 * mixer.hidden_size)


def _attends(layer: Layer) -> bool:
    return any(mixer.kind != "recurrent" for mixer in layer.mixers)
