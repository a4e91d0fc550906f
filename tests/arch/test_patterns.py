"""Patterns of modules in a config: as Python's own match them, in bounded time."""

import fnmatch
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.arch.formats.exceptions import ModuleList
from headcount.arch.formats.patterns import expression, glob
from headcount.model.errors import UnsupportedModelError

NAMES = st.from_regex(r"[ab.]{0,12}", fullmatch=True)
PIECES = st.lists(
    st.sampled_from(
        ["a", "b", r"\.", ".", ".*", ".+", "a*", "b+", "a?", "[ab]", "(a|b.)", "(ab)?"]
    ),
    max_size=6,
).map("".join)


@given(PIECES, st.sampled_from(["", "$"]), NAMES)
def test_expressions_match_as_pythons(text: str, end: str, name: str) -> None:
    assert expression(text + end).matches(name) == bool(re.match(text + end, name))


@given(st.from_regex(r"[ab.*?]{0,8}", fullmatch=True), NAMES)
def test_globs_match_as_pythons(text: str, name: str) -> None:
    """Or the name of a module above."""
    above = [name, *(name[:i] for i, char in enumerate(name) if char == ".")]
    assert glob(text).matches(name) == any(fnmatch.fnmatchcase(each, text) for each in above)


@pytest.mark.parametrize(
    "text", ["(a+)+", "(?=a)", r"(a)\1", "a{1,9}", "(", "a)", "[^a]", "*", "a|b$"]
)
def test_what_is_not_read_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedModelError, match="is not understood"):
        expression(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("(" * 30, "brackets"), ("(a|b)" * 12, "no more than"), ("a" * 2000, "no more than")],
)
def test_what_is_beyond_a_limit_is_refused(text: str, limit: str) -> None:
    with pytest.raises(UnsupportedModelError, match=limit):
        expression(text)


def test_no_pattern_takes_long() -> None:
    """Each of these takes Python's `re` ages: 30 gaps before a letter that never comes."""
    started = time.perf_counter()
    assert not expression(".*a" * 30 + "b").matches("a" * 300)
    assert not glob("*a" * 30 + "b").matches("a" * 300)
    with pytest.raises(UnsupportedModelError):
        expression("(a|b)" * 12).matches("a")
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("entry", "held"),
    [
        ("gate", {"layers.3.block_sparse_moe.gate"}),
        ("model.layers.3", {"layers.3.block_sparse_moe.gate", "layers.3.self_attn.q_proj"}),
        ("self_attn", {"layers.3.self_attn.q_proj"}),
        ("model.layers.*.self_attn", {"layers.3.self_attn.q_proj"}),
        ("model.layers.3.self_attn*", {"layers.3.self_attn.q_proj"}),
        ("re:.*q_proj$", {"layers.3.self_attn.q_proj"}),
        ("lm_head", set()),
    ],
)
def test_lists_hold_modules(entry: str, held: set[str]) -> None:
    names = (
        *("layers.3.block_sparse_moe.gate", "layers.3.self_attn.q_proj"),
        *("layers.30.mlp.gate_proj", "layers.30.self_attn_norm"),
    )
    found = ModuleList([entry])
    assert {name for name in names if found.holds((f"model.{name}", name))} == held
