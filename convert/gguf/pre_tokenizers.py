"""Which pre-tokenizer of llama.cpp cuts a text as one of the package tokenizers does.

The left sides are `pre_tokenizer`s of tokenizer.json, the right sides the names of
src/llama-vocab.cpp (load of llama_vocab) whose regular expressions are the same. llama.cpp's own
converter knows published vocabularies by a digest of their tokens; this way a vocabulary that
somebody has trained is known, too.
"""

from collections.abc import Mapping
from typing import Any

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"  # noqa: RUF001
# (regular expression, whether whole words come before merges) -> name
_BY_REGEX = {
    (_LLAMA3, True): "llama-bpe",
    (_LLAMA3, False): "dbrx",
    (_QWEN2, False): "qwen2",
    (_GPT4O, False): "gpt-4o",
    (_TEKKEN, True): "tekken",
    (_BLOOM, False): "bloom",
}
# kinds of pre-tokenizers before the bytes -> name, where no regular expression is given
_BY_KINDS = {
    ("ByteLevel",): "gpt-2",
    ("Digits", "ByteLevel"): "starcoder",
    ("Punctuation", "ByteLevel", "Digits", "Split"): "falcon",
}
_FALCON_DIGITS = "[0-9][0-9][0-9]"


def pre_tokenizer_name(spec: Mapping[str, Any], *, ignores_merges: bool) -> str | None:
    """llama.cpp's name for the `pre_tokenizer` of a tokenizer.json whose symbols are bytes; None
    where it has none that is the same."""
    parts = spec["pretokenizers"] if spec.get("type") == "Sequence" else [spec]
    kinds = tuple(str(part.get("type")) for part in parts)
    if kinds == ("Split", "ByteLevel"):
        split, byte_level = parts
        if byte_level.get("use_regex", True) or byte_level.get("add_prefix_space"):
            return None
        return _BY_REGEX.get((_regex(split), ignores_merges))
    name = _BY_KINDS.get(kinds)
    if name is None or ignores_merges or not all(map(_is_as_known, parts)):
        return None
    digits = [part for part in parts if part["type"] == "Digits"]
    if any(bool(one.get("individual_digits")) != (name == "starcoder") for one in digits):
        return None
    return name


def _is_as_known(part: Mapping[str, Any]) -> bool:
    """Whether the settings of a part are those that llama.cpp's expressions stand for."""
    match part["type"]:
        case "ByteLevel":
            return not part.get("add_prefix_space") and bool(part.get("use_regex", True))
        case "Punctuation":
            return part.get("behavior") == "Contiguous"
        case "Split":
            return _regex(part) == _FALCON_DIGITS
    return True


def _regex(split: Mapping[str, Any]) -> str:
    """The expression of a Split that cuts out what it matches; empty for any other Split."""
    if split.get("behavior") != "Isolated" or split.get("invert"):
        return ""
    return str(split["pattern"].get("Regex", ""))
