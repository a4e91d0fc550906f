"""How what a conversion writes is loaded: the lines of a model card that say so."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..gguf.gguf_file import NAME

_KINDS = ("Seq2SeqLM", "SpeechSeq2Seq", "ImageTextToText", "MultimodalLM", "Vision2Seq")
_CAUSAL = "AutoModelForCausalLM"
_AUTO = frozenset((_CAUSAL, *(f"AutoModelFor{kind}" for kind in _KINDS)))
FOLDER = "FOLDER"  # that of the files, or the name they have on the Hub


def loading(config: Mapping[str, Any], *, is_gguf: bool) -> Iterator[str]:
    """A fenced block, after what `config` says of its class."""
    if is_gguf:
        yield from ("```sh", f"llama-server -m {NAME}", "```")
        return
    name, remote = _class_of(config)
    own = ", trust_remote_code=True" if remote else ""
    yield "```python"
    yield f"from transformers import {name}"
    yield ""
    yield f'model = {name}.from_pretrained("{FOLDER}"{own})'
    yield "```"
    if remote:
        yield ""
        yield (
            "The class is in the Python file beside the weights, which is why `trust_remote_code`"
            " is needed: read it first."
        )


def _class_of(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The class of transformers to load it with, and whether that runs code of the folder."""
    saved = str((config.get("architectures") or [""])[0])
    own = config.get("auto_map")
    if isinstance(own, dict):
        of_saved = (auto for auto, found in own.items() if str(found).endswith(f".{saved}"))
        return next((auto for auto in of_saved if auto in _AUTO), _CAUSAL), True
    if saved.endswith(("ForCausalLM", "LMHeadModel")) or not saved.isidentifier():
        return _CAUSAL, False
    return saved, False
