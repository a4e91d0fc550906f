"""How the request of an uptraining is settled, before any weight is read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from headcount.convert.plan.source import ConversionSource, SourceState, read_source, source_state
from headcount.evaluate.comparable import check_same_vocabulary
from headcount.evaluate.errors import IncomparableModelsError
from headcount.model.errors import HeadcountError
from headcount.model.version import __version__
from headcount.running.runnable import RunnableModel, is_encoder_decoder, open_runnable
from headcount.sources.identity import check_identity

from .distillation import Objective
from .own_words import OwnWords
from .planned_rows import Models, PlannedRows, rows_of_pairs, rows_of_texts
from .rows import Rows, batch_rows
from .schedule import LearningRate, Phase, phases
from .uptrain_request import UptrainRequest, check_read

DEFAULT_SEQUENCE_LENGTH = 1024
Targets = Literal["as given", "said by the teacher"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UptrainPlan:
    """A request with everything checked and every default filled in."""

    request: UptrainRequest
    target: Path
    student: RunnableModel
    teacher: RunnableModel
    source: ConversionSource
    states: tuple[SourceState, SourceState]  # of the student's and the teacher's folder
    read: PlannedRows
    phases: tuple[Phase, ...]
    learning_rate: LearningRate
    objective: Objective

    @property
    def rows(self) -> Rows:
        return self.read.rows

    @property
    def has_encoder(self) -> bool:
        """Whether rows are pairs, of an encoder-decoder."""
        return self.read.digest is not None

    @property
    def targets(self) -> Targets | None:
        """Where those of pairs are from; None for rows of text."""
        if not self.has_encoder:
            return None
        return "as given" if self.request.pairs else "said by the teacher"

    @property
    def tokens(self) -> int:
        """Tokens that the whole training learns to predict."""
        return sum(self.rows.train.tokens(self.batch(n)) for n in range(self.request.steps))

    def batch(self, step: int) -> Tensor:
        """The numbers of the rows of a step, in all processes together."""
        request = self.request
        return batch_rows(
            step, rows=len(self.rows.train), batch_size=request.batch_size, seed=request.seed
        )

    def settings(self) -> dict[str, Any]:
        """All that decides the result but the models and texts: no paths, no times."""
        left = {"converted", "teacher", "texts", "pairs", "output_dir", "tokenizer", "device"}
        left |= {"checkpoint_every", "resume", "shard"}
        chosen = {key: value for key, value in asdict(self.request).items() if key not in left}
        return {**chosen, "sequence_length": self.rows.sequence_length}

    def job(self, *, local: bool) -> dict[str, Any]:
        """All that decides the result: equal jobs write equal bytes on the same machine. `local`:
        also sizes and times of the models' files, so that no run goes on with other weights."""
        described = [state.fingerprint for state in self.states]
        if local:
            described = [f"{state.fingerprint} {_stats(state)}" for state in self.states]
        return {
            "version": __version__,
            "CONVERTED": described[0],
            "--teacher": described[1],
            **self._read_from(),
            **{f"--{key.replace('_', '-')}": value for key, value in self.settings().items()},
        }

    def _read_from(self) -> dict[str, Any]:
        digests = [file.sha256 for file in self.read.files]
        if not self.has_encoder:
            return {"--text": digests}
        return {"--pairs" if self.request.pairs else "--text": digests, "pairs": self.read.digest}


def open_models(request: UptrainRequest) -> Models:
    """Both models, which belong together and to the files that rows are cut from. Raises
    HeadcountError."""
    check_read(request)
    student, teacher = (
        open_runnable(name, encoder_decoders=True) for name in (request.converted, request.teacher)
    )
    _check_models(student, teacher)
    return Models(
        student=student,
        teacher=teacher,
        sequence_length=_sequence_length(request, (student, teacher)),
    )


def says_targets(request: UptrainRequest, models: Models) -> bool:
    """Whether the original is asked what it says of the lines of the texts."""
    return not request.pairs and is_encoder_decoder(models.student.config)


def plan_uptraining(
    request: UptrainRequest, models: Models, said: OwnWords | None = None
) -> UptrainPlan:
    """Checks everything that can be checked without weights; `said` are the targets where
    `says_targets`. Raises HeadcountError."""
    student, teacher = models.student, models.teacher
    sources = [_read(runnable) for runnable in (student, teacher)]
    has_encoder = is_encoder_decoder(student.config)
    read = rows_of_pairs(request, models, said) if has_encoder else rows_of_texts(request, models)
    _refuse_few(request, read)
    return UptrainPlan(
        request=request,
        target=request.output_dir or _beside(student.folder),
        student=student,
        teacher=teacher,
        source=sources[0],
        states=(source_state(sources[0], (), None), source_state(sources[1], (), None)),
        read=read,
        phases=phases(request.steps, request.phase_one),
        learning_rate=LearningRate(
            peak=request.learning_rate,
            steps=request.steps,
            warmup=request.warmup,
            decay=request.decay,
        ),
        objective=Objective(
            temperature=request.temperature,
            cross_entropy=request.cross_entropy,
            hidden_loss=request.hidden_loss,
        ),
    )


def _read(runnable: RunnableModel) -> ConversionSource:
    """Raises SourceChangedError unless these are the files that `runnable` was made from."""
    source = read_source(runnable.folder)
    for path, identity in runnable.files:
        check_identity(path, source.standing.get(path.name), identity)
    return source


def _beside(folder: Path) -> Path:
    absolute = folder.absolute()
    return absolute.with_name(f"{absolute.name}-uptrained")


def _stats(state: SourceState) -> str:
    return " ".join(f"{path.name} {identity.lasting}" for path, identity in state.files)


def _refuse_few(request: UptrainRequest, read: PlannedRows) -> None:
    found, each = len(read.rows.train), read.rows.sequence_length
    if found >= request.batch_size:
        return
    if read.digest is not None:
        raise HeadcountError(
            f"{found:,} pairs are left to train on, a batch takes {request.batch_size:,}: give more"
            " pairs, or a smaller --batch-size"
        )
    raise HeadcountError(
        f"the text gives {found:,} rows of {each:,} tokens to train on, a batch takes"
        f" {request.batch_size:,}: give more text, or a smaller --batch-size or --sequence-length"
    )


def _check_models(student: RunnableModel, teacher: RunnableModel) -> None:
    check_same_vocabulary(student, teacher)
    for key, value in _shapes(student).items():
        other = _shapes(teacher)[key]
        if value != other:
            raise IncomparableModelsError(
                f"{student.id} has {key} {value}, {teacher.id} {other}: --teacher is the model that"
                f" {student.id} was made from"
            )


def _shapes(runnable: RunnableModel) -> Mapping[str, object]:
    config = runnable.config.get_text_config()
    keys = ("hidden_size", "num_hidden_layers")
    stacks = ("encoder_layers", "decoder_layers", "num_decoder_layers")
    return {
        "is_encoder_decoder": is_encoder_decoder(runnable.config),
        **{key: getattr(config, key, None) for key in keys},
        **{key: getattr(runnable.config, key, None) for key in stacks},
    }


def _sequence_length(
    request: UptrainRequest, runnables: tuple[RunnableModel, RunnableModel]
) -> int:
    limits = [limit for s in runnables if (limit := s.max_position_embeddings) is not None]
    limit = min(limits, default=None)
    if request.sequence_length is None:
        return min(limit or DEFAULT_SEQUENCE_LENGTH, DEFAULT_SEQUENCE_LENGTH)
    if limit is not None and request.sequence_length > limit:
        raise HeadcountError(
            f"--sequence-length {request.sequence_length:,}: the model has {limit:,} positions"
            " (max_position_embeddings)"
        )
    return request.sequence_length
