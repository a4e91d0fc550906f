"""What LoRA adapters take in vLLM: buffers for every matrix that one may change, filled or not.

They are made with the model, for `max_loras` adapters of `max_lora_rank` each, and count as its
weights: an A of [rank, columns] and a B of [rows, rank] (create_lora_weights of base_linear.py,
column_parallel_linear.py, row_parallel_linear.py and fused_moe.py in vllm/lora/layers). Of a matrix
whose rows ranks share, they share B, of one whose columns they share A; of fully sharded adapters
the other half as well. Latents and routers are whole on every rank, and so are embedding and output
head, which adapters of a few classes change (lora_classes.jsonl).
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from headcount.arch.formats.by_config import described_inventory
from headcount.arch.modules.module import Module
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec

from ....budget import Term
from ....parallel import key_value_copies
from ....planned_model import PlannedModel
from ....request import Workload
from ...added.spread import Spread
from ...version import Releases, Version
from .spread import vllm_spread

_TABLE = Path(__file__).with_name("lora_classes.jsonl")  # of tools/lora_classes.py
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # MaxLoRARanks of vllm/config/lora.py
_EXPERTS_SINCE = (0, 12)  # FusedMoEWithLoRA
# Before, embeddings and head had rows for so many tokens more (lora_extra_vocab_size).
_NO_EXTRA_SINCE, _EXTRA = (0, 12), 256
_MOST_TOKENS = (((0, 18), 258_048), ((0,), 257_024))  # of a vocabulary whose head adapters change
_ROW_SPLIT = frozenset({"o", "down", "out"})  # ranks share their columns
_WHOLE = frozenset({"q_a", "kv_a", "router", "indexer", "latent"})
_KINDS = frozenset({"attention", "recurrent", "mlp", "experts", "shared experts", "router"})
# What is loaded as one matrix has buffers for all its parts if one of them is asked for.
_PACKED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
_RECURRENT_ERROR = 0.25  # how their inputs are fused differs by version


class LoraClass(NamedTuple):
    """A class of vLLM's: whether `embeddings` have buffers, which matrices are `fused` in files,
    and whether gate and up of all experts are (`grouped`)."""

    embeddings: bool
    fused: tuple[str, ...]
    grouped: bool


class _Sizes(NamedTuple):
    """What decides a buffer's size on a rank."""

    slots: int
    rank: int
    tp: int
    sharded: bool
    element: int


def adapter_terms(model: PlannedModel, work: Workload, stages: tuple[int, ...]) -> Iterator[Term]:
    """One for each pipeline stage, of which `stages` has one a layer; none without adapters."""
    if not work.request.enable_lora:
        return
    sizes = _sizes(work)
    own = _class_of(model, work.version)
    spread = vllm_spread(model, work)
    totals = [0.0] * (max(stages) + 1)
    unsure = list(totals)
    for module, stage, size in _buffers(model, work, sizes, own, spread, stages):
        totals[stage] += size
        unsure[stage] += size * _RECURRENT_ERROR * (module.kind == "recurrent")
    for total, error in zip(totals, unsure, strict=True):
        yield Term(
            key="adapters",
            title="LoRA adapters",
            bytes=ceil(total),
            formula=f"{sizes.slots} adapters of rank {sizes.rank} x the rows and columns of every"
            f" matrix they may change{' / tp' if sizes.tp > 1 else ''} x {sizes.element} B",
            source="shapes of vLLM's buffers",
            error_bytes=ceil(error),
        )


def adapters_refused(model: PlannedModel, work: Workload) -> Iterator[str]:
    """Why vLLM would not start with adapters."""
    request = work.request
    if not request.enable_lora:
        return
    rank, name = request.max_lora_rank or 16, _class_name(model)
    if rank not in _RANKS:
        yield f"--max-lora-rank {rank}: one of {', '.join(map(str, _RANKS))} is taken"
    row = _classes().get(name or "")
    if row is None:
        yield f"adapters of {name or 'a config that names no class'} are not taken"
    elif not _reached(work.version, row["since"]):
        yield f"adapters of {name} are taken since {row['since']}"
    elif _class_of(model, work.version).embeddings:
        most = next(most for since, most in _MOST_TOKENS if work.version.at_least(*since))
        if (model.spec.vocab_size or 0) > most:
            yield (
                f"adapters of a vocabulary of {model.spec.vocab_size:,} are not taken: at most"
                f" {most:,}"
            )
    if request.fully_sharded_loras and request.enable_expert_parallel:
        yield "--fully-sharded-loras with --enable-expert-parallel is not taken"


def _class_name(model: PlannedModel) -> str | None:
    names = model.config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    return name if isinstance(name, str) else None


def _sizes(work: Workload) -> _Sizes:
    request = work.request
    element = 2 if request.lora_dtype in ("float16", "bfloat16") else ceil(work.compute_bits / 8)
    return _Sizes(
        slots=request.max_loras or 1,
        rank=request.max_lora_rank or 16,
        tp=request.tp,
        sharded=request.fully_sharded_loras,
        element=element,
    )


def _class_of(model: PlannedModel, version: Version) -> LoraClass:
    """One that takes none would have buffers for the matrices of its layers."""
    row = _classes().get(_class_name(model) or "")
    if row is None:
        return LoraClass(embeddings=False, fused=(), grouped=False)
    embeddings = row["embeddings"]
    return LoraClass(
        embeddings=embeddings is not None and _reached(version, embeddings),
        fused=tuple(row["fused"]),
        grouped=row["3d"],
    )


def _reached(version: Version, since: str) -> bool:
    return version.at_least(*Releases().parse(since).numbers)


@lru_cache
def _classes() -> Mapping[str, Any]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {row["class"]: row for row in map(json.loads, lines)}


def _buffers(
    model: PlannedModel,
    work: Workload,
    sizes: _Sizes,
    own: LoraClass,
    spread: Spread,
    stages: tuple[int, ...],
) -> Iterator[tuple[Module, int, float]]:
    """A matrix, its stage, and bytes on a rank."""
    spec = model.spec
    found = described_inventory(model.config, spec.parameters) if spec.parameters else None
    if found is None:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell the shapes of the matrices that adapters"
            " change"
        )
    at = {layer.stored_as: stage for layer, stage in zip(spec.layers, stages, strict=True)}
    copies = _copies(spec, sizes.tp)
    for module in found.modules:
        if not _is_changed(module, work):
            continue
        if module.layer is None:
            if own.embeddings and module.kind in ("embedding", "head"):
                yield module, _end(module, at), _of_vocabulary(module, work, sizes)
        elif module.kind == "experts":
            yield module, at.get(module.layer, 0), _of_experts(module, work, sizes, own, spread)
        elif module.kind in _KINDS:
            size = _of_matrix(module, sizes, own, copies)
            yield module, at.get(module.layer, 0), size * sizes.slots * sizes.rank * sizes.element
    if own.embeddings and spec.tie_word_embeddings and not work.request.lora_target_modules:
        head = Module("lm_head", "head", "head", spec.vocab_size or 0, spec.hidden_size)
        yield head, max(stages), _of_vocabulary(head, work, sizes)


def _end(module: Module, at: Mapping[int, int]) -> int:
    return 0 if module.kind == "embedding" else max(at.values(), default=0)


def _is_changed(module: Module, work: Workload) -> bool:
    """Whether --lora-target-modules, if any, asks for it."""
    wanted = work.request.lora_target_modules
    if not wanted:
        return True
    if module.kind == "experts":
        return "experts" in wanted
    name = module.name.rpartition(".")[2]
    packed = _PACKED.get(name)
    siblings = [part for part, whole in _PACKED.items() if whole == packed] if packed else []
    return any(each in wanted for each in (name, packed, *siblings))


def _copies(spec: ModelSpec, tp: int) -> int:
    """How many ranks have the same K/V head."""
    mixers = {mixer for layer in spec.layers for mixer in layer.mixers if mixer.num_key_value_heads}
    return max((key_value_copies(mixer, tp) for mixer in mixers), default=1)


def _of_matrix(module: Module, sizes: _Sizes, own: LoraClass, copies: int) -> float:
    """Elements of A and B for each adapter and unit of rank."""
    tp = sizes.tp
    if module.part in _WHOLE:
        return module.rows + module.columns
    half = tp if sizes.sharded else 1
    if module.part in _ROW_SPLIT:
        return module.columns / tp + module.rows / half
    rows = module.rows / tp
    if module.part in ("k", "v"):
        rows *= copies
    return _inputs(module, own) / half + rows


def _inputs(module: Module, own: LoraClass) -> float:
    """Columns of A: where files hold several matrices as one, an adapter has one A for all."""
    if module.part in ("gate", "up") and "gate_up_proj" in own.fused:
        return module.columns / 2
    if module.part in ("q", "k", "v") and "qkv_proj" in own.fused:
        return module.columns / 3
    return module.columns


def _of_experts(
    module: Module, work: Workload, sizes: _Sizes, own: LoraClass, spread: Spread
) -> float:
    """Each expert of a rank has its own; before 0.12 none has."""
    if not work.version.at_least(*_EXPERTS_SINCE):
        return 0.0
    shared, half = spread.experts_tp, spread.experts_tp if sizes.sharded else 1
    if module.part == "down":
        each = module.columns / shared + module.rows / half
    else:
        inputs = module.columns / (2 if own.grouped else 1)
        each = inputs / half + module.rows / shared
    count = module.copies * float(spread.experts)
    return each * count * sizes.slots * sizes.rank * sizes.element


def _of_vocabulary(module: Module, work: Workload, sizes: _Sizes) -> float:
    """An embedding's, or a head's, and before 0.12 rows of tokens that adapters add."""
    extra = 0 if work.version.at_least(*_NO_EXTRA_SINCE) else _EXTRA
    elements = (module.rows + extra + module.columns) * sizes.rank + extra * module.columns
    return elements * sizes.slots * sizes.element
