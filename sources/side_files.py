"""What lies beside the weights in a folder: names, and the few facts that rules ask of them.

Nothing is executed or rendered, links that lead out of the folder are not followed, and a file that
is not what it should be is a fact, not an error; one that a failing disk does not give is an error.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.model.numbers import whole

from .adapter import Adapter, find_adapter
from .checkpoint import ADAPTER_CONFIG
from .json_file import BYTE_ORDER_MARK, NotJsonError, read_json_file
from .presence import is_failing_disk, is_there

_CONFIGS = ("tokenizer_config.json", "generation_config.json")


class TokenizerConfig(NamedTuple):
    """Of tokenizer_config.json: the length it states, paths of code it names, its chat template."""

    model_max_length: int | None
    remote_code: tuple[str, ...]
    trusts: bool
    template: str | None


class Unreadable(NamedTuple):
    """A file, the reason, and whether its bytes are not those that were written."""

    name: str
    reason: str
    is_broken: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFiles:
    """`names` are all entries, as far as they are looked at, and `more` how many are not;
    `code_folders` those of sub-folders that hold Python; `leaving` are links out of the folder.
    `largest_token` is the highest id of tokenizer.json but for its special tokens, and
    `largest_special` that of these. `generation` are the special tokens of generation_config.json.
    None: no such file, or not readable."""

    folder: Path
    names: frozenset[str]
    more: int
    code_folders: tuple[str, ...]
    leaving: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]
    largest_token: int | None
    largest_special: int | None
    adapter: Adapter | None
    tokenizer: TokenizerConfig | None
    generation: Mapping[str, tuple[int, ...]] | None


def read_side_files(folder: Path) -> SideFiles:
    """The entries of `folder`, and tokenizer and generation facts as far as they can be read."""
    entries, more = _entries(folder)
    leaving = tuple(sorted(entry.name for entry in entries if _leaves(folder, entry)))
    names = frozenset(entry.name for entry in entries)
    unreadable: list[Unreadable] = []
    read: dict[str, Mapping[str, Any]] = {}
    for name in (*_CONFIGS, "tokenizer.json"):
        if name in names and name not in leaving:
            limit = limits.TOKENIZER_BYTES if name == "tokenizer.json" else limits.JSON_BYTES
            try:
                value, file = read_json_file(folder / name, limit)
                if file.start.startswith(BYTE_ORDER_MARK):
                    raise HeadcountError(
                        "begins with a byte-order mark, which transformers refuses"
                    )
                read[name] = value
            except HeadcountError as error:
                if is_failing_disk(error):
                    raise
                reason = str(error).removeprefix(f"{folder / name}: ")
                unreadable.append(Unreadable(name, reason, isinstance(error, NotJsonError)))
    tokenizer = read.get("tokenizer.json")
    return SideFiles(
        folder=folder,
        names=names,
        more=more,
        code_folders=_code_folders(entries),
        leaving=leaving,
        unreadable=tuple(unreadable),
        largest_token=_largest_token(tokenizer, special=False),
        largest_special=_largest_token(tokenizer, special=True),
        adapter=find_adapter(folder) if ADAPTER_CONFIG in names - set(leaving) else None,
        tokenizer=_tokenizer(read.get("tokenizer_config.json")),
        generation=_generation(read.get("generation_config.json")),
    )


def _entries(folder: Path) -> tuple[list["os.DirEntry[str]"], int]:
    """The first entries of `folder`, and how many there are beside them."""
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, limits.FOLDER_ENTRIES.most))
            more = sum(1 for _ in entries)
    except OSError as error:
        raise HeadcountError(f"{folder}: cannot be listed: {error.strerror}") from error
    return found, more


def _leaves(folder: Path, entry: "os.DirEntry[str]") -> bool:
    """A link that ends neither in the folder nor in the blobs of its own Hub cache entry."""
    if not entry.is_symlink():
        return False
    real, home = Path(os.path.realpath(entry.path)), Path(os.path.realpath(folder))
    return not (real.is_relative_to(home) or real.is_relative_to(home.parent.parent / "blobs"))


def _code_folders(entries: list["os.DirEntry[str]"]) -> tuple[str, ...]:
    """Sub-folders that transformers runs code from: custom_generate/generate.py."""
    return tuple(
        f"{entry.name}/generate.py"
        for entry in entries
        if entry.name == "custom_generate"
        and entry.is_dir(follow_symlinks=False)
        and is_there(Path(entry.path, "generate.py"), or_its_link=True)
    )


def _largest_token(tokenizer: Mapping[str, Any] | None, *, special: bool) -> int | None:
    """The highest id of the special tokens that were added (an image's place), or of all others: of
    the vocabulary (an object, or a list in order) and of tokens that were added to it."""
    if tokenizer is None:
        return None
    model, added = tokenizer.get("model"), tokenizer.get("added_tokens")
    tokens = (
        [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    )
    specials = {token.get("id") for token in tokens if token.get("special") is True}
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [token.get("id") for token in tokens]
    if isinstance(vocabulary, dict):
        ids += vocabulary.values()
    elif isinstance(vocabulary, list):
        ids.append(len(vocabulary) - 1)
    numbers = (value for value in ids if type(value) is int)
    return max((value for value in numbers if (value in specials) == special), default=None)


def _tokenizer(config: Mapping[str, Any] | None) -> TokenizerConfig | None:
    if config is None:
        return None
    length, remote = config.get("model_max_length"), config.get("auto_map")
    template = config.get("chat_template")
    named = (
        [t.get("template") for t in template if isinstance(t, dict)]
        if (isinstance(template, list))
        else [template]
    )
    texts = [text for text in named if isinstance(text, str)]
    return TokenizerConfig(
        model_max_length=whole(length),
        remote_code=tuple(f"auto_map.{name}" for name in remote)
        if isinstance(remote, dict)
        else (),
        trusts=config.get("trust_remote_code") is True,
        template="\n".join(texts) if texts else None,
    )


def _generation(config: Mapping[str, Any] | None) -> Mapping[str, tuple[int, ...]] | None:
    if config is None:
        return None
    found: dict[str, tuple[int, ...]] = {}
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        values = value if isinstance(value, list) else [value]
        numbers = (whole(item) for item in values)
        found[key] = tuple(number for number in numbers if number is not None)
    return found
