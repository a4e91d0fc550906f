"""`--format html`: one page that needs nothing else, and that no name can break out of."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.cli import main
from headcount.report import render
from headcount.report.charts import Drawing
from headcount.report.report import Chart, Column, Fact, Finding, Report, Series, Table

VOID = {"meta", "br"}
# Everything that a page would need to fetch or to run something.
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "pre"),
    *("dl", "dt", "dd", "small", "div", "table", "thead", "tbody", "tr", "th", "td"),
    *("ul", "li", "strong", "nav", "a"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "style", "scope"),
    *("tabindex", "role", "aria-label", "id", "href"),
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></table></section><h1>x",
    "<!-- ",
    "]]>&lt;b&gt;&amp",
    "\x1b[31m\u202e\x00",
]


@pytest.fixture(autouse=True)
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here has no script, whether the extra `charts` is installed or not."""
    monkeypatch.setattr("headcount.report.charts.is_available", lambda: False)


class Page(HTMLParser):
    """Checks that tags are closed in order; keeps tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        assert all(re.fullmatch(r"#report-\d+", str(to)) for name, to in attrs if name == "href")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def check(text: str) -> Page:
    page = Page(text)
    assert page.seen <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert not re.search(r"url\(|@import|://", text)
    return page


def html(*args: str) -> str:
    run = CliRunner().invoke(main, [*args, "--format", "html"])
    assert run.exit_code in (0, 1), run.output
    return run.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "llama-3-8b", "--explain"),
        ("audit", "gpt2", "llama-3-8b"),
        ("diff", "gpt2", "llama-3-8b"),
        ("plan", "llama-3-8b", "--device", "h100"),
        ("families", "--search", "gemma"),
        ("rules",),
        ("models", "--search", "qwen"),
        ("explain", "gqa"),
        ("devices",),
    ],
)
def test_every_report_is_a_whole_page_of_its_own(command: tuple[str, ...]) -> None:
    page = check(html(*command))
    assert "prefers-color-scheme: dark" in "".join(page.text)


def test_the_page_says_what_the_table_says() -> None:
    text = " ".join(check(html("audit", "llama-3-8b")).text)
    for word in ("GQA", "0-31", "41,943,040", "131,072 B"):
        assert word in text
    assert "Comparison" in html("audit", "gpt2", "llama-3-8b")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_report_becomes_markup(name: str) -> None:
    report = Report(
        title=name,
        lines=(name,),
        facts=(Fact(key="k", title=name, value=name, note=name),),
        tables=(
            Table(
                key="t",
                title=name,
                columns=(Column(key="c", title=name), Column(key="n", title="n", unit="count")),
                rows=((name, 1), (name, None)),
            ),
        ),
        notes=(name,),
        findings=(Finding(name, "error", name, name, name),),
    )
    text = render([report, report], "html")
    check(text)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


@pytest.mark.parametrize("name", HOSTILE[:5])
def test_names_in_a_model_do_not_either(tmp_path: Path, name: str) -> None:
    shapes = {**llama_shapes(), f"model.layers.0.self_attn.{name}.weight": (2, 2)}
    config = {**LLAMA_CONFIG, "architectures": [name], "rope_theta": name}
    folder = write_model(tmp_path / name.replace("/", "-"), config, shapes)
    page = check(html("audit", str(folder), "--explain"))
    assert "H203" in "".join(page.text)


def test_shades_follow_the_values_and_numbers_stay() -> None:
    columns = (
        Column(key="s", title="S", unit="similarity"),
        Column(key="l", title="L", unit="loss_share"),
    )
    rows = ((1.0, 0.0), (-0.5, 1.0), (None, None))
    table = Table(key="t", title="T", columns=columns, rows=rows)
    text = render([Report(title="r", tables=(table,))], "html")
    assert re.findall(r"--share: ([\d.]+)\">([-\d.]*)<", text) == [
        *(("0.600", "1.0000"), ("0.600", "0.0000")),
        *(("0.000", "-0.5000"), ("0.000", "1.0000")),
    ]


def test_charts_of_two_reports_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.report.charts.is_available", lambda: True)
    monkeypatch.setattr("headcount.report.html.drawing_of", lambda charts: Drawing())
    chart = Chart("c", "C", "line", "x", "y", (1.0, 2.0), (Series("s", (1.0, 2.0)),))
    text = render([Report(title="a", charts=(chart,)), Report(title="b", charts=(chart,))], "html")
    places = re.findall(r'<div class="chart" id="([^"]+)"', text)
    assert len(set(places)) == 2
    assert re.findall(r'data-chart="([^"]+)"', text) == places


def test_a_verdict_is_coloured() -> None:
    columns = (Column("verdict", "Verdict", "verdict"),)
    rows = (("fits",), ("borderline",), ("does not fit",), ("does not start",))
    text = render([Report(title="a", tables=(Table("t", "T", columns, rows),))], "html")
    found = re.findall(r'<td class="(\w+)">([^<]+)</td>', text)
    assert found == [
        ("good", "fits"),
        ("warning", "borderline"),
        ("error", "does not fit"),
        ("error", "does not start"),
    ]
