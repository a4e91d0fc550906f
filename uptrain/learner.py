"""One phase of a training: the student, its optimizer, and how they make a step."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .distillation import Distillation
from .errors import TrainingFailedError
from .processes import Processes
from .schedule import Phase, choose_trainable
from .scores import Scores, sum_scores
from .student_weights import load_student, load_weights, own_state, round_weights
from .text_rows import batch_rows
from .uptrain_plan import UptrainPlan

_BETAS = (0.9, 0.95)
_LARGEST_NORM = 1.0


class Learner:
    """The student in one phase, in this process. All processes call its methods together."""

    def __init__(
        self,
        plan: UptrainPlan,
        processes: Processes,
        teacher: PreTrainedModel,
        phase: Phase,
        weights: Path | None,
    ) -> None:
        """Begins with the weights of CONVERTED, or those in the file `weights`."""
        self.plan = plan
        self.phase = phase
        self._processes = processes
        self._teacher = teacher
        self.student, self.stored = load_student(plan.student)
        if weights is not None:
            load_weights(self.student, weights)
        choose_trainable(self.student, phase)
        learning = [p for p in self.student.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=0.0, betas=_BETAS, weight_decay=0.0)
        self._module, self._optimizer = processes.accelerator.prepare(
            Distillation(self.student, plan.objective), optimizer
        )

    def close(self) -> None:
        """Lets go of model and optimizer, so that those of another phase can be prepared."""
        self._processes.accelerator.free_memory(self._module, self._optimizer)
        del self._module, self._optimizer, self.student

    def save_state(self, folder: Path) -> None:
        """Everything that a resumed run needs."""
        self._processes.accelerator.save_state(str(folder))

    def load_state(self, folder: Path) -> None:
        """Goes on from what `save_state` wrote."""
        self._processes.accelerator.load_state(str(folder))

    def state(self) -> Mapping[str, Tensor]:
        """All weights of the student on the CPU; only the main process is sure to get them."""
        state = self._processes.accelerator.get_state_dict(self._module)
        return own_state(state or {})

    def round(self) -> None:
        """Rounds the weights to the element types that they will be stored in."""
        round_weights(self._module, self.stored)

    def step(self, step: int) -> float:
        """Makes one step and returns its loss, the mean over the whole batch. Raises
        TrainingFailedError if that is not finite."""
        accelerator = self._processes.accelerator
        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.learning_rate.at(step, self.phase)
        total = torch.zeros((), device=self._processes.device)
        parts = self._parts(step)
        for part in parts:
            with accelerator.accumulate(self._module):
                loss = self._module(part, self._teacher)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(self._module.parameters(), _LARGEST_NORM)
                self._optimizer.step()
                self._optimizer.zero_grad()
            total += loss.detach() / len(parts)
        mean = float(accelerator.reduce(total, reduction="mean"))
        if mean != mean or mean in (float("inf"), float("-inf")):
            raise TrainingFailedError(
                f"the loss of step {step + 1:,} is {mean}: try a smaller --learning-rate (it was"
                f" {self.plan.request.learning_rate:g}), more --warmup or --dtype float32, with"
                " --no-resume"
            )
        return mean

    def score(self) -> Scores:
        """Student and teacher on the rows that were held out, the same in every process."""
        rows = self.plan.rows.held_out
        each = max(1, self.plan.request.batch_size // self._processes.count)
        sums = torch.zeros(4, dtype=torch.float64, device=self._processes.device)
        at_once = each * self._processes.count
        for first in range(0, len(rows), at_once):
            mine = rows[first + each * self._processes.index :][:each]
            # Where weights are sharded, every process takes part in every forward.
            read = mine if len(mine) else rows[:1]
            got = self._module(read.to(self._processes.device), self._teacher, scores=True)
            sums += got if len(mine) else 0
        summed = self._processes.accelerator.reduce(sums, reduction="sum")
        return sum_scores(summed.tolist(), tokens=len(rows) * self.plan.rows.sequence_length)

    def _parts(self, step: int) -> list[Tensor]:
        """What this process reads in a step: as many parts of the batch as are computed one after
        the other. Which rows these are together does not depend on how they are shared."""
        request, count = self.plan.request, self._processes.count
        numbers = batch_rows(
            step,
            rows=len(self.plan.rows.train),
            batch_size=request.batch_size,
            seed=request.seed,
        )
        parts = numbers.view(request.gradient_accumulation, count, -1)[:, self._processes.index]
        return [self.plan.rows.train[part].to(self._processes.device) for part in parts]
