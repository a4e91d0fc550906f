"""A page as it is put together, and as text of 80 columns."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headcount.report.cells import cell
from headcount.report.report import Table

WIDTH = 80
VASWANI = "Vaswani et al. 2017, Attention Is All You Need, arXiv 1706.03762"
SHAZEER = (
    "Shazeer 2019, Fast Transformer Decoding: One Write-Head is All You Need, arXiv 1911.02150"
)
AINSLIE = (
    "Ainslie et al. 2023, GQA: Training Generalized Multi-Query Transformer Models from"
    " Multi-Head Checkpoints, arXiv 2305.13245"
)
LATENT = (
    "DeepSeek-AI 2024, DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts"
    " Language Model, arXiv 2405.04434"
)
WINDOWS = "Beltagy et al. 2020, The Long-Document Transformer, arXiv 2004.05150"
ELHAGE = (
    "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits,"
    " transformer-circuits.pub/2021/framework"
)
NOTHING = (
    "This model has no plain attention, with K and V projections of its own, to fill in: `headcount"
    " audit` lists what it has."
)
OLSSON = "Olsson et al. 2022, In-context Learning and Induction Heads, arXiv 2209.11895"


class Sum(NamedTuple):
    """A formula, the same with a model's numbers, and what the audit's own function gives for it,
    in a unit of reports."""

    key: str
    formula: str
    filled: str
    value: int
    unit: str = "count"

    def document(self) -> dict[str, object]:
        return self._asdict()


class Page(NamedTuple):
    """Paragraphs and sums in the order in which they are read. `applies`: whether the model has
    what the topic is about."""

    applies: bool
    blocks: tuple[str | Sum, ...]
    sources: tuple[str, ...]
    tables: tuple[Table, ...] = ()

    @property
    def sums(self) -> tuple[Sum, ...]:
        return tuple(block for block in self.blocks if isinstance(block, Sum))


def product(*factors: int) -> str:
    """`32 x 128 x 4,096`."""
    return " x ".join(f"{factor:,}" for factor in factors)


def with_rest(filled: str, worth: int, total: int, why: str) -> str:
    """`filled`, which is `worth` so much, and what is left to `total`, with the reason for it."""
    if worth == total:
        return filled
    return f"{filled} {'+' if total > worth else '-'} {abs(total - worth):,} ({why})"


def text_lines(page: Page) -> Iterator[str]:
    """The blocks, then the sources."""
    for block in page.blocks:
        yield from _sum_lines(block) if isinstance(block, Sum) else wrapped(block)
        yield ""
    yield "Sources"
    for source in page.sources:
        yield from wrapped(source, "  - ", "    ")


def wrapped(text: str, first: str = "", further: str = "") -> list[str]:
    """`text` in lines of WIDTH columns; a name that is longer keeps a line of its own."""
    from textwrap import wrap

    return wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sum_lines(one: Sum) -> Iterable[str]:
    yield from wrapped(one.formula, "  ", "    ")
    yield from wrapped(f"= {one.filled} = {cell(one.value, one.unit)}", "    ", "      ")
