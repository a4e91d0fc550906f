"""Sizes as people write them, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.model.divisors import divisors, listed
from headcount.model.dtypes import bytes_of, resolve_dtype
from headcount.model.errors import HeadcountError, short
from headcount.model.units import format_bytes, format_count, parse_bytes, parse_count, parse_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8192),
        ("8k", 8192),
        ("128K", 131_072),
        ("1m", 1_048_576),
        ("1.5k", 1536),
        ("4,096", 4096),
    ],
)
def test_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", 80 * 2**30),
        ("24GB", 24 * 10**9),
        ("24 gb", 24 * 10**9),
        ("512", 512),
        ("1.5TiB", 3 * 2**39),
        ("18.69GiB", 20_068_234_690),  # as a log rounds it
    ],
)
def test_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "count"), [("7b", 7 * 10**9), ("124m", 124 * 10**6), ("1.5B", 15 * 10**8)]
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "8x", "k", "1e5", "nan", "8kib", "1.0001k", "9" * 40]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(HeadcountError, match="is not a number of tokens"):
        parse_tokens(text)


def test_integers_are_exact_up_to_the_bound() -> None:
    assert parse_tokens("9007199254740993") == 2**53 + 1
    assert parse_bytes("9007199254740993") == 2**53 + 1
    assert parse_count("9007.199254740993t") == 2**53 + 1
    assert parse_count(str(2**63 - 1)) == 2**63 - 1
    for parse in (parse_tokens, parse_bytes, parse_count):
        with pytest.raises(HeadcountError, match="at most 9,223,372,036,854,775,807"):
            parse(str(2**63))


def test_a_long_input_is_not_repeated_whole() -> None:
    with pytest.raises(HeadcountError) as caught:
        parse_tokens("9" * 5000)
    assert len(str(caught.value)) < 300
    assert short("a" * 118) == f"'{'a' * 118}'"
    assert len(short([2**63] * 200_000)) < 160


@given(st.integers(min_value=1, max_value=3000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


def test_many_divisors_are_cut() -> None:
    found = divisors(735_134_400)
    assert len(found) == 1344
    assert listed(found).endswith(" and 1304 more")
    assert listed((1, 2, 4)) == "1, 2, 4"


@given(st.text(max_size=8))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (parse_tokens, parse_bytes, parse_count):
        try:
            assert parse(text) >= 1
        except HeadcountError as error:
            assert repr(text) in str(error)


def test_formats() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 2**30, 3 * 2**39)] == [
        *("0 B", "1023 B", "1.00 KiB", "1.00 GiB", "1.50 TiB")
    ]
    assert [format_count(n) for n in (999, 124_439_808, 8_030_261_248)] == [
        *("999", "124.44 M", "8.03 B")
    ]


def test_dtypes() -> None:
    assert [resolve_dtype(n) for n in ("bf16", "torch.float16", "FP8")] == [
        *("bfloat16", "float16", "float8_e4m3fn")
    ]
    assert bytes_of(3, 4) == 2
    with pytest.raises(HeadcountError, match="bfloat16"):
        resolve_dtype("bf17")
