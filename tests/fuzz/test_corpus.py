"""No exception but ours leaves a parser: the inputs that once made one, and some others.

`make fuzz` looks for more (tools/fuzz.py), and lays what it finds in corpus/TARGET.
"""

from pathlib import Path
from random import Random

import click
import pytest

from fuzz_shrinking import shrunk
from fuzz_target import Target, check
from fuzz_targets import TARGETS
from headcount.model.errors import HeadcountError, WriteError

CORPUS = Path(__file__).with_name("corpus")
FOUND = sorted(path for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_is_parsed(path: Path) -> None:
    check(TARGETS[path.parent.name], path.read_bytes())


def test_every_folder_of_the_corpus_is_of_a_parser() -> None:
    assert {path.parent.name for path in FOUND} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_others_like_sound_inputs_are_parsed(name: str) -> None:
    target, random = TARGETS[name], Random(0)
    seeds = target.seeds()
    for data in seeds[:10]:
        check(target, data)
    for _ in range(40):
        check(target, target.mutate(random.choice(seeds), random))


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutator_makes_other_inputs(name: str) -> None:
    target, random = TARGETS[name], Random(0)
    seed = target.seeds()[0]
    assert len({target.mutate(seed, random) for _ in range(20)} - {seed}) > 10


def raising(error: BaseException) -> Target:
    def parse(data: bytes) -> None:
        raise error

    return Target(name="x", parse=parse, seeds=lambda: [b""], mutate=lambda data, random: data)


@pytest.mark.parametrize(
    "error",
    [
        *(KeyError("a"), ZeroDivisionError(), RecursionError(), MemoryError(), AssertionError("x")),
        *(HeadcountError(""), HeadcountError("  "), SystemExit(139), click.UsageError("")),
    ],
    ids=repr,
)
def test_what_is_none_of_ours_leaves_the_check(error: BaseException) -> None:
    with pytest.raises((type(error), AssertionError)):
        check(raising(error), b"")


@pytest.mark.parametrize(
    "error", [HeadcountError("a"), WriteError("a"), click.UsageError("a"), SystemExit(1)], ids=repr
)
def test_what_is_ours_does_not(error: BaseException) -> None:
    check(raising(error), b"")


def test_an_input_is_made_small() -> None:
    data = b'{"a": [1, {"b": 7}], "c": {"d": 3, "e": "xx"}}'
    assert (
        shrunk(data, lambda small: b'"e"' in small and small[:1] == b"{") == b'{"c": {"e": "xx"}}'
    )
    assert shrunk(bytes(range(200)), lambda small: b"\x07" in small) == b"\x07"
