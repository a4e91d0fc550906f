"""The border to transformers and torch: their chatter is silenced, their errors become ours."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from headcount.model.errors import HeadcountError


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars, warnings or log lines of transformers inside; as it was afterwards."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def third_party(what: str) -> Iterator[None]:
    """Any error inside becomes a HeadcountError of one line: `what`, then the first line of it.

    Loading or running a stranger's folder can raise nearly any type, so all of them are meant.
    """
    try:
        yield
    except (HeadcountError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        detail = lines[0] if lines else type(error).__name__
        raise HeadcountError(f"{what}: {detail}") from error


def run_model(model: PreTrainedModel, **inputs: Any) -> Any:
    """What `model` gives for `inputs`. Raises HeadcountError if its own code fails."""
    with third_party("transformers cannot run the model"):
        output = model(**inputs)
        if isinstance(output, tuple):
            raise HeadcountError(
                "config.json makes the model return a tuple, which evaluate does not read: remove"
                " return_dict from a copy"
            )
        return output


@contextmanager
def out_of_memory_explained(
    remedy: str = "a smaller --window, --dtype bfloat16, or --torch-device cpu",
) -> Iterator[None]:
    """Turns running out of memory into a HeadcountError that says what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise HeadcountError(f"out of memory: try {remedy}") from error
