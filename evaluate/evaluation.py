"""Evaluating a model, alone or against the original that it was made from."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from torch import Tensor

from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.load import LoadedModel, load_model
from headcount.running.measured_cache import (
    CacheBytes,
    PredictCache,
    predicted_cache_bytes,
    weigh_cache,
)
from headcount.running.progress import progress_bar
from headcount.running.team import Job, Team, this_team

from .behaviour.behaviour import Behaviour, probe
from .behaviour.behaviour_report import behaviour_warnings
from .evaluation_document import Comparison, EvaluationReport, ModelScore, Settings
from .evaluation_plan import EvaluationPlan, check_request, plan_evaluation
from .evaluation_request import EvaluationRequest
from .logits import chunk_positions
from .loss import TextScores, score_text
from .pairs.pairs_evaluation import evaluate_pairs, reads_pairs
from .roles_section import roles_section, with_roles
from .speed import Speed, take_turns, tiled
from .tasks import run_tasks
from .text_warnings import fitted_to, text_warnings


def evaluate(
    request: EvaluationRequest, *, predict: PredictCache = predicted_cache_bytes
) -> EvaluationReport:
    """Measures what `request` asks for. Reads only; nothing is fetched, no foreign code is run.

    `predict` gives the cache bytes of a folder for a number of tokens and bits a value. Raises
    HeadcountError; EvaluationFailedError (exit code 1) when a loss is not finite.
    """
    with quiet_transformers(), out_of_memory_explained():
        check_request(request)
        if reads_pairs(request):
            return evaluate_pairs(request)
        plan = plan_evaluation(request)
        roles = roles_section(request)  # first: it loads one model at a time
        team = this_team()
        with team.sharing(Job(_help, (request,))):
            models = _load(plan)
            start = time.perf_counter()
            scores = _score(plan, models, team)
        behaviour = _probe(plan, models, scores, time.perf_counter() - start)
        runs = _run(plan, models, predict)
        tasks = run_tasks(request, models, plan.tokenizer) if request.tasks else ()
        report = replace(_report(plan, models, scores, runs, behaviour), tasks=tasks)
        return with_roles(report, roles)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Runs:
    """What generating showed of each model; `speeds` is None where speed was not asked for."""

    caches: list[CacheBytes]
    speeds: list[Speed] | None
    warnings: tuple[str, ...]


def _help(team: Team, request: EvaluationRequest) -> None:
    """What another process of a launch does of an evaluation: it scores windows."""
    with quiet_transformers(), out_of_memory_explained():
        plan = plan_evaluation(request)
        _score(plan, _load(plan), team)


def _load(plan: EvaluationPlan) -> list[LoadedModel]:
    return [load_model(one, dtype=plan.dtype, place=plan.place) for one in plan.runnables]


def _score(plan: EvaluationPlan, models: list[LoadedModel], team: Team) -> TextScores:
    total = len(plan.windows)
    with progress_bar(None, "scoring", "window", shown=team.is_main, total=total) as bar:
        return score_text(
            models[0].model,
            torch.tensor(plan.tokens.ids, device=plan.place.inputs),
            plan.windows,
            chunk=chunk_positions(plan.runnables[0].vocab_size),
            bos=plan.tokens.bos,
            original=models[1].model if len(models) > 1 else None,
            whole=plan.behaviour is not None,
            team=team,
            advance=bar.update,
        )


def _probe(
    plan: EvaluationPlan, models: list[LoadedModel], scores: TextScores, seconds: float
) -> Behaviour | None:
    if plan.behaviour is None:
        return None
    loaded = [one.model for one in models]

    def words(ids: list[int]) -> str:
        return str(plan.tokenizer.decode(ids))

    return probe(plan.behaviour, loaded, scores.windows, words, scoring_seconds=seconds)


def _run(plan: EvaluationPlan, models: list[LoadedModel], predict: PredictCache) -> _Runs:
    """The cache measurement comes first, and warms each model up for the timing."""
    ids = torch.tensor(plan.tokens.ids, device=plan.place.inputs)
    tokens = tiled(ids, plan.prompt_tokens + plan.decode_tokens)
    prompt, decode = tokens.split([plan.prompt_tokens, plan.decode_tokens], dim=1)
    weighed = [weigh_cache(loaded, prompt, decode, predict) for loaded in models]
    caches = [cache for cache, _ in weighed]
    speeds = None
    if plan.request.speed and all(cache.measured is not None for cache in caches):
        repeats = plan.request.repeats
        speeds = take_turns([m.model for m in models], prompt, decode, repeats=repeats)
    return _Runs(
        caches=caches, speeds=speeds, warnings=tuple(line for _, lines in weighed for line in lines)
    )


def _report(
    plan: EvaluationPlan,
    models: list[LoadedModel],
    scores: TextScores,
    runs: _Runs,
    behaviour: Behaviour | None,
) -> EvaluationReport:
    losses = [scores.losses]
    if scores.original_losses is not None:
        losses.append(scores.original_losses)
    summaries = [
        _summary(plan, loaded, loss, cache, runs.speeds[i] if runs.speeds else None)
        for i, (loaded, loss, cache) in enumerate(zip(models, losses, runs.caches, strict=True))
    ]
    loaded_warnings = tuple(line for loaded in models for line in loaded.warnings)
    of_text = text_warnings(plan, summaries[-1])
    return EvaluationReport(
        model=summaries[0],
        against=summaries[1] if len(summaries) > 1 else None,
        comparison=Comparison.of(scores.divergence),
        behaviour=behaviour,
        settings=_settings(plan, models[0]),
        warnings=(
            *(behaviour_warnings(behaviour) if behaviour else ()),
            *of_text,
            *fitted_to(plan),
            *loaded_warnings,
            *runs.warnings,
        ),
        of_text=of_text,
        of_text_without_places=(
            *text_warnings(*_without_places(plan, summaries)),
            *fitted_to(_without_places(plan, summaries)[0]),
        ),
    )


def _without_places(
    plan: EvaluationPlan, summaries: list[ModelScore]
) -> tuple[EvaluationPlan, ModelScore]:
    """What warnings of the text are made of, with names that say something everywhere."""
    text = replace(plan.text, name=Path(plan.text.name).name)
    name = "The original" if len(summaries) > 1 else "This model"
    return replace(plan, text=text), replace(summaries[-1], id=name)


def _summary(
    plan: EvaluationPlan,
    loaded: LoadedModel,
    losses: Tensor,
    cache: CacheBytes,
    speed: Speed | None,
) -> ModelScore:
    nbytes = plan.tokens.nbytes
    return ModelScore(
        id=loaded.runnable.id,
        loss=losses.mean().item(),
        tokens=len(losses),
        bits_per_byte=losses.sum().item() / math.log(2) / nbytes if nbytes else None,
        dtype=loaded.dtype,
        cache=cache,
        speed=speed,
    )


def _settings(plan: EvaluationPlan, loaded: LoadedModel) -> Settings:
    return Settings(
        window=plan.window,
        stride=plan.stride,
        text=plan.text.name,
        text_sha256=plan.text.sha256,
        documents=plan.documents,
        tokens=len(plan.tokens.ids),
        max_tokens=plan.request.max_tokens,
        bos=plan.tokens.bos,
        tokenizer=plan.tokenizer_folder,
        dtype=loaded.dtype,
        device=str(plan.place),
        threads=torch.get_num_threads(),
        attention=str(loaded.model.config._attn_implementation),
        prompt_tokens=plan.prompt_tokens,
        decode_tokens=plan.decode_tokens,
        repeats=plan.request.repeats,
        torch=torch.__version__,
        transformers=transformers.__version__,
    )
