"""What a terminal shows: never wider than it is, the answer first and last, the rest on demand."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import COMMANDS as COMMAND_NAMES
from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.plan.command import plan_command
from headcount.plan.engines.registry import ENGINES, PLAIN
from headcount.report import render
from headcount.report.report import Bar, Column, Fact, Finding, Report, Table
from headcount.report.view import View, columns
from headcount.sources.catalogue import catalogue

COMMANDS = (
    "audit llama-3-8b",
    "audit deepseek-v3",
    "audit gemma-3-4b --explain",
    "audit gpt2 llama-3-8b deepseek-v3",
    "plan qwen3-32b",
    "plan llama-3-70b --device h100 --tp 2 --batch-size 4 --context 8k",
    "plan llama-3-8b --device h100 --engine vllm",
    "plan qwen3-32b --target-users 8 --context 16k --device h100,l40s",
    "plan qwen3-32b llama-3-70b --device h100,b200 --target-users 8",
    "diff llama-3-8b llama-2-7b",
    "models --search llama-3",
    "devices",
    "rules",
    "families --search qwen",
    "explain mla deepseek-v3",
    "reconcile docs/vllm-startup.log",
)
# Of these the answer fits on a screen of 24 lines, one of which is the prompt's.
ON_A_SCREEN = [
    *COMMANDS[:2],
    *COMMANDS[3:9],
    *(f"plan deepseek-v3 --engine {engine}" for engine in ("vllm", "sglang")),
    *(
        f"plan baichuan-13b --device h100 --engine {engine}"
        for engine in ENGINES
        if engine != PLAIN
    ),
    "plan t5-small --device h100 --engine transformers",
    "audit flan-t5-xl",
]


def printed(command: str, width: int | None = 80, *more: str, **env: str) -> str:
    known = {"COLUMNS": str(width) if width else "", **env}
    done = CliRunner().invoke(main, [*command.split(), *more], env=known)
    assert done.exit_code in (0, 1), done.output
    return done.stdout


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(command: str, width: int) -> None:
    more = ("--details",) if command.startswith(("audit", "plan")) and width != 80 else ()
    lines = printed(command, width, *more).splitlines()
    assert [line for line in lines if columns(line) > width] == []


@pytest.mark.parametrize("command", ON_A_SCREEN)
def test_the_answer_fits_on_a_screen(command: str) -> None:
    assert len(printed(command).splitlines()) <= 24


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8))
def test_every_plan_of_the_catalogue_fits_on_a_screen(first: int) -> None:
    view, asked = View(width=80, details=False, blocks=True), {"utilisation": None}
    for row in catalogue()[first::8]:
        for engine in ENGINES:
            try:
                (report,) = plan_command(row.id, engine=engine, device="h100", **asked).reports
            except HeadcountError:
                continue
            lines = render([report], "table", view).splitlines()
            assert len(lines) <= 23 and max(map(columns, lines)) <= 80, (row.id, engine)


def test_a_report_becomes_shorter_in_the_order_that_is_said() -> None:
    """Rows; figures by their `drop`, of each the notes first; notes, names of tables, tables; what
    went for a table that then goes itself is there again."""
    many = tuple((n,) for n in range(40))
    report = Report(
        title="A report",
        facts=(
            Fact("verdict", "Verdict", "fits"),
            Fact("long", "Long", 1, note="word " * 30),
            *(Fact(str(n), f"Fact {n}", n, drop=n) for n in range(6)),
        ),
        tables=(
            Table("shown", "Shown", (Column("n", "N"),), many, brief=30),
            Table("hidden", "Hidden, quite", (Column("n", "N"),), many, brief=0),
            Table("kv", "K/V heads", (Column("n", "N"),), many, brief=0),
        ),
        notes=("To start: " + "word " * 60,),
        is_brief=True,
    )

    def shown(report: Report) -> str:
        text = render([report], "table", View(width=80, details=False))
        assert len(text.splitlines()) <= 23
        return text

    text = shown(report)
    assert "Long     1 (…)" in text and "… 38 more rows" in text
    assert "Fact 0" in text and "Fact 5" not in text
    fewer = shown(report._replace(notes=()))
    assert "word word" in fewer and "Fact 5" in fewer and "hidden" in fewer
    more = tuple(Fact(f"x{n}", f"More {n}", n) for n in range(12))
    text = shown(report._replace(facts=(*report.facts, *more[:5])))
    assert "word …\n" in text and "also shows: hidden, K/V heads, 5 figures." in text
    text = shown(report._replace(facts=(*report.facts, *more[:6])))
    assert "also shows: shown, hidden, K/V heads, 5 figures." in text and "more rows" not in text
    assert text.count("word") > 30  # the note is there again, which had gone for the table
    names = tuple(Table(str(n), f"Another table {n}", (), (), brief=0) for n in range(9))
    text = shown(report._replace(facts=(*report.facts, *more), tables=names))
    assert "also shows: 9 tables, 5 figures." in text
    whole = render([report], "table", View(width=80))
    assert whole.count("word") == 90 and "Fact 5" in whole and "39" in whole


@pytest.mark.parametrize("command", ["", *sorted(COMMAND_NAMES)])
def test_no_line_of_help_is_wider_than_a_terminal(command: str) -> None:
    lines = printed(f"{command} --help").splitlines()
    assert [line for line in lines if columns(line) > 80] == []


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("audit gpt2 llama-3-8b", "Findings: 1 note"),
        ("audit gpt2 no-such-model", "Findings: 1 note; 1 of 2 cannot be audited"),
        ("plan gpt2 llama-3-8b --device h100", "Meta-Llama-3-8B: fits: 17.11 GiB"),
        ("plan gpt2 llama-3-8b --device h100 --details", "Meta-Llama-3-8B: fits: 17.11 GiB"),
        ("diff llama-3-8b llama-2-7b", "all 32 layers differ"),
        ("diff gpt2 gpt2", "nothing that is counted differs"),
        ("reconcile docs/vllm-startup.log", "Verdict: did not start"),
    ],
)
def test_every_command_that_judges_ends_with_its_answer(command: str, answer: str) -> None:
    """In the last lines: a terminal shows these, whatever scrolled away."""
    done = CliRunner().invoke(main, command.split(), env={"COLUMNS": "80"})
    assert answer in " ".join(" ".join(done.stdout.splitlines()[-3:]).split())


def test_a_pipe_has_no_bound() -> None:
    """A line of a log may be as long as it is; COLUMNS bounds it even so."""
    whole = printed("plan llama-3-8b --device h100 --engine vllm --details", None)
    assert max(map(len, whole.splitlines())) > 200
    assert "MiB  widths of the layers; 0.85, 1.05 and 1.10 GiB were measured with 0.19" in whole


def test_the_verdict_comes_first_and_last() -> None:
    text = printed("plan llama-3-70b --device h100 --tp 2 --batch-size 4 --context 8k")
    lines = text.splitlines()
    assert lines[2].startswith("  Verdict ") and "does not fit" in lines[2]
    assert lines[-1].startswith("Verdict: does not fit: 72.56 GiB of 71.26 GiB, 1.30 GiB short")
    lines = printed("audit llama-3-8b").splitlines()
    assert lines[3].split() == lines[-1].replace(":", "").split() == ["Findings", "none"]


def test_what_is_left_out_is_named_and_shown_on_demand() -> None:
    command = "plan llama-3-8b --device h100 --engine vllm"
    short, whole = printed(command), printed(command, 80, "--details")
    assert "Largest batch size by context" not in short and "Cached prefixes" not in short
    left_out = "--details also shows: memory, largest batch size by context, with other K/V heads"
    assert left_out in " ".join(short.split())
    assert "Largest batch size by context" in whole and "Cached prefixes" in whole
    assert "--details" not in whole
    assert "… From (--wide)" in whole
    assert "(--wide)" not in printed(command, 80, "--details", "--wide")


def test_a_warning_is_never_left_out() -> None:
    text = printed("plan llama-3-8b --device h100 --context 32k")
    assert "Warning: The context of 32,768 tokens is beyond the model's maximum" in text


def test_several_models_are_one_table() -> None:
    short = printed("audit gpt2 llama-3-8b")
    assert short.startswith("Comparison of 2 models at 1,024 tokens\n")
    assert "Attention per layer" not in short
    assert "Attention per layer" in printed("audit gpt2 llama-3-8b", 80, "--details")


def test_colours_are_for_terminals_and_for_those_who_ask() -> None:
    command = "plan llama-3-8b --device h100"
    assert "\x1b[" not in printed(command)
    colored = printed(command, 80, "--color", "always", NO_COLOR="1")
    assert "\x1b[32mVerdict: fits" in colored
    assert "\x1b[31mVerdict: does" in printed(f"{command} --batch-size 900", 80, "--color=always")
    assert "\x1b[" not in printed(command, 80, "--color", "never")


def report(**parts: Any) -> Report:
    return Report(title="t", **parts)


NAMES = ("one", "two", "three")


def table(width: int, drop: tuple[int, ...] = (0, 0, 0)) -> Table:
    found = tuple(Column(name, name, drop=n) for name, n in zip(NAMES, drop, strict=True))
    return Table("t", "T", found, (("a" * width, "b" * width, "c" * width),))


def lines(*tables: Table, width: int) -> list[str]:
    return render([report(tables=tables)], "table", View(width=width)).splitlines()[2:]


def test_columns_go_in_the_order_that_is_said() -> None:
    assert lines(table(9, (0, 2, 1)), width=20) == [
        "one        three",
        "---------  ---------",
        "aaaaaaaaa  ccccccccc",
        "… two (--wide)",
    ]
    assert lines(table(11, (0, 1, 1)), width=23)[0] == "one"
    assert lines(table(11, (0, 1, 1)), width=23)[-1] == "… two, three (--wide)"


def test_texts_are_broken_where_no_column_may_go() -> None:
    shown = lines(table(20), width=46)
    assert max(map(len, shown)) <= 46
    assert [line[:20].strip() for line in shown[2:4]] == ["a" * 20, ""]  # what names the row stays
    assert "".join(line[22:33].strip() for line in shown[2:]) == "b" * 20


def test_a_table_too_wide_for_all_is_a_value_a_line() -> None:
    assert lines(table(12), width=20) == [
        "one    " + "a" * 12,
        "two    " + "b" * 12,
        "three  " + "c" * 12,
    ]


def test_a_note_loses_its_end_first_and_the_least_of_figures_theirs_before() -> None:
    facts = (
        Fact("cost", "Cost", 1, note="8.80 an hour; " + "word " * 20),
        Fact("size", "Size", 2, note="share " * 20, drop=1),
        *(Fact(f"x{n}", f"More {n}", n) for n in range(16)),
    )

    def shown(count: int) -> str:
        brief = report(facts=facts[: 2 + count], is_brief=True)
        return render([brief], "table", View(width=80, details=False))

    whole, cut, last = shown(14), shown(15), shown(16)
    assert "share" in whole and "word" in whole
    assert "Size      2 (…)" in cut and "word" in cut
    assert "Size" not in last and "1 (8.80 an hour; …)" in last


def test_the_rows_that_tell_most_are_shown_in_the_table_s_order() -> None:
    rows = tuple((name,) for name in "abcdef")
    table = Table("t", "", (Column("n", "N"),), rows, 3, telling=(0, 5, 2, 1, 3, 4))
    shown = render([report(tables=(table,))], "table", View(width=80, details=False)).split()
    assert [word for word in shown if word in "abcdef"] == ["a", "c", "f"]
    asked = table._replace(asked_for="--device h100")
    text = render([report(tables=(asked,))], "table", View(width=80, details=False))
    assert "… 3 more rows (--details, --device h100)" in text
    whole = render([report(tables=(asked,))], "table", View(width=80)).split()
    assert [word for word in whole if word in "abcdef"] == [*"abcdef"]


def test_a_row_too_many_is_counted() -> None:
    long = Table("t", "T", (Column("n", "n", "count"),), tuple((n,) for n in range(9)), brief=2)
    view = View(width=80, details=False)
    text = render([report(tables=(long,))], "table", view)
    assert text.splitlines()[2:] == ["n", "-", "0", "1", "… 7 more rows (--details)"]
    assert "8" in render([report(tables=(long,))], "table", View(width=80))


def test_a_tall_last_text_stands_below_its_row() -> None:
    """Its column has no heading then, and no width is left empty beside it."""
    long = " ".join(f"word{n}" for n in range(30))
    found = (Column("a", "A"), Column("b", "B"), Column("why", "Why"))
    one = Table("t", "T", found, (("a" * 20, "b" * 20, long), ("c", "d", "")))
    shown = lines(one, width=60)
    assert shown[0].split() == ["A", "B"]
    assert shown[2].split() == ["a" * 20, "b" * 20]
    assert " ".join(" ".join(shown[3:-1]).split()) == long
    assert len(shown[3:-1]) <= 5 and max(map(len, shown)) <= 60
    assert shown[-1].split() == ["c", "d"]
    assert lines(one, width=200)[0].split() == ["A", "B", "Why"]


def test_a_command_in_a_table_is_not_broken_within_its_options() -> None:
    command = "vllm serve m --max-model-len 40960 --kv-cache-memory-bytes 4712300544"
    one = Table("t", "T", (Column("a", "A"), Column("b", "B")), (("x" * 20, command),))
    shown = lines(one, width=60)
    assert max(map(len, shown)) <= 60
    assert " ".join(" ".join(shown).split()).endswith(command)


def test_a_shortened_table_leaves_room_for_the_rest_of_the_screen() -> None:
    rows = tuple((n,) for n in range(40))
    facts = tuple(Fact(f"f{n}", f"f{n}", n, "count") for n in range(12))
    one = report(
        facts=facts, tables=(Table("t", "T", (Column("n", "n", "count"),), rows, brief=9),)
    )
    shown = render([one], "table", View(width=80, details=False)).splitlines()
    assert len(shown) == 23
    assert shown[-1] == "… 35 more rows (--details)"


def test_a_bar_is_as_long_as_what_it_shows() -> None:
    bar = Bar((("weights", 2**31), ("KV cache", 2**30)), 2**32)
    text = render([report(bars=(bar,))], "table", View(width=60))
    shown = text[text.index("[") + 1 : text.index("]")]
    assert (shown.count("#"), shown.count("="), shown.count(" ")) == (20, 10, 10)
    assert "# weights 2.00 GiB, = KV cache 1.00 GiB, 1.00 GiB free" in text
    over = render([report(bars=(Bar((("weights", 2**33),), 2**32),))], "table", View(blocks=True))
    assert "█ weights 8.00 GiB, 4.00 GiB too much" in over


def test_findings_stand_in_for_a_verdict() -> None:
    found = Finding("H101", "error", "here", "wrong", "mend it")
    text = render([report(is_brief=True, findings=(found,))], "table", View(details=False))
    assert text.splitlines()[2] == "  Findings  1 error"
    assert text.splitlines()[-1] == "Findings: 1 error"


def test_wide_characters_count_twice() -> None:
    facts = (Fact("a", "名前", "x " * 30), Fact("b", "b", "y"))
    text = render([report(facts=facts)], "table", View(width=40))
    assert max(map(columns, text.splitlines())) <= 40
    assert "  b     y" in text


@pytest.mark.parametrize("model", ["llama-3-70b", "llama-3.1-70b", "qwen3-32b"])
def test_a_search_shows_its_best_rows_and_of_what_it_is(model: str) -> None:
    command = f"plan {model} --context 32k --target-users 20"
    lines = printed(command).splitlines()
    assert len(lines) < 24
    table = next(at for at, line in enumerate(lines) if line.startswith("Device "))
    rows = [line for line in lines[table:] if " fits " in line]
    assert len(rows) >= (3 if "To start" in "".join(lines) else 5)
    (begin,) = [at for at, line in enumerate(lines) if line.startswith("  Verdict")]
    verdict = " ".join(" ".join(lines[begin : begin + 2]).split())
    assert re.search(
        r"fits on \d+ x [\w-]+: least memory \(20 requests at once, vllm [\d.]+\)", verdict
    )


def test_a_verdict_alone_keeps_its_engine_and_device() -> None:
    command = "plan llama-3.1-70b --context 32k --batch-size 40 --engine vllm --device h100 --tp 4"
    text = " ".join(printed(command).split())
    assert re.search(r"13\.95 of 40 requests \(vllm [\d.]+ on 4 x NVIDIA H100 SXM5 80GB\)", text)


PRICES = "h100,2\nh200,3\nrtx-pro-6000,2.1\nb200,5\nmi300x,2.2\n"


@pytest.mark.parametrize("device", ["", "--device h100,h200,rtx-pro-6000 "])
def test_names_of_compared_models_stay_whole(device: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(PRICES)
    models = "deepseek-v3 llama-3.1-70b qwen3-32b"
    command = f"plan {models} {device}--context 32k --target-users 20 --prices {prices}"
    lines = printed(command).splitlines()
    assert len(lines) < 24
    assert not any(len(line) > 80 for line in lines)
    begin = next(at for at, line in enumerate(lines) if line.startswith("Model"))
    end = next(at for at, line in enumerate(lines[begin:], begin) if not line or line[0] == "…")
    names = dict.fromkeys(line.split()[0] for line in lines[begin + 2 : end])
    assert list(names) == ["DeepSeek-V3", "Llama-3.1-70B", "Qwen3-32B"]
    assert "An hour" in lines[begin]


def test_a_long_line_goes_on_behind_its_name() -> None:
    lines = ("KV cache     " + "word " * 12, "  pool       " + "word " * 12, "no name, " * 9)
    shown = render([Report(title="t", lines=lines)], "table", View(width=50)).splitlines()
    starts = [len(line) - len(line.lstrip()) for line in shown[2:] if line]
    assert starts == [0, 13, 2, 13, 0, 0]


def test_answers_of_several_reports_stand_together_at_the_end() -> None:
    one = report(title_is_answer=True)._replace(title="out: converted")
    two = report(facts=(Fact("verdict", "Verdict", "KL 0.1"),), notes=("a note",))
    text = render([one, two], "table", View(width=80, details=False))
    assert text.splitlines()[-2:] == ["out: converted", "Verdict: KL 0.1"]
    assert text.splitlines().count("out: converted") == 2  # as the title, and here
    assert text.count("Verdict: ") == 1
    assert render([one], "table", View(width=80)).splitlines() == [one.title, "", one.title]


def test_notes_that_are_not_shown_are_told_by_their_codes() -> None:
    found = tuple(Finding(code, "note", "config.json", "m", "h") for code in ("H606", "H601"))
    text = render([report(findings=found, is_brief=True)], "table", View(width=80, details=False))
    assert "  Findings  2 notes (H601, H606)" in text
    assert text.splitlines()[-1] == "Findings: 2 notes"
