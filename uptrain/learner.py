"""One phase of a training: the student, its optimizer, and how they make a step."""

from collections.abc import Mapping
from contextlib import nullcontext
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from transformers import PreTrainedModel

from .computing import Computing
from .distillation import Distillation
from .errors import TrainingFailedError
from .optimizer_state import read_optimizer, write_optimizer
from .rows import all_of
from .schedule import Phase, choose_trainable
from .scores import Scores, sum_scores
from .sharding import let_go, whole
from .state_file import read_tensors, write_tensors
from .student_weights import keep_fixed, kept_tensors, load_student, round_weights, stored_state
from .uptrain_plan import UptrainPlan

_BETAS = (0.9, 0.95)
_LARGEST_NORM = 1.0


class Learner:
    """The student in one phase, in this process. All processes call its methods together."""

    def __init__(
        self, plan: UptrainPlan, computing: Computing, teacher: PreTrainedModel, phase: Phase
    ) -> None:
        """Begins with the weights of CONVERTED."""
        self.plan = plan
        self.phase = phase
        self._computing = computing
        self._teacher = teacher
        self.student, self.stored = load_student(plan.student)
        choose_trainable(self.student, phase)
        keep_fixed(self.student)
        self._module = computing.prepare(Distillation(self.student, plan.objective))
        self._learning = {n: p for n, p in self.student.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._learning.values(), lr=0.0, betas=_BETAS, weight_decay=0.0
        )

    def save_weights(self, path: Path) -> None:
        """Writes the file that `load_weights` reads. Raises OSError."""
        write_tensors(kept_tensors(self.student), path, self._computing.team)

    def load_weights(self, path: Path) -> None:
        """Goes on from what `save_weights` wrote, in as many processes as it may have been. Raises
        HeadcountError if it cannot be read, SelfCheckError if weights are missing."""
        read_tensors(path, kept_tensors(self.student))

    def save_optimizer(self, path: Path) -> None:
        """Writes the file that `load_optimizer` reads. Raises OSError."""
        write_optimizer(self._optimizer, self._learning, path, self._computing.team)

    def load_optimizer(self, path: Path) -> None:
        """Goes on from what `save_optimizer` wrote in the same phase. Raises HeadcountError."""
        read_optimizer(self._optimizer, self._learning, path)

    def state(self) -> Mapping[str, Tensor]:
        """All weights of the student on the CPU, as they will be stored; only the main process
        gets them."""
        return stored_state(self.student, self.stored, self._computing.team)

    def round(self) -> None:
        """Rounds the weights to the element types that they will be stored in."""
        round_weights(self.student, self.stored)

    def step(self, step: int) -> float:
        """Makes one step and returns its loss, the mean over the whole batch. Raises
        TrainingFailedError if that is not finite."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.learning_rate.at(step, self.phase)
        with self._computing.team.computing():
            mean = float(self._computing.summed(self._gradients(step)) / self._computing.team.count)
            self._clip()
            self._optimizer.step()
        self._optimizer.zero_grad()
        if mean != mean or mean in (float("inf"), float("-inf")):
            raise TrainingFailedError(
                f"the loss of step {step + 1:,} is {mean}: try a smaller --learning-rate (it was"
                f" {self.plan.request.learning_rate:g}), more --warmup or --dtype float32, with"
                " --no-resume"
            )
        return mean

    def _gradients(self, step: int) -> Tensor:
        """Leaves the gradients of a step in the parameters, and returns this process' loss."""
        total = torch.zeros((), device=self._computing.device)
        train, batch = self.plan.rows.train, self.plan.batch(step)
        own = self._own(batch)
        # Processes share the mean of their gradients, and the loss is the mean over all tokens.
        scale = self._computing.team.count / train.tokens(batch)
        for number, part in enumerate(own, 1):
            is_last, read = number == len(own), train.reading(part).to(self._computing.device)
            with nullcontext() if is_last else self._computing.added_up(self._module):
                with self._computing.autocast():
                    mean = self._module(read, self._teacher).float()
                loss = mean * (train.tokens(part) * scale)
                loss.backward()
            total += loss.detach()
        return total

    def _clip(self) -> None:
        """Scales all gradients so that their norm, over all processes' shares, is at most 1."""
        gradients = [p.grad for p in self._learning.values() if p.grad is not None]
        norm = whole(get_total_norm(gradients))
        clip_grads_with_norm_(self._learning.values(), _LARGEST_NORM, norm)

    def score(self) -> Scores:
        """Student and teacher on the rows that were held out, the same in every process."""
        held, team = self.plan.rows.held_out, self._computing.team
        each = max(1, self.plan.request.batch_size // team.count)
        sums = torch.zeros(4, dtype=torch.float64, device=self._computing.device)
        with team.computing(), torch.no_grad():
            for numbers in all_of(held).split(each * team.count):
                mine = held.forwards(numbers[each * team.index :][:each])
                # Where weights are shared, every process takes part in every forward: the first
                # process has the most of them.
                for first, own in zip_longest(held.forwards(numbers[:each]), mine):
                    read = held.reading(first if own is None else own).to(sums.device)
                    with self._computing.autocast():
                        got = self._module(read, self._teacher, scores=True)
                    sums += got if own is not None else 0
            let_go(self._module)
            summed = self._computing.summed(sums)
        return sum_scores(summed.tolist(), tokens=held.tokens(all_of(held)))

    def _own(self, batch: Tensor) -> list[Tensor]:
        """The rows of each forward that this process makes in a step, one after the other. Which
        rows are read in a step does not depend on how they are shared."""
        team = self._computing.team
        parts = batch.view(self.plan.request.gradient_accumulation, team.count, -1)[:, team.index]
        return [one for part in parts for one in self.plan.rows.train.forwards(part)]
