"""What an evaluation is asked for. Light: the command line reads its defaults."""

from dataclasses import dataclass
from pathlib import Path

MIN_REPEATS = 3
BEHAVIOURS = ("none", "brief", "full")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationRequest:
    """What to evaluate; None means the default that the field's comment gives."""

    model: str  # a folder
    against: str | None = None  # the folder of the original; None: no comparison
    text: Path | None = None  # UTF-8; None: the sample in the package
    pairs: Path | None = None  # of an encoder-decoder; None: lines of the text, and what it says
    documents: bool = False  # each line of the text, or file of the folder, is one sequence
    tokenizer: Path | None = None  # a folder; None: the model's
    window: int | None = None  # tokens; None: min(max_position_embeddings, 1024)
    stride: int | None = None  # tokens; None: half the window
    max_tokens: int = 16384  # at most so many tokens are scored
    dtype: str | None = None  # None: the checkpoint's
    device: str | None = None  # None: cuda where there is one, else cpu
    tasks: tuple[str, ...] = ()  # of lm-evaluation-harness
    task_folder: Path | None = None  # with tasks of the user's own
    task_limit: int | None = None  # questions of each task; None: all
    behaviour: str = "brief"  # how much of the context's use is probed: one of BEHAVIOURS
    roles: bool = True  # of heads, against those of the original
    speed: bool = True
    repeats: int = MIN_REPEATS  # timed runs a model, after one warm-up
