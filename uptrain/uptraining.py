"""The uptraining: settle, train phase by phase, measure, write, and only then the final name."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from headcount.convert.conversion import COMPLETE
from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.existing import read_existing
from headcount.convert.plan.target import check_space, check_target
from headcount.convert.stream.lock import TargetLock
from headcount.convert.stream.os_failures import writing
from headcount.model.errors import HeadcountError
from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.load import load_model
from headcount.running.placement import Placement
from headcount.running.signals import SIGNALLED
from headcount.running.team import Job, Team, this_team

from .computing import Computing, choose_computing
from .learner import Learner
from .output import done_before, write_output
from .own_words import OwnWords, own_words
from .planned_rows import Models, tokenizer_of_pairs
from .scores import Scores, read_scores
from .training import train
from .training_folder import Progress, TrainingFolder, saving
from .uptrain_plan import UptrainPlan, open_models, plan_uptraining, says_targets
from .uptrain_request import UptrainRequest

_LESS = "more --gradient-accumulation, a smaller --sequence-length, or --dtype bfloat16"


@dataclass(frozen=True, kw_only=True, slots=True)
class UptrainReport:
    """A finished uptraining. `record` is the entry `uptraining` of conversion.json; `seconds` were
    spent on the steps, None where an earlier run has `done_before` what was asked for."""

    plan: UptrainPlan
    before: Scores
    after: Scores
    record: Mapping[str, Any]
    seconds: float | None
    processes: int
    sharded: bool  # the processes shared the weights
    device: str
    done_before: bool


def uptrain(request: UptrainRequest) -> UptrainReport:
    """Trains what `request` asks for, with the other processes of a launch, if this is the main one
    of several.

    The models are only read. Raises HeadcountError; TrainingFailedError (exit code 1) when a loss
    is not finite, and WriteError. Checkpoints stay then, and the next run of the same request goes
    on with the last one.
    """
    team = this_team()
    with team.sharing(Job(_uptrain, (request,))):
        report = _uptrain(team, request)
    assert report is not None  # in the main process
    return report


def _uptrain(team: Team, request: UptrainRequest) -> UptrainReport | None:
    """What every process does of it; None in all but the main one."""
    with quiet_transformers(), out_of_memory_explained(_LESS):
        computing = team.together(lambda: choose_computing(request, team))
        models = team.together(lambda: _models(request, team.count))
        said = team.from_main(lambda: _said(request, models, computing))
        plan = team.together(lambda: plan_uptraining(request, models, said))
        with _locked(plan, team):
            return _healed(plan, computing)


def _models(request: UptrainRequest, count: int) -> Models:
    parts = count * request.gradient_accumulation
    if request.batch_size % parts:
        raise HeadcountError(
            f"--batch-size {request.batch_size}: is shared by {count} process(es) in"
            f" {request.gradient_accumulation} part(s) each: make it a multiple of {parts}"
        )
    return open_models(request)


def _said(request: UptrainRequest, models: Models, computing: Computing) -> OwnWords | None:
    """What the original says of the texts, where that is what is learned. It is asked anew by a run
    that goes on; if it says something else, that is another job."""
    if not says_targets(request, models):
        return None
    return own_words(
        request,
        models.teacher,
        tokenizer_of_pairs(request, models),
        positions=models.sequence_length,
        place=computing.teacher,
        dtype=computing.dtype,
    )


@contextmanager
def _locked(plan: UptrainPlan, team: Team) -> Iterator[None]:
    """The main process holds the target's lock inside."""
    with ExitStack() as stack:

        def lock() -> None:
            for folder in (plan.student.folder, plan.teacher.folder):
                check_target(folder, plan.target)
            with writing(plan.target, 0):
                stack.enter_context(TargetLock(plan.target))

        team.from_main(lock)
        yield


def _healed(plan: UptrainPlan, computing: Computing) -> UptrainReport | None:
    team, work = computing.team, TrainingFolder(plan.target)
    record = team.from_main(lambda: _done(plan, work))
    if record is not None:
        return _report(plan, computing, record["uptraining"], None) if team.is_main else None
    progress = team.from_main(lambda: _open(plan, work))
    try:
        teacher = team.together(lambda: _load_teacher(plan, computing))
        progress, learner = train(plan, computing, work, teacher, progress)
        learner.round()
        after, state = learner.score(), learner.state()
        made = _Made(plan=plan, learner=learner, state=state, after=after, progress=progress)
        record = team.from_main(lambda: _write(made, work))
    except SIGNALLED:
        if team.is_main:
            print(_what_holds(work, plan.request.steps), file=sys.stderr)
        raise
    return _report(plan, computing, record, progress.seconds) if team.is_main else None


def _what_holds(work: TrainingFolder, steps: int) -> str:
    if work.is_done:
        return f"{work.target}: {COMPLETE}"
    if not work.reached:
        return (
            f"{work.path}: holds no checkpoint yet, so that the same command begins with the first"
            " step; --checkpoint-every says how often one is written"
        )
    return (
        f"{work.path}: holds a checkpoint of step {work.reached:,} of {steps:,}; the same command"
        " goes on from there"
    )


def _done(plan: UptrainPlan, work: TrainingFolder) -> dict[str, Any] | None:
    """The record of a target that an earlier run has finished. Raises TargetError for others."""
    existing = read_existing(plan.target)
    if existing is None:
        return None
    record = done_before(plan, existing)
    if record is None:
        raise TargetError(
            f"{plan.target}: exists, and is not what this command would write; it is never"
            " replaced: name another --output-dir, or remove it"
        )
    work.discard()
    return record


def _open(plan: UptrainPlan, work: TrainingFolder) -> Progress:
    nbytes = sum(file.size for file in plan.source.checkpoint.files)
    numbers = sum(t.elements for t in plan.source.checkpoint.tensors.values())
    if not work.path.is_dir():
        # Two checkpoints of weights and two moments in float32, one of them being written.
        files = 4 * len(plan.source.checkpoint.files)
        check_space(plan.target, nbytes + 2 * 3 * 4 * numbers, files)
    with writing(work.path, 0):
        progress = work.open(plan.job(local=True), resume=plan.request.resume)
    if progress.step:
        _before(work)  # now, and not when all is trained
    return progress


def _before(work: TrainingFolder) -> dict[str, Any]:
    """What the untrained model scored. Raises TargetError."""
    with suppress(HeadcountError, KeyError):
        found = work.recall("before")
        if found is not None:
            read_scores(found)
            return found
    raise TargetError(f"{work.path}: before.json is gone or damaged: begin anew with --no-resume")


def _load_teacher(plan: UptrainPlan, computing: Computing) -> PreTrainedModel:
    """The original, of which nothing is learned, in the type that is computed in."""
    sharding = computing.sharding
    place = computing.teacher if sharding is None else Placement(inputs=torch.device("cpu"))
    model = load_model(plan.teacher, dtype=computing.dtype, place=place).model
    model.requires_grad_(False)
    if sharding is not None:
        sharding.shard(model)
    return model


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """What there is to write."""

    plan: UptrainPlan
    learner: Learner
    state: Mapping[str, Any]
    after: Scores
    progress: Progress


def _write(made: _Made, work: TrainingFolder) -> dict[str, Any]:
    """Writes the output and gives it its name; returns its record of the uptraining."""
    plan = made.plan
    before = _before(work)
    record = {
        "teacher": {"fingerprint": plan.states[1].fingerprint},
        "converted": {"fingerprint": plan.states[0].fingerprint},
        **_read_from(plan),
        "settings": plan.settings(),
        "steps": plan.request.steps,
        "tokens": plan.tokens,
        "held_out": {"rows": len(plan.rows.held_out), "tokens": made.after.tokens},
        "before": before,
        "after": made.after.document(),
        "history": list(made.progress.history),
    }
    with saving(work.path):
        write_output(plan, made.learner.student, made.state, work.model, record)
        work.commit()
    return record


def _read_from(plan: UptrainPlan) -> dict[str, Any]:
    digests = [{"sha256": file.sha256} for file in plan.read.files]
    if not plan.has_encoder:
        return {"texts": digests}
    key = "pairs" if plan.request.pairs else "texts"
    return {key: digests, "targets": plan.targets, "sha256": plan.read.digest}


def _report(
    plan: UptrainPlan, computing: Computing, record: Mapping[str, Any], seconds: float | None
) -> UptrainReport:
    return UptrainReport(
        plan=plan,
        before=read_scores(record["before"]),
        after=read_scores(record["after"]),
        record=record,
        seconds=seconds,
        processes=computing.team.count,
        sharded=computing.sharding is not None,
        device=computing.device.type,
        done_before=seconds is None,
    )
