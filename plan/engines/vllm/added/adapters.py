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
from fractions import Fraction
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from headcount.arch.modules.module import Kind, Module
from headcount.model.errors import HeadcountError

from ....budget import Term
from ....planned_model import PlannedModel, matrices_of
from ....request import Workload
from ...added.adapters import (
    LAYER_KINDS,
    RECURRENT_ERROR,
    Buffer,
    LoraSizes,
    adapter_terms,
    check_targets,
    head_copies,
    is_wanted,
    of_experts,
    of_matrix,
)
from ...version import Releases, Version
from .spread import vllm_spread

_TABLE = Path(__file__).with_name("lora_classes.jsonl")  # of tools/lora_classes.py
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # MaxLoRARanks of vllm/config/lora.py
_EXPERTS_SINCE = (0, 12)  # FusedMoEWithLoRA
# Before, embeddings and head had rows for so many tokens more (lora_extra_vocab_size).
_NO_EXTRA_SINCE, _EXTRA = (0, 12), 256
_MOST_TOKENS = (((0, 18), 258_048), ((0,), 257_024))  # of a vocabulary whose head adapters change


def vllm_adapters(model: PlannedModel, work: Workload, stages: tuple[int, ...]) -> Iterator[Term]:
    """One for each pipeline stage, of which `stages` has one a layer; none without adapters."""
    if not work.request.enable_lora:
        return
    sizes = _sizes(model, work)
    buffers = _buffers(model, work, sizes, stages)
    bars: dict[Kind, float] = {"recurrent": RECURRENT_ERROR}
    yield from adapter_terms(buffers, sizes, bars, "vLLM", max(stages) + 1)


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
    elif _changes_embeddings(model, work.version):
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


def _sizes(model: PlannedModel, work: Workload) -> LoraSizes:
    request, row = work.request, _classes().get(_class_name(model) or "", {})
    is_given = request.lora_dtype in ("float16", "bfloat16")
    return LoraSizes(
        slots=request.max_loras or 1,
        rank=request.max_lora_rank or 16,
        tp=request.tp,
        element=2 if is_given else ceil(work.compute_bits / 8),
        sharded=request.fully_sharded_loras,
        fused=tuple(row.get("fused", ())),
        grouped=row.get("3d", False),
    )


def _changes_embeddings(model: PlannedModel, version: Version) -> bool:
    since = _classes().get(_class_name(model) or "", {}).get("embeddings")
    return since is not None and _reached(version, since)


def _reached(version: Version, since: str) -> bool:
    return version.at_least(*Releases().parse(since).numbers)


@lru_cache
def _classes() -> Mapping[str, Any]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {row["class"]: row for row in map(json.loads, lines)}


def _buffers(
    model: PlannedModel, work: Workload, sizes: LoraSizes, stages: tuple[int, ...]
) -> Iterator[Buffer]:
    """Experts have none before 0.12."""
    spec, wanted = model.spec, work.request.lora_target_modules
    found = matrices_of(model)
    if found is None:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell the shapes of the matrices that adapters"
            " change"
        )
    at = {layer.stored_as: stage for layer, stage in zip(spec.layers, stages, strict=True)}
    copies, spread = head_copies(spec, sizes.tp), vllm_spread(model, work)
    embeddings = _changes_embeddings(model, work.version)
    check_targets(model, map(_target, found.modules), wanted or ())
    for module in found.modules:
        if wanted and not is_wanted(_target(module), wanted):
            continue
        if module.layer is None:
            if embeddings and module.kind in ("embedding", "head"):
                yield module, _end(module, at), _of_vocabulary(module, work, sizes)
        elif module.kind == "experts":
            if work.version.at_least(*_EXPERTS_SINCE):
                yield module, at.get(module.layer, 0), of_experts(module, sizes, spread)
        elif module.kind in LAYER_KINDS:
            yield module, at.get(module.layer, 0), of_matrix(module, sizes, copies)
    if embeddings and spec.tie_word_embeddings and not wanted:
        head = Module("lm_head", "head", "head", spec.vocab_size or 0, spec.hidden_size)
        yield head, max(stages), _of_vocabulary(head, work, sizes)


def _target(module: Module) -> str:
    return "experts" if module.kind == "experts" else module.name.rpartition(".")[2]


def _end(module: Module, at: Mapping[int, int]) -> int:
    return 0 if module.kind == "embedding" else max(at.values(), default=0)


def _of_vocabulary(module: Module, work: Workload, sizes: LoraSizes) -> Fraction:
    """An embedding's, or a head's, whole on every rank; before 0.12 with rows of tokens that
    adapters add."""
    extra = 0 if work.version.at_least(*_NO_EXTRA_SINCE) else _EXTRA
    elements = (module.rows + extra + module.columns) * sizes.rank + extra * module.columns
    return Fraction(elements * sizes.slots * sizes.element)
