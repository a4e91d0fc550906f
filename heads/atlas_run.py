"""Making an atlas: the model runs, each attention's patterns are reduced where they are made."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from headcount.convert.attention_map.mapping import attention_map
from headcount.convert.stream.reader import SourceReader
from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.freed_memory import give_back
from headcount.running.load import LoadedModel, load_model
from headcount.running.placement import check_in_memory
from headcount.running.progress import progress_bar

from .atlas import Atlas, AtlasSettings, AttentionAtlas, Cost
from .atlas_plan import AtlasPlan, plan_atlas
from .attentions import check_patterns
from .circuits import copying_scores, vocabulary_product
from .heads_request import HeadsRequest
from .measured import measured_attention
from .norm_gains import norm_gains
from .patterns import check_square, run_for_patterns
from .scores import PatternSums, cross_attention_sums, self_attention_sums, targets_of

REMEDY = "a smaller --batch-size or --tokens, --dtype bfloat16, or --torch-device cpu"


def make_atlas(request: HeadsRequest, folder: Path, name: str, *, progress: bool = False) -> Atlas:
    """The atlas of the model in `folder`, which reports call `name`. `progress`: a bar on stderr,
    if that is a terminal. Raises HeadcountError."""
    with quiet_transformers(), out_of_memory_explained(REMEDY):
        return run_atlas(plan_atlas(request, folder, name), progress=progress)


def run_atlas(plan: AtlasPlan, *, progress: bool = False) -> Atlas:
    """The atlas of the model of a plan, which is in memory until it is done."""
    loaded = load_model(plan.runnable, dtype=plan.dtype, place=plan.place, attention="eager")
    check_in_memory(loaded.model, "heads")
    return atlas_of(plan, loaded, progress=progress)


def atlas_of(plan: AtlasPlan, loaded: LoadedModel, *, progress: bool = False) -> Atlas:
    """The atlas of a model that was loaded with eager attention."""
    start = time.perf_counter()
    measured = _Measured(plan)
    batches = list(plan.sequences.batches(plan.request.batch_size))
    for ids in progress_bar(batches, "heads", "batch", shown=progress):
        measured.run(loaded, ids)
    paths = [path for path, _ in measured.sums]
    copying, without = _copying(plan, loaded, paths)
    attentions = tuple(
        measured_attention(one, path, sums, copying.get(path), plan.request.thresholds)
        for one, (path, sums) in zip(plan.attentions, measured.sums, strict=True)
    )
    cost = Cost(
        forward_passes=len(batches) + 1,
        tokens=plan.sequences.ids.numel() + plan.short.numel(),
        seconds=time.perf_counter() - start,
    )
    return Atlas(
        id=plan.name,
        model_type=plan.audit.spec.model_type,
        attentions=attentions,
        settings=_settings(plan, loaded),
        cost=cost,
        warnings=(*loaded.warnings, *_warnings(plan, loaded, attentions), *without),
    )


class _Measured:
    """What the patterns of every attention add up to, over the batches that were run."""

    def __init__(self, plan: AtlasPlan) -> None:
        self._plan = plan
        self.sums: list[tuple[str, PatternSums]] = []

    def run(self, loaded: LoadedModel, ids: Tensor) -> None:
        """Adds a batch of sequences, [B, T]."""
        plan, ids = self._plan, ids.to(self._plan.place.inputs)
        targets = targets_of(ids)
        aligned = _encoder_reads_tokens(loaded)
        copies = (plan.sequences.start, plan.sequences.tokens) if aligned else None
        found: list[tuple[str, PatternSums]] = []

        def take(path: str, pattern: Tensor) -> None:
            pattern, at = pattern.to(ids.device), len(found)
            one = plan.attentions[at] if at < len(plan.attentions) else None
            if one is not None and one.is_cross:
                sums = cross_attention_sums(pattern, copies)
            else:
                check_square(path, pattern)
                kept = plan.stored_heads(one)
                own = pattern if kept is None else pattern[:, list(kept)]
                sums = self_attention_sums(own, targets)
            found.append((path, sums))
            give_back()

        inputs = _inputs(plan, loaded, ids)
        run_for_patterns(loaded.model, take, queries=ids.shape[1], **inputs)
        heads = [sums.rows.heads for _, sums in found]
        check_patterns(plan.attentions, heads, plan.name, plan.audit.spec.model_type)
        if self.sums:
            pairs = zip(self.sums, found, strict=True)
            found = [(path, old + new) for (path, old), (_, new) in pairs]
        self.sums = found


def _inputs(plan: AtlasPlan, loaded: LoadedModel, ids: Tensor) -> dict[str, Any]:
    """What the model is called with: an encoder reads the first copy of the tokens, and one that
    does not read tokens is stood in for by noise."""
    if not plan.has_encoder:
        return {"input_ids": ids}
    sequences = plan.sequences
    copy = ids[:, sequences.start : sequences.start + sequences.tokens]
    if _encoder_reads_tokens(loaded):
        return {"input_ids": copy, "decoder_input_ids": ids}
    generator = torch.Generator().manual_seed(plan.request.seed)
    width = loaded.model.config.get_text_config(decoder=True).hidden_size
    noise = torch.randn(*copy.shape, width, generator=generator)
    states = noise.to(device=plan.place.inputs, dtype=loaded.model.dtype)
    return {
        "encoder_outputs": BaseModelOutput(last_hidden_state=states),
        "decoder_input_ids": ids,
    }


def _encoder_reads_tokens(loaded: LoadedModel) -> bool:
    return bool(loaded.model.main_input_name == "input_ids")


def _copying(
    plan: AtlasPlan, loaded: LoadedModel, paths: Sequence[str]
) -> tuple[Mapping[str, list[float | None]], tuple[str, ...]]:
    """The copying scores of all attentions that have them, by their paths, and warnings."""
    found: dict[str, list[float | None]] = {}
    warnings = []
    own = {path: one for path, one in zip(paths, plan.attentions, strict=True) if not one.is_cross}
    product = vocabulary_product(loaded.model)
    checkpoint = plan.audit.checkpoint
    if product is not None and checkpoint is not None:
        gains = norm_gains(loaded.model, own, **_inputs(plan, loaded, plan.short))
        if gains.last is None:
            warnings.append(f"{plan.name}: copying leaves out the gain of the last norm")
        by_place = attention_map(plan.audit).attentions
        with SourceReader(checkpoint.files) as reader:
            for path, one in own.items():
                tensors = None if one.nth else by_place.get((one.layer, False))
                if tensors is None:
                    continue
                before, after = gains.before.get(path), gains.written(path)
                scores = copying_scores(tensors, reader.tensor, product, before=before, after=after)
                if scores is not None:
                    found[path] = scores
    if len(found) < len(own):
        where = "not every layer" if found else "no layer"
        warnings.append(
            f"{plan.name}: copying is told of {where}: its values, or the model's embeddings, are"
            " not of the shapes that an OV circuit is made of"
        )
    return found, tuple(warnings)


def _warnings(
    plan: AtlasPlan, loaded: LoadedModel, attentions: tuple[AttentionAtlas, ...]
) -> tuple[str, ...]:
    lines = []
    if plan.has_encoder and not _encoder_reads_tokens(loaded):
        lines.append(
            f"{plan.name}: its encoder reads {loaded.model.main_input_name}, not tokens: what"
            " cross-attention looks at is noise, so that its alignment is not told"
        )
    blind = [one.attention.layer for one in attentions if _is_blind(one)]
    if blind:
        lines.append(
            f"{plan.name}: {len(blind)} of {len(attentions)} attentions have a window shorter than"
            f" {plan.sequences.tokens} tokens, in which nothing is repeated: induction and"
            " duplicate tokens are not seen there; pass a smaller --tokens"
        )
    return tuple(lines)


def _is_blind(one: AttentionAtlas) -> bool:
    return not one.attention.is_cross and one.uniform["induction"] is None


def _settings(plan: AtlasPlan, loaded: LoadedModel) -> AtlasSettings:
    return AtlasSettings(
        tokens=plan.sequences.tokens,
        sequences=plan.request.sequences,
        batch_size=plan.request.batch_size,
        sequence_length=plan.sequences.ids.shape[1],
        start_id=plan.start_id,
        seed=plan.request.seed,
        dtype=loaded.dtype,
        device=str(plan.place),
        thresholds=plan.request.thresholds,
        torch=torch.__version__,
        transformers=transformers.__version__,
    )
