"""Which matrices of an adapter are added to which weights."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headcount.model.errors import InvalidWeightsError, short
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.safetensors import FileHeader, TensorInfo

from ..plan.errors import CannotConvertError
from ..stream.reader import DTYPES
from .lora_config import LoraConfig

_MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraPair:
    """`weight` + scaling * `up` @ `down`: `down` is [rank, in], `up` [out, rank] and the weight
    [out, in], or [in, out] where it is `transposed` (Conv1D of GPT-2)."""

    weight: TensorInfo
    down: TensorInfo
    up: TensorInfo
    scaling: float
    transposed: bool


def lora_pairs(
    config: LoraConfig, adapter: FileHeader, checkpoint: Checkpoint, *, is_conv1d: bool
) -> Mapping[str, LoraPair]:
    """By the names of the weights. `is_conv1d`: square ones are stored [in, out], too. Raises
    CannotConvertError for tensors that are not plain LoRA, and InvalidWeightsError."""
    found: dict[str, LoraPair] = {}
    for module, matrices in _modules(adapter).items():
        weight = _weight(adapter.path, checkpoint, module)
        if weight.name in found:
            raise InvalidWeightsError(f"{adapter.path}: two modules are {short(weight.name)}")
        pair = LoraPair(
            weight=weight,
            down=matrices["A"],
            up=matrices["B"],
            scaling=config.scaling_of(module),
            transposed=_is_transposed(adapter.path, weight, matrices, is_conv1d),
        )
        _check(adapter.path, config.rank_of(module), pair)
        found[weight.name] = pair
    if not found:
        raise InvalidWeightsError(f"{adapter.path}: holds no matrices of an adapter")
    return found


def _modules(adapter: FileHeader) -> Mapping[str, Mapping[str, TensorInfo]]:
    """The two matrices of each module, by its path."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in adapter.tensors:
        match = _MATRIX.fullmatch(tensor.name)
        if match is None:
            raise CannotConvertError(
                f"{adapter.path}: {short(tensor.name)} is no lora_A or lora_B of a linear layer,"
                " which --merge-adapter does not know: merge it with peft (merge_and_unload)"
            )
        found.setdefault(match[1], {})[match[2]] = tensor
    for module, matrices in found.items():
        if len(matrices) < 2:
            raise InvalidWeightsError(
                f"{adapter.path}: of {short(module)} there is lora_{min(matrices)} alone"
            )
    return found


def _weight(path: Path, checkpoint: Checkpoint, module: str) -> TensorInfo:
    """The module's weight, which files may name with fewer or more words in front."""
    for name in _spellings(module):
        if name in checkpoint.tensors:
            return checkpoint.tensors[name]
    ends = [name for name in checkpoint.tensors if name.endswith(f".{module}.weight")]
    if len(ends) != 1:
        raise CannotConvertError(
            f"{path}: is for {short(module)}, of which the model's files hold"
            f" {len(ends) or 'no'} weights: is it another model's? transformers may also hold it"
            " otherwise than its files do: merge it with peft (merge_and_unload)"
        )
    return checkpoint.tensors[ends[0]]


def _spellings(module: str) -> Iterator[str]:
    yield f"{module}.weight"
    _, dot, rest = module.partition(".")
    if dot:
        yield f"{rest}.weight"


def _is_transposed(
    path: Path, weight: TensorInfo, matrices: Mapping[str, TensorInfo], is_conv1d: bool
) -> bool:
    down, up = matrices["A"].shape, matrices["B"].shape
    if len(down) == len(up) == 2:
        fits = {False: (up[0], down[1]) == weight.shape, True: (down[1], up[0]) == weight.shape}
        if fits[is_conv1d] or fits[not is_conv1d]:
            return is_conv1d if fits[is_conv1d] else not is_conv1d
    raise InvalidWeightsError(
        f"{path}: matrices of {list(up)} and {list(down)} do not make"
        f" {short(weight.name)}, which is {list(weight.shape)}: it is another model's adapter"
    )


def _check(path: Path, rank: int, pair: LoraPair) -> None:
    """The rank of the config, and types that can be added."""
    if not pair.down.shape[0] == pair.up.shape[1] == rank:
        raise InvalidWeightsError(
            f"{path}: {short(pair.down.name)} is of rank {pair.down.shape[0]}, and its config says"
            f" {rank}"
        )
    for tensor in (pair.weight, pair.down, pair.up):
        if tensor.dtype not in DTYPES:
            raise CannotConvertError(f"{path}: {short(tensor.name)} is {tensor.dtype}: no float")
