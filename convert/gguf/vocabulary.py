"""The vocabulary of a file: tokens, their kinds, and how a text is cut into them.

llama.cpp has its own tokenizers (src/llama-vocab.cpp): "gpt2" merges bytes as byte-level BPE does,
and "llama" merges the pair whose token has the highest score, as SentencePiece does. What
transformers makes of a model's files is held against both; anything else is refused.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gguf import TokenType

from headcount.running.tokens import has_vocabulary, load_tokenizer

from ..plan.errors import CannotConvertError
from .gguf_file import KeyValue
from .pre_tokenizers import pre_tokenizer_name
from .sentencepiece_scores import scores_of

_SPACE = "\u2581"
_NAMES = ("bos", "eos", "unk", "sep", "pad", "mask")
# Normalizers that change nothing about most texts: llama.cpp has none for byte-level BPE.
_COMPOSING = ("NFC",)
_WITHOUT = (
    "; convert a copy of the folder without its tokenizer's files: the GGUF file then has no"
    " vocabulary, and is given tokens"
)


class Vocabulary(NamedTuple):
    """Key-values, and what a reader should know of them."""

    keys: tuple[KeyValue, ...]
    notes: tuple[str, ...]


def vocabulary_of(folder: Path, rows: int) -> Vocabulary:
    """The vocabulary of the model in `folder`, whose embedding has so many `rows`; an empty one
    where the folder has no tokenizer. Raises CannotConvertError."""
    if not has_vocabulary(folder):
        return Vocabulary(
            (KeyValue("tokenizer.ggml.model", "str", "none"),),
            ("the source has no tokenizer, so the file has no vocabulary: give it tokens",),
        )
    tokenizer = load_tokenizer(folder)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise _refusal(folder, "its tokenizer is none of the package tokenizers")
    spec = json.loads(backend.to_str())
    size = 1 + max(tokenizer.get_vocab().values(), default=-1)
    if size > rows:
        raise _refusal(folder, f"its tokenizer has {size:,} tokens, its embedding {rows:,} rows")
    model = _model_keys(folder, spec, tokenizer, rows)
    return Vocabulary(
        (*model, *_special(tokenizer, spec), *_template(tokenizer)), tuple(_notes(spec))
    )


def _refusal(folder: Path, what: str) -> CannotConvertError:
    return CannotConvertError(f"{folder}: {what}{_WITHOUT}")


def _model_keys(
    folder: Path, spec: Mapping[str, Any], tokenizer: Any, rows: int
) -> Iterator[KeyValue]:
    """How texts are cut, and into which tokens."""
    model = spec["model"]
    if model.get("type") != "BPE":
        raise _refusal(
            folder, f"llama.cpp cuts no text as its tokenizer ({model.get('type')}) does"
        )
    if any(model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix")):
        raise _refusal(folder, "llama.cpp knows no tokens with marks at the ends of words")
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tokens = Tokens.of(spec, rows, is_spm=_is_spm(spec))
    if tokens.is_spm:
        yield from _spm(folder, spec, tokens, merges)
    else:
        yield from _bpe(folder, spec, tokens, merges)


class Tokens(NamedTuple):
    """The text and the kind of each row of the embedding."""

    texts: list[str]
    kinds: list[int]
    is_spm: bool

    @classmethod
    def of(cls, spec: Mapping[str, Any], rows: int, *, is_spm: bool) -> "Tokens":
        texts = [f"[PAD{i}]" for i in range(rows)]
        kinds = [int(TokenType.UNUSED)] * rows
        for text, number in spec["model"]["vocab"].items():
            texts[number], kinds[number] = text, int(_kind(text, spec, is_spm))
        for added in spec.get("added_tokens") or ():
            kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
            is_unknown = is_spm and added["content"] == spec["model"].get("unk_token")
            texts[added["id"]] = added["content"]
            kinds[added["id"]] = int(TokenType.UNKNOWN if is_unknown else kind)
        return cls(texts, kinds, is_spm)

    def keys(self) -> Iterator[KeyValue]:
        yield KeyValue("tokenizer.ggml.tokens", "[str]", self.texts)
        yield KeyValue("tokenizer.ggml.token_type", "[i32]", self.kinds)


def _kind(text: str, spec: Mapping[str, Any], is_spm: bool) -> TokenType:
    if not is_spm:
        return TokenType.NORMAL
    if text == spec["model"].get("unk_token"):
        return TokenType.UNKNOWN
    is_byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    return TokenType.BYTE if is_byte else TokenType.NORMAL


def _bpe(
    folder: Path, spec: Mapping[str, Any], tokens: Tokens, merges: Sequence[tuple[str, ...]]
) -> Iterator[KeyValue]:
    """Bytes that are merged in the order of a list, within what a regular expression cuts."""
    unknown = [n for n in _normalizers(spec) if n not in _COMPOSING]
    if unknown:
        raise _refusal(folder, f"llama.cpp changes no text as its tokenizer does ({unknown[0]})")
    name = pre_tokenizer_name(
        spec.get("pre_tokenizer") or {}, ignores_merges=bool(spec["model"].get("ignore_merges"))
    )
    if name is None:
        raise _refusal(
            folder, "llama.cpp has no pre-tokenizer that cuts texts as its tokenizer.json says"
        )
    yield KeyValue("tokenizer.ggml.model", "str", "gpt2")
    yield KeyValue("tokenizer.ggml.pre", "str", name)
    yield from tokens.keys()
    yield KeyValue("tokenizer.ggml.merges", "[str]", [" ".join(pair) for pair in merges])


def _spm(
    folder: Path, spec: Mapping[str, Any], tokens: Tokens, merges: Sequence[tuple[str, ...]]
) -> Iterator[KeyValue]:
    """Characters that are merged by the scores of tokens, spaces written as ▁."""
    scores = scores_of(spec["model"]["vocab"], merges)
    if scores is None:
        raise _refusal(
            folder, "the merges of its tokenizer are not those of scores, as SentencePiece has them"
        )
    known = [scores.get(text, 0.0) for text in tokens.texts]
    yield KeyValue("tokenizer.ggml.model", "str", "llama")
    yield KeyValue("tokenizer.ggml.pre", "str", "default")
    yield from tokens.keys()
    yield KeyValue("tokenizer.ggml.scores", "[f32]", known)
    yield KeyValue("tokenizer.ggml.add_space_prefix", "bool", _adds_space(spec))


def _is_spm(spec: Mapping[str, Any]) -> bool:
    """Whether spaces become ▁, no text is cut before it is merged, and bytes are a last resort."""
    if not spec["model"].get("byte_fallback"):
        return False
    pre = spec.get("pre_tokenizer")
    if not all(map(_marks_spaces, _normalizer_specs(spec))):
        return False
    kinds = set(_normalizers(spec))
    if pre is None:
        return "Replace" in kinds
    if pre.get("type") == "Split":  # at spaces, which the normalizer has replaced: cuts nothing
        return pre.get("pattern") == {"String": " "} and kinds == {"Replace"}
    return pre.get("type") == "Metaspace" and not pre.get("split", True) and not kinds


def _adds_space(spec: Mapping[str, Any]) -> bool:
    """Whether a text begins with a ▁ that is not its own."""
    pre = spec.get("pre_tokenizer") or {}
    if pre.get("type") == "Metaspace":
        return bool(pre.get("prepend_scheme", "always") != "never")
    return "Prepend" in _normalizers(spec)


def _marks_spaces(normalizer: Mapping[str, Any]) -> bool:
    """Whether it writes spaces as ▁, or puts one in front."""
    if normalizer["type"] == "Prepend":
        return normalizer.get("prepend") == _SPACE
    return normalizer["type"] == "Replace" and (
        normalizer.get("pattern"),
        normalizer.get("content"),
    ) == ({"String": " "}, _SPACE)


def _normalizers(spec: Mapping[str, Any]) -> list[str]:
    """The kinds of all normalizers, in their order."""
    return [one["type"] for one in _normalizer_specs(spec)]


def _normalizer_specs(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    one = spec.get("normalizer")
    if one is None:
        return []
    return list(one["normalizers"]) if one["type"] == "Sequence" else [one]


def _special(tokenizer: Any, spec: Mapping[str, Any]) -> Iterator[KeyValue]:
    """The ids of special tokens, and which of them a text gets."""
    for name in _NAMES:
        number = getattr(tokenizer, f"{name}_token_id", None)
        if isinstance(number, int):
            written = {"unk": "unknown", "sep": "seperator", "pad": "padding"}.get(name, name)
            yield KeyValue(f"tokenizer.ggml.{written}_token_id", "u32", number)
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    before = whole[: len(whole) - len(plain)] if whole[-len(plain) :] == plain else whole[:1]
    ids = {name: getattr(tokenizer, f"{name}_token_id", None) for name in _NAMES}
    yield KeyValue(
        "tokenizer.ggml.add_bos_token",
        "bool",
        whole != plain and ids["bos"] is not None and before[:1] == [ids["bos"]],
    )
    yield KeyValue(
        "tokenizer.ggml.add_eos_token",
        "bool",
        whole != plain and ids["eos"] is not None and whole[-1:] == [ids["eos"]] != plain[-1:],
    )


def _template(tokenizer: Any) -> Iterator[KeyValue]:
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, str) and template:
        yield KeyValue("tokenizer.chat_template", "str", template)


def _notes(spec: Mapping[str, Any]) -> Iterator[str]:
    if any(name in _COMPOSING for name in _normalizers(spec)) and not _is_spm(spec):
        yield (
            "the tokenizer composes characters (NFC), and llama.cpp does not: texts that are not"
            " composed become other tokens"
        )
