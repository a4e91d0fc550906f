"""Every command's JSON document against the schema that ships, which is strict."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.audit.topics import QUESTIONS
from headcount.cli import COMMANDS, main
from headcount.library.schemas import TITLES, schema_of
from headcount.sources.catalogue import catalogue

jsonschema = pytest.importorskip("jsonschema", reason="is in the extra test")

LOG = str(Path(__file__).parents[2] / "docs" / "vllm-startup.log")
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
CALLS = [
    ["audit", "gpt2"],
    ["audit", DEEPSEEK, "--explain"],
    ["audit", "qwen3-next-80b-a3b-instruct", "no-such-model"],
    ["audit", "t5-small", "--context", "512"],
    ["diff", "gpt2", "llama-3-8b"],
    ["diff", "gpt2", "gpt2"],
    ["plan", "llama-3-8b"],
    ["plan", "llama-3-8b", "--device", "h100", "--prune-heads", "1/4"],
    ["plan", "llama-3-70b", "--device", "h100", "--engine", "vllm", "--require", "fits"],
    ["plan", DEEPSEEK, "--device", "b200", "--engine", "sglang", "--tp", "8"],
    ["plan", "gemma-2-9b", "--device", "l4", "--engine", "llama.cpp", "--gpu-layers", "0"],
    ["plan", "gpt2", "--device", "l4", "--engine", "tensorrt-llm"],
    ["plan", "gpt2", "--device", "l4", "--engine", "transformers"],
    ["plan", "llama-3-8b", "--kv-memory", "10GiB"],
    ["plan", "qwen3-8b", "--target-users", "8", "--context", "4k", "--device", "l4,h100"],
    ["plan", "gpt2", "no-such-model", "--device", "h100"],
    ["reconcile", LOG, "--device", "a100-40gb"],
    ["reconcile", LOG, __file__],
    ["models", "--search", "qwen3"],
    ["families"],
    ["devices"],
    ["rules"],
    ["explain"],
    *(["explain", topic, "llama-3-8b"] for topic in QUESTIONS),
]
# Objects whose keys are names of what they are about.
NAMES = {"origins", "overhead_bytes", "formulas"}


def document_of(*arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def problems(command: str, document: object) -> list[str]:
    found = jsonschema.Draft202012Validator(schema_of(command)).iter_errors(document)
    return [f"{one.json_path}: {_deepest(one)}" for one in found]


def _deepest(error: Any) -> str:
    """Of the ways in which no alternative fits, the one that got furthest."""
    while error.context:
        error = max(error.context, key=lambda one: len(one.absolute_path))
    return f"{error.json_path}: {error.message}"[:400]


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_a_document_is_as_its_schema_says(arguments: list[str]) -> None:
    assert problems(arguments[0], document_of(*arguments)) == []


@pytest.mark.parametrize("command", TITLES)
def test_a_schema_is_one_and_says_what_it_is_of(command: str) -> None:
    schema = schema_of(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert command in schema["title"]
    result = CliRunner().invoke(main, ["schema", command])
    assert json.loads(result.stdout) == schema


def test_every_command_that_prints_json_has_a_schema() -> None:
    printing = {
        name
        for name in COMMANDS
        if any(parameter.name in ("form", "formats") for parameter in COMMANDS[name].params)
    }
    assert printing == {*TITLES}


def objects(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all objects of a document but those whose keys are names."""
    if isinstance(value, dict):
        if not (path and path[-1] in NAMES):
            yield path
        for key, each in value.items():
            if key != "value":  # of an origin: whatever a config holds
                yield from objects(each, (*path, key))
    if isinstance(value, list):
        for number, each in enumerate(value[:1]):
            yield from objects(each, (*path, number))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "llama-3-8b", "--explain"],
        ["plan", "llama-3-8b", "--device", "h100", "--engine", "vllm", "--require", "fits"],
        ["reconcile", LOG, LOG],
        ["devices"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_key_that_is_added_renamed_or_left_out_is_seen(arguments: list[str]) -> None:
    whole = document_of(*arguments)
    assert problems(arguments[0], whole) == []
    paths = list(objects(whole))
    assert len(paths) > 1
    for path in paths:
        more = copy.deepcopy(whole)
        at(more, path)["surprise"] = 1
        assert problems(arguments[0], more), f"{path}: a key more goes unseen"
    for path in paths:
        keys = [*at(whole, path)]
        for key in {*keys[:1], *keys[-1:]} - {"origins", "engine"}:  # these may be left out
            other = copy.deepcopy(whole)
            found = at(other, path)
            found[f"{key}_renamed"] = found.pop(key)
            assert problems(arguments[0], other), f"{path}: {key} under another name goes unseen"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8))
def test_documents_of_the_whole_catalogue(first: int) -> None:
    for row in catalogue()[first::8]:
        for arguments in (
            ["audit", row.id, "--context", "1k"],
            ["plan", row.id, "--device", "h200", "--context", "1k"],
            ["plan", row.id, "--device", "h200", "--context", "1k", "--engine", "vllm"],
        ):
            result = CliRunner().invoke(main, [*arguments, "--format", "json"])
            if result.stdout:  # else it is refused, with a message
                found = problems(arguments[0], json.loads(result.stdout))
                assert found == [], arguments
