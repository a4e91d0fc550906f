"""Maps of cells: as text that fits a terminal, as a table of a page, and escaped in both."""

from headcount.report import render
from headcount.report.report import HeatCell, HeatMap, Report


def report(columns: int, *, in_text: bool = True, text: str = "I+") -> Report:
    cells = tuple(HeatCell(text=text, share=0.5, hue=0) for _ in range(columns))
    legend = ((text, "induction", 0), ("·", "none", None))
    one = HeatMap(
        key="roles",
        title="Roles",
        row_title="Layer",
        rows=("0", "1"),
        cells=(cells, cells[:2]),
        legend=legend,
        in_text=in_text,
    )
    return Report(title="Heads", heat_maps=(one,))


def test_32_cells_fit_a_terminal_and_more_are_broken() -> None:
    text = render([report(32)], "table")
    assert max(map(len, text.splitlines())) <= 105
    assert text.count("Layer") == 1 and "I+ induction; · none" in text
    wide = render([report(40)], "table").splitlines()
    heads = [line.split()[1:] for line in wide if line.startswith("Layer")]
    assert heads == [[str(n) for n in range(32)], [str(n) for n in range(32, 40)]]
    assert [len(line.split()) - 1 for line in wide if line.lstrip().startswith("1 ")] == [2]


def test_a_page_shows_maps_that_text_leaves_out() -> None:
    hidden = report(3, in_text=False)
    assert "Roles" not in render([hidden], "table") + render([hidden], "markdown")
    page = render([hidden], "html")
    assert page.count('<td class="shade" style="--hue: var(--hue-0); --share: 0.300">I+</td>') == 5
    assert '<th scope="row">1</th>' in page and "<li><span>·</span> none</li>" in page


def test_markdown_fences_a_map_and_a_page_escapes_it() -> None:
    bad = report(1, text="<`")
    assert "```\nLayer   0" in render([report(1)], "markdown")
    assert "<`" not in render([bad], "html") and "&lt;`" in render([bad], "html")
