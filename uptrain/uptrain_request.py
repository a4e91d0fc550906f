"""What an uptraining is asked for. Light: the command line reads its names and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

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
