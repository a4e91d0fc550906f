"""Models that `headcount convert` wrote with a modelling file of its own: `headcount_bart` is a
BART whose decoder has `num_key_value_heads` K/V heads, in self- and in cross-attention."""

import filecmp
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.numbers import digits
from headcount.model.spec import Layer

from .architecture import Architecture
from .attention.layers import build_layers, check_grouping
from .attention.shape import AttentionShape
from .config_view import ConfigView

_MODELS = Path(__file__).parents[1] / "convert" / "models"


def grouped(architecture: Architecture, model_type: str) -> Architecture:
    """The architecture of `headcount_<model_type>`, from that of the type itself. Where that nests
    its language model, the nested one is to be grouped."""
    keys = architecture.config
    own = replace(architecture, config=replace(keys, read_as=keys.read_as or model_type))
    return own if keys.text is not None else with_key_value_heads(own)


def with_key_value_heads(
    architecture: Architecture, whole: ConfigView | None = None
) -> Architecture:
    """That of a class of ours, which says its K/V heads in its config: in `whole`, which nests the
    one that the architecture reads, where there is one."""
    shape = architecture.attention

    def build(_: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        return _with_key_value_heads(build_layers(shape, view), whole or view)

    # Whatever the class's own files hold, ours store a fused projection as [q | k | v].
    names = replace(architecture.names, fused="parts", parts_if=None)
    return replace(architecture, tensors=names, attention=replace(shape, build=build))


def is_own_code(config: Mapping[str, Any], module: Path, *beside: Path) -> bool:
    """Whether all code that `config` names is our modelling file, and `module` is it, byte for
    byte, and so are those `beside` it that it reads."""
    named = config.get("auto_map")
    values = named.values() if isinstance(named, dict) else ()
    if not values or not all(
        isinstance(v, str) and v.startswith(module.stem + ".") for v in values
    ):
        return False
    try:
        files = (module, *beside)
        return all(filecmp.cmp(file, _MODELS / file.name, shallow=False) for file in files)
    except OSError:
        return False


def _with_key_value_heads(layers: tuple[Layer, ...], view: ConfigView) -> tuple[Layer, ...]:
    """Only what keeps a cache has fewer heads. The count stands under its own name, whatever that
    name means to the class (Whisper's is the encoder's heads)."""
    plain = ConfigView(view.config, where=view.where, origins=view.origins)
    everywhere = plain.integer("num_key_value_heads")
    each = plain.integers("num_key_value_heads_per_layer")
    decoders = [layer for layer in layers if layer.mixers and _cached(layer)]
    if each is not None and len(each) != len(decoders):
        raise InvalidConfigError(
            f"{view.where}: num_key_value_heads_per_layer lists {len(each)} layers of"
            f" {len(decoders)}"
        )
    if each is not None and min(each) < 1:
        raise InvalidConfigError(
            f"{view.where}: num_key_value_heads_per_layer holds {min(each)}; it must be from 1"
        )
    counts = each or [everywhere] * len(decoders)
    kept = _kept_heads(plain, {layer.index for layer in decoders})
    by_layer = {id(layer): count for layer, count in zip(decoders, counts, strict=True)}
    return tuple(
        _regrouped(layer, by_layer[id(layer)], kept.get(layer.index), view)
        if id(layer) in by_layer
        else layer
        for layer in layers
    )


def _kept_heads(view: ConfigView, layers: set[int]) -> dict[int, int]:
    """How many query heads of each layer are stored, where some were pruned."""
    given = view.get("kept_attention_heads")
    if given is None:
        return {}
    found = {}
    for index, heads in given.items() if isinstance(given, dict) else ():
        whole = isinstance(heads, list) and heads and all(type(head) is int for head in heads)
        number = digits(index)
        if not whole or number not in layers or len(set(heads)) < len(heads):
            raise InvalidConfigError(
                f"{view.where}: kept_attention_heads.{index} does not list query heads of a layer"
            )
        found[number] = len(heads)
    if not found:
        raise InvalidConfigError(f"{view.where}: kept_attention_heads names no layers")
    return found


def _cached(layer: Layer) -> bool:
    return any(isinstance(mixer, Attention) and mixer.keeps_key_value for mixer in layer.mixers)


def _regrouped(layer: Layer, count: int, kept: int | None, view: ConfigView) -> Layer:
    return replace(
        layer,
        mixers=tuple(
            _with_heads(mixer, count, kept, view) if isinstance(mixer, Attention) else mixer
            for mixer in layer.mixers
        ),
    )


def _with_heads(mixer: Attention, count: int, kept: int | None, view: ConfigView) -> Attention:
    heads = mixer.num_attention_heads if kept is None else kept
    check_grouping(view, heads, count)
    if heads > mixer.num_attention_heads:
        raise InvalidConfigError(
            f"{view.where}: kept_attention_heads lists {heads} heads of {mixer.num_attention_heads}"
        )
    return replace(mixer.with_key_value_heads(count), num_attention_heads=heads)
