"""The steps of a training, phase by phase, with checkpoints."""

import gc
import time
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from headcount.convert.stream.os_failures import writing
from headcount.running.progress import progress_bar

from .computing import Computing
from .learner import Learner
from .schedule import Phase
from .scores import Scores
from .training_folder import Progress, TrainingFolder, saving
from .uptrain_plan import UptrainPlan

_POINTS = 10  # entries of the history


def train(
    plan: UptrainPlan,
    computing: Computing,
    work: TrainingFolder,
    teacher: PreTrainedModel,
    progress: Progress,
) -> tuple[Progress, Learner]:
    """All steps that are left, and the learner of the last phase."""
    learner: Learner | None = None
    with progress_bar(
        None,
        "uptraining",
        "step",
        shown=computing.team.is_main,
        total=plan.request.steps,
        initial=progress.step,
    ) as bar:
        for phase in _left(plan, progress):
            learner = None  # before the next one takes its memory
            gc.collect()
            learner = _begin(plan, computing, work, teacher, phase, progress)
            progress = _Loop(plan, computing, work, learner, bar).run(progress)
    assert learner is not None  # the last phase is always begun
    return progress, learner


def _left(plan: UptrainPlan, progress: Progress) -> tuple[Phase, ...]:
    """Phases with steps to make, or the last one, for its weights."""
    return tuple(p for p in plan.phases if p.stop > progress.step) or plan.phases[-1:]


def _begin(
    plan: UptrainPlan,
    computing: Computing,
    work: TrainingFolder,
    teacher: PreTrainedModel,
    phase: Phase,
    progress: Progress,
) -> Learner:
    """The learner of a phase as it was after `progress.step` steps."""
    team = computing.team
    learner = team.together(lambda: Learner(plan, computing, teacher, phase))
    if progress.step:
        team.together(lambda: _resume(learner, work, progress.step))
    else:
        before = learner.score()
        team.from_main(lambda: _remember(work, before))
    return learner


def _resume(learner: Learner, work: TrainingFolder, step: int) -> None:
    checkpoint = work.checkpoint(step)
    learner.load_weights(work.weights(checkpoint))
    if learner.phase.first < step < learner.phase.stop:
        learner.load_optimizer(work.optimizer(checkpoint))


def _remember(work: TrainingFolder, before: Scores) -> None:
    with writing(work.path, 0):
        work.remember("before", before.document())


class _Loop:
    """The steps of one phase, with checkpoints."""

    def __init__(
        self,
        plan: UptrainPlan,
        computing: Computing,
        work: TrainingFolder,
        learner: Learner,
        bar: Any,
    ) -> None:
        self.plan = plan
        self.team = computing.team
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
        with saving(folder):
            self.team.from_main(lambda: self.work.clear(folder))
            self.learner.save_weights(self.work.weights(folder))
            if progress.step != self.learner.phase.stop:
                self.learner.save_optimizer(self.work.optimizer(folder))
            self.team.from_main(lambda: self.work.keep(progress))
