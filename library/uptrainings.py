"""`headcount.uptrain`: a converted model, trained to predict what its original predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.running.extra import need_extra
from headcount.uptrain.uptrain_request import (
    COMPUTE_DTYPES,
    DECAYS,
    ComputeDtype,
    Decay,
    UptrainRequest,
)

from .result import Result, bars, public
from .values import Check, Name, Size, flag, integer, number, one_of, path, settled, tokens
from .values import named as folder_name
from .values import text as a_text

_DEFAULTS = UptrainRequest(converted="", teacher="")


@dataclass(frozen=True, kw_only=True)
class UptrainingScores:
    """On text that was not trained on: nats a token, and the share of tokens that model and teacher
    rank first alike. `delta_loss` is what is above the teacher's."""

    loss: float
    teacher_loss: float
    delta_loss: float
    kl_divergence: float
    top1_agreement: float
    tokens: int


@dataclass(frozen=True, kw_only=True, eq=False)
class UptrainingResult(Result):
    """What training did; the model lies at `target`. `loss_gap_closed` and `kl_gap_closed` are
    shares of what separated the two; None where nothing did. `seconds` of the steps is None where
    an earlier run has done it before."""

    target: Path
    teacher: str
    before: UptrainingScores
    after: UptrainingScores
    loss_gap_closed: float | None
    kl_gap_closed: float | None
    steps: int
    tokens: int
    seconds: float | None
    done_before: bool


@public
def uptrain(
    converted: Name,
    *,
    teacher: Name,
    text: Name | Sequence[Name] = (),
    pairs: Name | Sequence[Name] = (),
    output_dir: Name | None = None,
    steps: int = _DEFAULTS.steps,
    phase_one: float = _DEFAULTS.phase_one,
    learning_rate: float = _DEFAULTS.learning_rate,
    warmup: int = _DEFAULTS.warmup,
    decay: Decay = _DEFAULTS.decay,
    batch_size: int = _DEFAULTS.batch_size,
    sequence_length: Size | None = None,
    gradient_accumulation: int = _DEFAULTS.gradient_accumulation,
    temperature: float = _DEFAULTS.temperature,
    cross_entropy: float = _DEFAULTS.cross_entropy,
    hidden_loss: float = _DEFAULTS.hidden_loss,
    held_out: Size = _DEFAULTS.held_out,
    tokenizer: Name | None = None,
    dtype: ComputeDtype | None = None,
    device: str | None = None,
    shard: bool = False,
    seed: int = _DEFAULTS.seed,
    checkpoint_every: int = _DEFAULTS.checkpoint_every,
    resume: bool = True,
    progress: bool = False,
) -> UptrainingResult:
    """Trains the model in the folder `converted` to predict what `teacher`, the original in its
    folder, predicts on `text`, one or several UTF-8 files; an encoder-decoder on `pairs`, files of
    sources and targets, or on what `teacher` says of the lines of `text`. Needs the extra
    `convert`.

    The result lies in `output_dir` (None: CONVERTED-uptrained), a new folder; both models are only
    read, and a second call finds it done. First attention and norms learn, for the share
    `phase_one` of the steps, then all weights. `batch_size` counts the rows of a step in all
    processes, of `sequence_length` tokens each; `cross_entropy` and `hidden_loss` are weights
    beside the KL divergence. The process that calls it does all the work, as with `convert`; to
    share it (and with `shard` the weights), start the command with a launcher (docs/scale.md).

    Raises HeadcountError, and TrainingFailedError where a loss is not finite.
    """
    need_extra("headcount.uptrain")
    schedule: dict[str, Any] = {
        "steps": steps,
        "phase_one": phase_one,
        "learning_rate": learning_rate,
    }
    schedule |= {"warmup": warmup, "decay": decay, "batch_size": batch_size}
    rows = {"sequence_length": sequence_length, "gradient_accumulation": gradient_accumulation}
    losses = {"temperature": temperature, "cross_entropy": cross_entropy}
    losses |= {"hidden_loss": hidden_loss}
    run = {"held_out": held_out, "tokenizer": tokenizer, "dtype": dtype, "device": device}
    run |= {"seed": seed, "checkpoint_every": checkpoint_every, "resume": resume}
    run |= {"shard": shard}
    given = settled({**schedule, **rows, **losses, **run, "output_dir": output_dir}, _CHECKS)
    request = UptrainRequest(
        converted=folder_name("converted", converted),
        teacher=folder_name("teacher", teacher),
        texts=_paths("text", text),
        pairs=_paths("pairs", pairs),
        **given,
    )
    with bars(progress):
        return _uptrained(request)


def _paths(name: str, given: Name | Sequence[Name]) -> tuple[Path, ...]:
    listed = [given] if isinstance(given, str | PathLike) else list(given)
    return tuple(path(name, one) for one in listed)


def _share(name: str, value: Any) -> float:
    if number(name, value) > 1:
        raise HeadcountError(f"{name} is {value}; a share from 0 to 1 is meant")
    return float(value)


def _positive(name: str, value: Any) -> float:
    if number(name, value) == 0:
        raise HeadcountError(f"{name} is 0; more is meant")
    return float(value)


_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("steps", "batch_size", "gradient_accumulation"), integer),
    **dict.fromkeys(("warmup", "checkpoint_every"), partial(integer, least=0)),
    **dict.fromkeys(("cross_entropy", "hidden_loss"), number),
    **dict.fromkeys(("learning_rate", "temperature"), _positive),
    **dict.fromkeys(("sequence_length", "held_out"), tokens),
    **dict.fromkeys(("output_dir", "tokenizer"), path),
    **{"phase_one": _share, "decay": one_of(DECAYS), "dtype": one_of(COMPUTE_DTYPES)},
    **{"device": a_text, "shard": flag, "resume": flag, "seed": partial(integer, least=-(2**63))},
}


def _uptrained(request: UptrainRequest) -> UptrainingResult:
    from headcount.uptrain.uptrain_report import uptraining_report
    from headcount.uptrain.uptraining import uptrain as uptraining_of

    done = uptraining_of(request)
    report = uptraining_report(done)
    document: Mapping[str, Any] = report.document
    closed = document["gap_closed"]
    return UptrainingResult(
        report=report,
        target=done.plan.target,
        **{name: document[name] for name in ("teacher", "steps", "tokens", "seconds")},
        before=_scores(document["before"]),
        after=_scores(document["after"]),
        loss_gap_closed=closed["loss"],
        kl_gap_closed=closed["kl_divergence"],
        done_before=document["done_before"],
    )


def _scores(document: Mapping[str, Any]) -> UptrainingScores:
    return UptrainingScores(
        **{name: document[name] for name in UptrainingScores.__dataclass_fields__}
    )
