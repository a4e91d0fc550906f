"""How the request of an uptraining is settled, before any weight is read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.convert.plan.source import ConversionSource, SourceState, read_source, source_state
from headcount.evaluate.comparable import check_same_tokens, check_same_vocabulary
from headcount.evaluate.documents import encode_documents
from headcount.evaluate.errors import IncomparableModelsError
from headcount.model.errors import HeadcountError
from headcount.model.version import __version__
from headcount.running.runnable import RunnableModel, open_runnable
from headcount.running.text import Text, read_text
from headcount.running.tokens import check_ids, encode, has_vocabulary, load_tokenizer
from headcount.sources.identity import check_identity

from .distillation import Objective
from .schedule import LearningRate, Phase, phases
from .text_rows import TextRows, pack_rows
from .uptrain_request import UptrainRequest

MAX_TOKENS = 2**40  # no limit: the text's own size has one
SHORT_TEXT_TOKENS = 4096  # of the first text, to compare two tokenizers with
DEFAULT_SEQUENCE_LENGTH = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class UptrainPlan:
    """A request with everything checked and every default filled in."""

    request: UptrainRequest
    target: Path
    student: RunnableModel
    teacher: RunnableModel
    source: ConversionSource
    states: tuple[SourceState, SourceState]  # of the student's and the teacher's folder
    texts: tuple[Text, ...]
    rows: TextRows
    unknown: int  # tokens that stand for what the vocabulary lacks
    phases: tuple[Phase, ...]
    learning_rate: LearningRate
    objective: Objective

    @property
    def tokens(self) -> int:
        """Tokens that the whole training reads."""
        return self.request.steps * self.request.batch_size * self.rows.sequence_length

    def settings(self) -> dict[str, Any]:
        """All that decides the result but the models and texts: no paths, no times."""
        left = {"converted", "teacher", "texts", "output_dir", "tokenizer", "device"}
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
            "--text": [text.sha256 for text in self.texts],
            **{f"--{key.replace('_', '-')}": value for key, value in self.settings().items()},
        }


def plan_uptraining(request: UptrainRequest) -> UptrainPlan:
    """Checks everything that can be checked without weights. Raises HeadcountError."""
    texts = tuple(read_text(path) for path in request.texts)
    student, teacher = open_runnable(request.converted), open_runnable(request.teacher)
    _check_pair(student, teacher, request)
    sources = [_read(runnable) for runnable in (student, teacher)]
    sequence_length = _sequence_length(request, (student, teacher))
    rows, unknown = _rows(request, texts, student, teacher, sequence_length)
    if len(rows.train) < request.batch_size:
        raise HeadcountError(
            f"the text gives {len(rows.train):,} rows of {sequence_length:,} tokens to train on, a"
            f" batch takes {request.batch_size:,}: give more text, or a smaller --batch-size or"
            " --sequence-length"
        )
    return UptrainPlan(
        request=request,
        target=request.output_dir or _beside(student.folder),
        student=student,
        teacher=teacher,
        source=sources[0],
        states=(source_state(sources[0], (), None), source_state(sources[1], (), None)),
        texts=texts,
        rows=rows,
        unknown=unknown,
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


def _check_pair(student: RunnableModel, teacher: RunnableModel, request: UptrainRequest) -> None:
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
    return {key: getattr(config, key, None) for key in keys}


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


def _rows(
    request: UptrainRequest,
    texts: tuple[Text, ...],
    student: RunnableModel,
    teacher: RunnableModel,
    sequence_length: int,
) -> tuple[TextRows, int]:
    """The rows, and how many tokens stand for text that the vocabulary lacks."""
    folder = request.tokenizer or student.folder
    tokenizer = load_tokenizer(folder)
    if request.tokenizer is None and has_vocabulary(teacher.folder):
        first = (texts[0], texts[:1])
        check_same_tokens(
            tokenizer,
            student,
            teacher,
            read=first,
            encoded=encode_documents(tokenizer, *first, SHORT_TEXT_TOKENS),
            max_tokens=SHORT_TEXT_TOKENS,
        )
    ids: list[Tensor] = []
    unknown = 0
    for text in texts:
        tokens = encode(tokenizer, text, MAX_TOKENS)
        for runnable in (student, teacher):
            check_ids(tokens, runnable)
        ids.append(torch.tensor(tokens.ids))
        unknown += tokens.unknown
    rows = pack_rows(
        ids,
        sequence_length=sequence_length,
        held_out=request.held_out,
        end=tokenizer.eos_token_id,
    )
    return rows, unknown
