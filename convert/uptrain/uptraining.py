"""The uptraining: settle, train phase by phase, measure, write, and only then the final name."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm
from transformers import PreTrainedModel

from headcount.audit.errors import HeadcountError

from ..evaluate.boundary import out_of_memory_explained, quiet_transformers
from ..evaluate.load import load_model
from ..plan.errors import TargetError
from ..plan.existing import read_existing
from ..plan.target import check_space, check_target
from ..stream.failure import writing
from ..stream.lock import TargetLock
from .learner import Learner
from .output import done_before, write_output
from .processes import Processes
from .request import UptrainPlan, UptrainRequest, settle
from .schedule import Phase
from .scores import Scores, read_scores
from .weights import save_weights
from .work import Progress, Work, saving

_POINTS = 10  # entries of the history


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
    device: str
    done_before: bool


def uptrain(request: UptrainRequest) -> UptrainReport | None:
    """Trains what `request` asks for; None in every process but the main one.

    The models are only read. Raises HeadcountError; TrainingFailedError (exit code 1) when a loss
    is not finite, and WriteError. Checkpoints stay then, and the next run of the same request goes
    on with the last one.
    """
    with quiet_transformers(), out_of_memory_explained():
        processes = Processes(
            dtype=request.dtype, device=request.device, parts=request.gradient_accumulation
        )
        with processes.ended():
            plan = processes.together(lambda: _settled(request, processes.count))
            with _locked(plan, processes):
                return _uptrain(plan, processes)


def _settled(request: UptrainRequest, count: int) -> UptrainPlan:
    parts = count * request.gradient_accumulation
    if request.batch_size % parts:
        raise HeadcountError(
            f"--batch-size {request.batch_size}: is shared by {count} process(es) in"
            f" {request.gradient_accumulation} part(s) each: make it a multiple of {parts}"
        )
    return settle(request)


@contextmanager
def _locked(plan: UptrainPlan, processes: Processes) -> Iterator[None]:
    """The main process holds the target's lock inside."""
    with ExitStack() as stack:

        def lock() -> None:
            for folder in (plan.student.folder, plan.teacher.folder):
                check_target(folder, plan.target)
            with writing(plan.target, 0):
                stack.enter_context(TargetLock(plan.target))

        processes.main_only(lock)
        yield


def _uptrain(plan: UptrainPlan, processes: Processes) -> UptrainReport | None:
    work = Work(plan.target)
    record = processes.main_only(lambda: _done(plan, work))
    if record is not None:
        return _report(plan, processes, record["uptraining"], None) if processes.is_main else None
    progress = processes.main_only(lambda: _open(plan, work))
    try:
        teacher = processes.together(lambda: _load_teacher(plan, processes))
        progress, learner = _train(plan, processes, work, teacher, progress)
        learner.round()
        after = learner.score()
        state = learner.state()
        made = _Made(plan=plan, learner=learner, state=state, after=after, progress=progress)
        record = processes.main_only(lambda: _write(made, work))
    except (KeyboardInterrupt, SystemExit):
        if processes.is_main:
            print(f"{work.path}: holds what was reached; the same command goes on", file=sys.stderr)
        raise
    return _report(plan, processes, record, progress.seconds) if processes.is_main else None


def _done(plan: UptrainPlan, work: Work) -> dict[str, Any] | None:
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


def _open(plan: UptrainPlan, work: Work) -> Progress:
    nbytes = sum(file.path.stat().st_size for file in plan.source.checkpoint.files)
    numbers = sum(t.elements for t in plan.source.checkpoint.tensors.values())
    if not work.path.is_dir():
        # Two checkpoints of weights and two moments in float32, one of them being written.
        check_space(plan.target, nbytes + 2 * 3 * 4 * numbers)
    with writing(work.path, 0):
        return work.open(plan.job(local=True), resume=plan.request.resume)


def _load_teacher(plan: UptrainPlan, processes: Processes) -> PreTrainedModel:
    loaded = load_model(plan.teacher, dtype=processes.teacher_dtype, device=processes.device)
    return loaded.model.requires_grad_(False)


def _train(
    plan: UptrainPlan,
    processes: Processes,
    work: Work,
    teacher: PreTrainedModel,
    progress: Progress,
) -> tuple[Progress, Learner]:
    """All steps that are left, and the learner of the last phase."""
    learner: Learner | None = None
    with tqdm(
        total=plan.request.steps,
        initial=progress.step,
        desc="uptraining",
        unit="step",
        disable=None if processes.is_main else True,
        leave=False,
    ) as bar:
        for phase in _left(plan, progress):
            if learner is not None:
                learner.close()
            learner = _begin(plan, processes, work, teacher, phase, progress)
            progress = _Loop(plan, processes, work, learner, bar).run(progress)
    assert learner is not None  # the last phase is always begun
    return progress, learner


def _left(plan: UptrainPlan, progress: Progress) -> tuple[Phase, ...]:
    """Phases with steps to make, or the last one, for its weights."""
    return tuple(p for p in plan.phases if p.stop > progress.step) or plan.phases[-1:]


def _begin(
    plan: UptrainPlan,
    processes: Processes,
    work: Work,
    teacher: PreTrainedModel,
    phase: Phase,
    progress: Progress,
) -> Learner:
    """The learner of a phase as it was after `progress.step` steps."""
    checkpoint = work.checkpoint(progress.step)
    weights = work.weights(checkpoint)
    learner = processes.together(
        lambda: Learner(
            plan, processes, teacher, phase, weights if progress.step and weights.exists() else None
        )
    )
    if progress.step and not weights.exists():
        learner.load_state(checkpoint)
    if not progress.step:
        before = learner.score()
        processes.main_only(lambda: _remember(work, before))
    return learner


def _remember(work: Work, before: Scores) -> None:
    with writing(work.path, 0):
        work.remember("before", before.document())


class _Loop:
    """The steps of one phase, with checkpoints."""

    def __init__(
        self, plan: UptrainPlan, processes: Processes, work: Work, learner: Learner, bar: Any
    ) -> None:
        self.plan = plan
        self.processes = processes
        self.work = work
        self.learner = learner
        self.bar = bar

    def run(self, progress: Progress) -> Progress:
        every = self.plan.request.checkpoint_every
        phase = self.learner.phase
        while progress.step < phase.stop:
            progress = self._step(progress)
            if progress.step == phase.stop or (every and progress.step % every == 0):
                self._checkpoint(progress)
        return progress

    def _step(self, progress: Progress) -> Progress:
        begun = time.monotonic()
        loss = self.learner.step(progress.step)
        self.bar.set_postfix(loss=f"{loss:.4f}", phase=self.learner.phase.number, refresh=False)
        self.bar.update()
        done = replace(
            progress,
            step=progress.step + 1,
            pending=(*progress.pending, loss),
            seconds=progress.seconds + time.monotonic() - begun,
        )
        return self._noted(done)

    def _noted(self, progress: Progress) -> Progress:
        """With an entry in the history, where one is due."""
        points = {round(self.plan.request.steps * i / _POINTS) for i in range(1, _POINTS + 1)}
        if progress.step not in points:
            return progress
        entry = {
            "step": progress.step,
            "phase": self.learner.phase.number,
            "learning_rate": self.plan.learning_rate.at(progress.step - 1, self.learner.phase),
            "loss": sum(progress.pending) / len(progress.pending),
        }
        return replace(progress, history=(*progress.history, entry), pending=())

    def _checkpoint(self, progress: Progress) -> None:
        """At the end of a phase its weights, else everything that the phase goes on with."""
        folder = self.work.new_checkpoint(progress.step)
        ends = progress.step == self.learner.phase.stop
        state = self.learner.state() if ends else {}

        def save() -> None:
            with saving(folder):
                if not ends:
                    self.learner.save_state(folder)
                elif self.processes.is_main:
                    save_weights(state, self.work.weights(folder))

        def keep() -> None:
            with saving(folder):
                self.work.keep(progress)

        self.processes.main_only(lambda: self.work.clear(folder))
        self.processes.together(save)
        self.processes.main_only(keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """What there is to write."""

    plan: UptrainPlan
    learner: Learner
    state: Mapping[str, Any]
    after: Scores
    progress: Progress


def _write(made: _Made, work: Work) -> dict[str, Any]:
    """Writes the output and gives it its name; returns its record of the uptraining."""
    plan = made.plan
    before = work.recall("before")
    if before is None:
        raise TargetError(f"{work.path}: before.json is gone: begin anew with --no-resume")
    record = {
        "teacher": {"fingerprint": plan.states[1].fingerprint},
        "converted": {"fingerprint": plan.states[0].fingerprint},
        "texts": [{"sha256": text.sha256} for text in plan.texts],
        "settings": plan.settings(),
        "steps": plan.request.steps,
        "tokens": plan.tokens,
        "held_out": {"rows": len(plan.rows.held_out), "tokens": made.after.tokens},
        "before": before,
        "after": made.after.document(),
        "history": list(made.progress.history),
    }
    with saving(work.path):
        write_output(
            plan, made.learner.student, made.state, made.learner.stored, work.model, record
        )
        work.commit()
    return record


def _report(
    plan: UptrainPlan, processes: Processes, record: Mapping[str, Any], seconds: float | None
) -> UptrainReport:
    return UptrainReport(
        plan=plan,
        before=read_scores(record["before"]),
        after=read_scores(record["after"]),
        record=record,
        seconds=seconds,
        processes=processes.count,
        device=processes.device.type,
        done_before=seconds is None,
    )
