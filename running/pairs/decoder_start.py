"""What the decoder of an encoder-decoder begins with."""

from typing import Any

from transformers import GenerationConfig

from headcount.model.errors import HeadcountError

from ..runnable import RunnableModel


def decoder_start(runnable: RunnableModel) -> int:
    """The token. Raises HeadcountError where neither config nor generation config names one."""
    try:
        known: Any = GenerationConfig.from_pretrained(runnable.folder, local_files_only=True)
    except OSError:  # there is no such file
        known = GenerationConfig.from_model_config(runnable.config)
    start = known.decoder_start_token_id
    if start is None:
        start = getattr(runnable.config, "decoder_start_token_id", None)
    if not isinstance(start, int):
        raise HeadcountError(
            f"{runnable.id}: neither config.json nor generation_config.json has a"
            " decoder_start_token_id, so that it is not known what its decoder begins with"
        )
    return start
