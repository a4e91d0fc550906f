"""Every type and every model of the catalogue against the record of what transformers builds.

The record is `tests/truth/*.jsonl`; neither torch nor transformers is needed to read it.
"""

import itertools
import json
from typing import Any

import pytest

from against_record import differences
from headcount.arch import class_defaults
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError, UnsupportedModelError
from truth_record import (
    ENCODER_TOKENS,
    FILES,
    FOLDER,
    Line,
    catalogue_models,
    header,
    key_of,
    recorded,
)

MODELS = [name for name in FILES if name != "left_out"]
LANGUAGE_MODELS = ("decoders", "encoder_decoders", "encoders", "multimodal", "states")


def by_key(name: str) -> dict[str, list[Line]]:
    return {key: list(lines) for key, lines in itertools.groupby(recorded(name), key_of)}


def described(line: Line) -> str:
    return f"{key_of(line)}, config {line.get('seed')}: {json.dumps(line.get('config'))}"


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in MODELS for key in by_key(name)])
def test_an_audit_says_what_is_built(name: str, key: str) -> None:
    """Parameters by part and layer, totals, and the elements of a cache at each length."""
    found = {
        described(line): said
        for line in by_key(name)[key]
        if "reason" not in line and (said := differences(name, line))
    }
    assert found == {}


def test_every_type_of_transformers_is_recorded_or_left_out_with_a_reason() -> None:
    table = class_defaults._TABLE.read_text(encoding="utf-8").splitlines()[
        1:
    ]  # the first has versions
    types = {json.loads(line)["model_type"] for line in table}
    kept = {key for name in (*LANGUAGE_MODELS, "towers") for key in by_key(name)}
    left_out = set(by_key("left_out"))
    assert kept | left_out == types
    assert kept & left_out == set()
    assert all(line["reason"] for line in recorded("left_out"))


@pytest.mark.parametrize("line", recorded("left_out"), ids=key_of)
def test_what_is_left_out_as_no_language_model_is_refused(line: Line) -> None:
    """And nothing else is: other types that are left out have rows."""
    is_none = line["reason"].startswith("no language model")
    try:
        read_config({"model_type": line["model_type"]}, "config.json")
    except UnsupportedModelError:
        assert is_none
    except HeadcountError:
        assert not is_none  # its class's defaults fit no model
    else:
        assert not is_none


def test_every_model_of_the_catalogue_is_recorded() -> None:
    assert list(by_key("catalogue")) == catalogue_models()


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_made_it(name: str) -> None:
    first = header(name)
    assert first["tool"] == "tools/record_truth.py"
    assert first["holds"] == FILES[name]
    assert first["encoder_tokens"] == ENCODER_TOKENS
    assert first["transformers"] == header("decoders")["transformers"]


def test_the_folder_holds_these_files_and_stays_small() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FILES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000


def test_no_line_is_written_twice() -> None:
    for name in FILES:
        lines = [json.dumps(line) for line in recorded(name)]
        assert len(set(lines)) == len(lines), name


def one_more(value: Any) -> Any:
    """`value` with the last number in it one larger."""
    if isinstance(value, dict):
        *rest, last = value.items()
        return dict([*rest, (last[0], one_more(last[1]))])
    if isinstance(value, list):
        return [*value[:-1], one_more(value[-1])]
    return value + 1


@pytest.mark.parametrize(
    ("name", "key", "part"),
    [
        *(("decoders", "gemma3_text", part) for part in ("layers", "cache")),
        *(("encoder_decoders", "t5", part) for part in ("layers", "cache")),
        *(("states", "jamba", part) for part in ("layers", "states")),
        *(("totals", "mixtral", part) for part in ("parameters", "idle")),
        *(("catalogue", "openai-community/gpt2", part) for part in ("parameters", "layers")),
        ("catalogue", "google/gemma-2-2b-it", "max_position_embeddings"),
        ("catalogue", "state-spaces/mamba-130m-hf", "mixers"),
        *(("encoders", "bert", "layers"), ("multimodal", "llava", "cache")),
        ("towers", "vit", "layers"),
    ],
)
def test_a_difference_is_seen(name: str, key: str, part: str) -> None:
    line = by_key(name)[key][0]
    assert differences(name, line) == []
    assert differences(name, {**line, part: one_more(line[part])}) != []


@pytest.mark.parametrize("tokens", ["5", "8", "13", "20", "21"])
def test_a_cache_is_compared_at_every_length(tokens: str) -> None:
    line = by_key("decoders")["gemma3_text"][0]
    cache = {**line["cache"], tokens: one_more(line["cache"][tokens])}
    assert len(differences("decoders", {**line, "cache": cache})) == 1
