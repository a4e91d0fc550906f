"""Comparing the heads of two models: both read the same tokens, one model in memory at a time."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headcount.convert.plan.source import describing_files, fingerprint_of
from headcount.model.decoder_attentions import readers_of
from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.tokens import has_vocabulary, load_tokenizer

from ..atlas_plan import AtlasPlan, plan_atlas
from ..atlas_run import REMEDY, run_atlas
from ..heads_request import HeadsRequest
from .comparison import AtlasComparison, compare_atlases
from .matching import Candidate, IncomparableHeadsError, match_heads
from .moved_heads import read_moved_heads


class NamedFolder(NamedTuple):
    """A model's folder, and what reports call it."""

    path: Path
    name: str


def compare_heads(
    request: HeadsRequest, model: NamedFolder, against: NamedFolder, *, progress: bool = False
) -> AtlasComparison:
    """What the heads of `model` do against those of `against`, on the tokens that `request` asks
    for. `progress`: bars on stderr, if that is a terminal. Raises HeadcountError;
    IncomparableHeadsError where their heads do not correspond."""
    with quiet_transformers(), out_of_memory_explained(REMEDY):
        after, before = plan_together(request, model, against)
        matching = match_heads(_candidate(after), _candidate(before))
        then = run_atlas(before, progress=progress)
        now = run_atlas(after, progress=progress)
    return compare_atlases(then, now, matching)


def plan_together(
    request: HeadsRequest, model: NamedFolder, against: NamedFolder
) -> tuple[AtlasPlan, AtlasPlan]:
    """The plans of both, on the same tokens: those of `against`, unless only `model` has a
    tokenizer to say which are special. Raises HeadcountError."""
    plans = [plan_atlas(request, *one) for one in (model, against)]
    _check_same_vocabulary(*plans)
    fewest = min(plan.sequences.tokens for plan in plans)
    fewer = replace(request, tokens=fewest)
    plans = [
        plan if plan.sequences.tokens == fewest else plan_atlas(fewer, *one)
        for plan, one in zip(plans, (model, against), strict=True)
    ]
    telling = [plan for plan in reversed(plans) if has_vocabulary(plan.runnable.folder)]
    chosen = [*telling, plans[1]][0]
    shared = [replace(plan, sequences=chosen.sequences, start_id=chosen.start_id) for plan in plans]
    return shared[0], shared[1]


def _check_same_vocabulary(model: AtlasPlan, against: AtlasPlan) -> None:
    """Raises IncomparableHeadsError if a token of one model is another token of the other."""
    sizes = [plan.runnable.vocab_size for plan in (model, against)]
    if sizes[0] != sizes[1]:
        raise IncomparableHeadsError(
            f"{model.name} has a vocabulary of {sizes[0]:,} tokens, {against.name} one of"
            f" {sizes[1]:,}: they cannot read the same tokens; see each alone with `headcount"
            " heads`"
        )
    folders = [plan.runnable.folder for plan in (model, against)]
    if not all(map(has_vocabulary, folders)):
        return
    one, other = (load_tokenizer(folder).get_vocab() for folder in folders)
    if one != other:
        raise IncomparableHeadsError(
            f"{model.name} and {against.name} have different tokenizers: one id is not one token,"
            " see each alone with `headcount heads`"
        )


def _candidate(plan: AtlasPlan) -> Candidate:
    config, checkpoint = plan.audit.source.config_file, plan.audit.checkpoint
    fingerprint = None
    if config is not None and checkpoint is not None:
        fingerprint = fingerprint_of(describing_files(config, checkpoint))
    return Candidate(
        name=plan.name,
        fingerprint=fingerprint,
        attentions=plan.attentions,
        readers=readers_of(plan.audit.spec),
        moved=read_moved_heads(plan.runnable.folder),
    )
