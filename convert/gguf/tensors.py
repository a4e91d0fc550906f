"""The tensors of the file, from the steps of a conversion: renamed, and laid out as llama.cpp
reads them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headcount.arch.architecture import Rotary
from headcount.arch.gguf.loaders import loaded_tensors
from headcount.arch.gguf.written import Written
from headcount.arch.tensors.blocks import Blocks
from headcount.audit.census import is_buffer
from headcount.model.mixers import LatentAttention
from headcount.sources.safetensors import TensorInfo

from ..attention_map.mapping import AttentionMap
from ..plan.errors import CannotConvertError
from ..plan.request import ElementType
from ..plan.steps import Step
from .gguf_file import GgufTensor, HeadOrder
from .latent_halves import LATENT_NEEDS, half_of, halves
from .names import names_of, without_layer, without_number
from .types import type_of

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
_FUSED, _TURNED = "attn_qkv", ("attn_q", "attn_k")
_FLOATS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What is known of the model whose steps are laid out. `tied`: its head is its embedding.
    `rotated`: of the elements of a head, so many turn with the position. `latent`: the attention of
    its layers, where that keeps a latent."""

    written: Written
    attention_map: AttentionMap
    layers: int
    tied: bool
    rotary: Rotary | None
    rotated: int
    latent: LatentAttention | None
    dtype: ElementType | None
    label: str

    @property
    def in_pairs(self) -> int:
        """The elements of a q or k head that are put in pairs; 0: they stay where they are."""
        both = (self.rotary, self.written.rotary)
        return self.rotated if both == ("halves", "pairs") else 0


class Dropped(NamedTuple):
    """A tensor of the conversion that is not in the file."""

    name: str
    reason: str


def laid_out(
    steps: Iterable[Step], model: Model
) -> tuple[tuple[GgufTensor, ...], tuple[Dropped, ...]]:
    """The tensors of the file in the order of `steps`, and what is left out. Raises
    CannotConvertError for one that llama.cpp has no place for, and for one that it misses."""
    architecture = model.written.architecture
    name_in_file = names_of(architecture, model.layers)
    loaded = loaded_tensors(architecture)
    known = loaded.needs | loaded.takes
    found: dict[str, dict[int, Step]] = {}
    dropped: list[Dropped] = []
    for step in steps:
        if is_buffer(_as_tensor(step)):
            dropped.append(Dropped(step.name, "a buffer, which llama.cpp computes"))
            continue
        spelled, number = without_number(step.name)
        name = name_in_file(spelled)
        if name == HEAD and model.tied:
            dropped.append(Dropped(step.name, "the head is tied: the embedding is read for it"))
            continue
        for one in (name,) if name is None or model.latent is None else halves(name):
            if one is None or without_layer(one) not in known:
                raise CannotConvertError(_no_place(step, one, model))
            found.setdefault(one, {})[number or 0] = step
    if model.tied and HEAD in loaded.needs and EMBEDDING in found:
        found[HEAD] = found[EMBEDDING]
    _check_whole(found, loaded.needs | (LATENT_NEEDS if model.latent else frozenset()), model)
    made = (_tensor(name, numbered, model) for name, numbered in found.items())
    return tuple(made), tuple(dropped)


def _as_tensor(step: Step) -> TensorInfo:
    return TensorInfo(name=step.name, dtype=step.dtype, shape=step.shape, file="", offsets=(0, 0))


def _no_place(step: Step, name: str | None, model: Model) -> str:
    where = "has no place for it" if name is None else f"knows no {without_layer(name)}"
    hint = "; its head has to be the embedding" if name == HEAD else ""
    return (
        f"{model.label}: tensor {step.name!r} cannot be written: llama.cpp's"
        f" {model.written.architecture} {where}{hint}; convert without --format gguf"
    )


def _check_whole(
    found: Mapping[str, Mapping[int, Step]], needs: Iterable[str], model: Model
) -> None:
    """Raises CannotConvertError for a tensor that the loader needs of each layer, and that is not
    there."""
    for need in sorted(needs):
        head, _, rest = need.partition(".")
        each = [f"blk.{i}.{rest}" for i in range(model.layers)] if head == "blk" else [need]
        missing = next((name for name in each if name not in found), None)
        if missing is not None:
            raise CannotConvertError(
                f"{model.label}: llama.cpp's {model.written.architecture} needs a tensor"
                f" {missing}, which this model has not; convert without --format gguf"
            )


def _tensor(name: str, numbered: Mapping[int, Step], model: Model) -> GgufTensor:
    steps = tuple(numbered[number] for number in sorted(numbered))
    first = steps[0]
    if first.dtype not in _FLOATS:
        raise CannotConvertError(
            f"{model.label}: tensor {first.name!r} is {first.dtype}, no float; convert without"
            " --format gguf"
        )
    module = first.name.rpartition(".")[0].rpartition(".")[2]
    transposed = module in model.written.transposed and len(first.shape) == 2
    shape = first.shape[::-1] if transposed else first.shape
    half = None if model.latent is None else half_of(name, model.latent)
    if half is not None:
        shape = half.shape(first.shape[-1])
    if len(steps) > 1:
        shape = (len(steps), *shape)
    is_norm = name.endswith("norm.weight")
    return GgufTensor(
        name=name,
        type=type_of(name, shape, first.dtype, model.dtype),
        shape=shape,
        steps=tuple(step.name for step in steps),
        transposed=transposed,
        heads=_heads(name, first, model),
        half=half,
        gain=model.written.gain if is_norm else 0.0,
    )


def _heads(name: str, step: Step, model: Model) -> HeadOrder | None:
    """How the heads of a projection or its bias are put; None where they lie right."""
    module = without_layer(name).removeprefix("blk.").rpartition(".")[0]
    turned = model.in_pairs if module in (_FUSED, *_TURNED) else 0
    if module != _FUSED and not turned:
        return None
    held = model.attention_map.by_name.get(step.name)
    if held is None or held.layout is None or not held.layout.blocks:
        raise CannotConvertError(
            f"{model.label}: how heads lie in tensor {step.name!r} is not known; convert without"
            " --format gguf"
        )
    source = replace(held.layout, axis=0)
    return None if not turned and _is_plain(source) else HeadOrder(source=source, rotated=turned)


def _is_plain(layout: Blocks) -> bool:
    """Whether it is [q|k|v], or one part."""
    parts = [block.part for block in layout.blocks]
    return layout.repeats == 1 and parts == sorted(parts, key="qkv".index)


def dropped_notes(dropped: Iterable[Dropped]) -> Iterator[str]:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for one in dropped:
        reasons.setdefault(one.reason, []).append(one.name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"not in the file: {names[0]}{more} ({reason})"
