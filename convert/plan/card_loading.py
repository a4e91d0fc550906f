"""How what a conversion writes is loaded: the lines of a model card that say so."""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.arch.model_classes import auto_class, model_classes
from headcount.running.vocabulary_files import is_vocabulary

from ..gguf.gguf_file import NAME
from .plan import ConversionPlan

_KINDS = ("Seq2SeqLM", "SpeechSeq2Seq", "ImageTextToText", "MultimodalLM", "Vision2Seq")
_CAUSAL, _SEQ2SEQ = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
_AUTO = frozenset((_CAUSAL, *(f"AutoModelFor{kind}" for kind in _KINDS)))
FOLDER = "FOLDER"  # that of the files, or the name they have on the Hub
_OWN_CODE = (
    "The class is in the Python file beside the weights, which is why `trust_remote_code` is"
    " needed: read it first."
)
_TASKS = {_CAUSAL: "text-generation", "AutoModelForSpeechSeq2Seq": "automatic-speech-recognition"}


def task(plan: ConversionPlan) -> str | None:
    """What the Hub calls the use of the result; None where it has several, or cannot be told: a
    decoder without a tokenizer may say anything."""
    auto = _auto_class(plan.config)
    return None if auto == _CAUSAL and not _has_vocabulary(plan) else _TASKS.get(auto or "")


def loading(plan: ConversionPlan) -> Iterator[str]:
    """A fenced block that loads the result of `plan` and lets it speak, where it says text."""
    has_vocabulary = _has_vocabulary(plan)
    if plan.gguf is not None:
        yield from _llama_cpp(has_vocabulary)
        return
    name, remote = _class_of(plan.config)
    speaks = has_vocabulary and _says_text(plan.config)
    yield "```python"
    yield from (_speaking if speaks else _alone)(name, ", trust_remote_code=True" if remote else "")
    yield "```"
    if remote:
        yield from ("", _OWN_CODE)
    if not has_vocabulary:
        yield from ("", "There is no tokenizer beside it.")


def _has_vocabulary(plan: ConversionPlan) -> bool:
    if plan.gguf is not None:
        return plan.gguf.vocabulary != "none"
    return any(is_vocabulary(file.name) for file in plan.side_files)


def _llama_cpp(has_vocabulary: bool) -> Iterator[str]:
    if not has_vocabulary:
        yield "The file has no vocabulary, since the source has no tokenizer: give it tokens."
        return
    yield from ("```sh", f"llama-server -m {FOLDER}/{NAME}", "```")


def _alone(name: str, own: str) -> Iterator[str]:
    yield f"from transformers import {name}"
    yield ""
    yield f'model = {name}.from_pretrained("{FOLDER}"{own})'


def _speaking(name: str, own: str) -> Iterator[str]:
    """What a tokenizer gives beside tokens and mask (token_type_ids) is not every model's to
    read."""
    names = sorted((name, "AutoTokenizer"))
    yield f"from transformers import {', '.join(names)}"
    yield ""
    yield f'folder = "{FOLDER}"'
    yield f"tokenizer = AutoTokenizer.from_pretrained(folder{own})"
    yield f"model = {name}.from_pretrained(folder{own})"
    yield 'text = tokenizer("Once upon a time", return_tensors="pt")'
    yield "output = model.generate("
    yield "    text.input_ids, attention_mask=text.attention_mask, max_new_tokens=32"
    yield ")"
    yield "print(tokenizer.decode(output[0], skip_special_tokens=True))"


def _class_of(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The class of transformers to load it with, and whether that runs code of the folder."""
    saved, auto = _saved(config), _auto_class(config)
    if isinstance(config.get("auto_map"), dict):
        return auto or _CAUSAL, True
    if auto == _CAUSAL or not saved.isidentifier():
        return _CAUSAL, False
    return saved, False


def _says_text(config: Mapping[str, Any]) -> bool:
    """Whether it reads a text, and nothing else, and says one."""
    auto = _auto_class(config)
    return auto == _CAUSAL or (auto == _SEQ2SEQ and bool(config.get("is_encoder_decoder")))


def _auto_class(config: Mapping[str, Any]) -> str | None:
    """The auto class that takes the class in `config`; None where that cannot be told."""
    saved, own = _saved(config), config.get("auto_map")
    if isinstance(own, dict):
        of_saved = (auto for auto, found in own.items() if str(found).endswith(f".{saved}"))
        return next((auto for auto in of_saved if auto in _AUTO), None)
    if saved.endswith(("ForCausalLM", "LMHeadModel")):
        return _CAUSAL
    return auto_class(saved, model_classes(str(config.get("model_type"))))


def _saved(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])
