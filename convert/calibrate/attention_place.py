"""Where a layer of the class has the attention that the files' tensors describe."""

from collections.abc import Iterable

from torch import nn

from ..attention_map.attention_tensors import AttentionTensors
from ..plan.errors import CannotConvertError
from .layer_hooks import AttentionPlace
from .layered_model import LayeredModel


def attention_place(layered: LayeredModel, tensors: AttentionTensors) -> AttentionPlace:
    """The place of one attention. Raises CannotConvertError where its class computes with other
    tensors than the files have, or keeps its projections apart."""
    index = tensors.where[0]
    start = layered.path_of(index)
    names = {info.name: layered.inside(info.name) for info in tensors.tensors}
    strangers = [path for path in names.values() if not path.startswith(start)]
    holders = {
        part: p.tensor.name for p in tensors.projections for part in p.parts if not p.is_bias
    }
    if strangers:
        raise CannotConvertError(f"{layered.source.folder}: {strangers[0]} is not in layer {index}")
    paths = {name: path.removeprefix(start) for name, path in names.items()}
    modules = {part: paths[name].rpartition(".")[0] for part, name in holders.items()}
    attention = _common(modules.values())
    layer: nn.Module = layered.layers[index]
    if not attention or isinstance(layer.get_submodule(attention), nn.ModuleList):
        raise CannotConvertError(
            f"{layered.source.folder}: layer {index} keeps its projections in no module of their"
            " own, so that it cannot be calibrated: use --method merge without --calibration"
        )
    return AttentionPlace(
        attention=attention, query=modules["q"], key=modules["k"], output=modules["o"], names=paths
    )


def _common(paths: Iterable[str]) -> str:
    """The innermost module that holds all of `paths`, without being one of them."""
    split = [path.split(".")[:-1] for path in paths]
    shared = []
    for words in zip(*split, strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return ".".join(shared)
