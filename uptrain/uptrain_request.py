"""What an uptraining is asked for. Light: the command line reads its names and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from headcount.audit import audit_model
from headcount.model.errors import HeadcountError

Decay = Literal["cosine", "linear"]
DECAYS: tuple[Decay, ...] = get_args(Decay)
ComputeDtype = Literal["float32", "bfloat16"]
COMPUTE_DTYPES: tuple[ComputeDtype, ...] = get_args(ComputeDtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class UptrainRequest:
    """What to train, on what, and how. Rows, steps and losses do not depend on how many processes
    share the work: `batch_size` counts the rows of a step in all of them. A pair is a row."""

    converted: str  # a folder
    teacher: str  # the folder of the original
    texts: tuple[Path, ...] = ()  # UTF-8
    pairs: tuple[Path, ...] = ()  # of an encoder-decoder; without, lines of the texts
    output_dir: Path | None = None  # None: CONVERTED-uptrained, beside CONVERTED
    tokenizer: Path | None = None  # a folder; None: that of CONVERTED
    steps: int = 200
    phase_one: float = 0.25  # share of the steps in which only attention and norms learn
    learning_rate: float = 1e-3
    warmup: int = 20  # steps
    decay: Decay = "cosine"
    batch_size: int = 8  # rows, or pairs
    sequence_length: int | None = None  # tokens; None: min(max_position_embeddings, 1024)
    gradient_accumulation: int = 1  # parts of a batch, one after the other
    held_out: int = 16384  # tokens, at most a tenth of the text
    temperature: float = 1.0
    cross_entropy: float = 0.0
    hidden_loss: float = 0.0
    dtype: ComputeDtype | None = None  # None: as the launcher says, else float32
    device: str | None = None  # cpu; None: as the launcher says, else the first accelerator
    shard: bool = False  # the processes share weights, gradients and optimizer
    seed: int = 0
    checkpoint_every: int = 100  # steps; 0: none but that between the phases
    resume: bool = True


def check_read(request: UptrainRequest) -> None:
    """Raises HeadcountError unless there are texts to learn from, or pairs of an encoder-decoder.

    Light: what is missing is told before torch is imported.
    """
    if request.pairs and request.texts:
        raise HeadcountError(
            "--pairs and --text: give one of them; of pairs the targets are learned, of the lines"
            " of a text what the original says of them"
        )
    if request.pairs and not _has_encoder(request.converted):
        raise HeadcountError(
            f"{request.converted}: --pairs is for encoder-decoders; of a decoder give --text"
        )
    if not (request.pairs or request.texts):
        more = (
            "; of an encoder-decoder --pairs FILE (sources and targets, .tsv or .jsonl), or --text"
            " FILE, each line of which is a source"
        )
        raise HeadcountError(
            f"{request.converted}: nothing to learn from: give --text FILE"
            f"{more if _has_encoder(request.converted) else ''}"
        )


def _has_encoder(folder: str) -> bool:
    stacks = {layer.stack for layer in audit_model(folder).spec.layers}
    return stacks >= {"encoder", "decoder"}
