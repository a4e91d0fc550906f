"""What the page's worker is answered: the documents of the command line, with the standard library
and the files that travel in the page alone."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broken_files import BROKEN
from headcount.cli import main
from headcount.model.text import printable
from headcount.page.answers import answer
from headcount.page.choices import choices
from headcount.page.light_half import light_half
from headcount.report.report import Bar, HeatCell, HeatMap, Report
from headcount.sources.catalogue import find_row

LOG = Path(__file__).parents[2] / "docs" / "vllm-startup.log"
ASKED: list[dict[str, Any]] = [
    {"ask": "plan", "names": ["llama-3-8b"], "options": {}},
    {
        "ask": "plan",
        "names": ["qwen3-next"],
        "options": {"device": "h200", "engine": "vllm", "context": "32k", "batch_size": 4, "tp": 2},
    },
    {
        "ask": "plan",
        "names": ["mistral-7b"],
        "options": {"device": "l4,l40s", "target_users": 8, "context": "4k", "kv_dtype": "fp8"},
    },
    {"ask": "plan", "names": ["gpt2"], "options": {"device": "24GB", "utilisation": 0.8}},
    {"ask": "audit", "names": ["deepseek-v3"], "options": {"context": "8k", "batch_size": 2}},
    {"ask": "diff", "names": ["gpt2", "llama-3-8b"], "options": {"context": 1024}},
    {"ask": "reconcile", "names": [str(LOG)], "options": {}},
]


def asked(request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(json.dumps(request)))
    return found


def printed(command: str, form: str) -> str:
    """What the command line that an answer names prints, whatever its verdict."""
    program, *arguments = shlex.split(command)
    assert program == "headcount"
    result = CliRunner().invoke(main, [*arguments, "--format", form])
    assert result.exit_code in (0, 1), result.output
    return result.stdout


@pytest.mark.parametrize("request_", ASKED, ids=[f"{r['ask']}-{r['names'][0]}" for r in ASKED])
def test_an_answer_is_the_document_of_the_command_that_it_names(request_: dict[str, Any]) -> None:
    found = asked(request_)
    assert found["document"] == printed(found["command"], "json")
    view, markdown = found["view"], printed(found["command"], "markdown")
    assert view["facts"] or view["tables"]
    for fact in view["facts"]:
        assert fact["text"] in markdown.replace("\\", "")
    for table in view["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_the_files_of_the_page_need_nothing_but_the_standard_library(tmp_path: Path) -> None:
    for name, text in json.loads(light_half()).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from headcount.page.answers import answer\n"
        "for request in json.load(sys.stdin): print(answer(json.dumps(request)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(tmp_path)],
        input=json.dumps(ASKED),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [*map(asked, ASKED)]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"ask": "plan", "names": ["someone/model"]}, "reads nothing from a network"),
        ({"ask": "audit", "names": ["config.json"]}, "no file of that name was dropped"),
        ({"ask": "plan", "names": ["gpt2"], "options": {"device": "h1000"}}, "h100"),
        ({"ask": "plan", "names": ["gpt2"], "options": {"context": "much"}}, "context"),
        ({"ask": "plan", "names": ["gpt2"], "options": {"batch_size": "many"}}, "batch_size"),
        ({"ask": "reconcile", "names": ["nowhere.log"]}, "nowhere.log"),
    ],
)
def test_what_cannot_be_answered_is_told(
    request_: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = asked({"options": {}, **request_})
    assert said in found["error"]
    assert "document" not in found


@pytest.mark.parametrize(
    ("ask", "names", "wanted"),
    [
        ("plan", [""], "Choose a model"),
        ("diff", ["gpt2", ""], "Choose two models"),
        ("reconcile", [""], "Drop a start-up log"),
    ],
)
def test_what_names_nothing_yet_is_asked_for_and_has_no_command(
    ask: str, names: list[str], wanted: str
) -> None:
    found = asked({"ask": ask, "names": names, "options": {}})
    assert found.keys() == {"wanted"} and found["wanted"].startswith(wanted)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_told(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was found, where, in lines that a person reads: never a failure of the page."""
    broken = BROKEN[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(broken.data)
    ask = "reconcile" if broken.field == "log" else broken.field
    found = asked({"ask": ask, "names": [name], "options": {}})
    assert broken.said in found["error"] and len(found["error"]) < 500
    assert found["error"].count("\n") <= 2 and "document" not in found
    done = CliRunner().invoke(main, [ask, name])
    assert done.exit_code == 2 and " ".join(found["error"].split()) in " ".join(done.stderr.split())


def test_a_command_is_quoted_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my $HOME config.json").write_text("{}")
    found = asked({"ask": "audit", "names": ["my $HOME config.json"], "options": {}})
    assert shlex.split(found["command"]) == ["headcount", "audit", "my $HOME config.json"]


def test_what_no_report_of_the_page_should_hold_is_escaped() -> None:
    from headcount.page.views import view_of

    hostile = "\x1b[31m\u202e"
    cells = ((HeatCell(hostile, 1.0),),)
    report = Report(
        title=hostile,
        lines=(hostile,),
        notes=(hostile,),
        bars=(Bar(((hostile, 3),), 2, hostile),),
        heat_maps=(HeatMap("m", hostile, hostile, (hostile,), cells),),
    )
    view = view_of(report)
    assert "\x1b" not in json.dumps(view, ensure_ascii=False)
    assert view["bars"][0]["left"] == "1 B too much"
    assert view["maps"][0]["rows"] == [(printable(hostile), [printable(hostile)])]


def test_every_choice_is_one_that_the_commands_take() -> None:
    found = choices()
    for model in found["models"]:
        assert all(find_row(name) is not None for name in (model["name"], *model["names"]))
    options = [
        *({"device": device["key"]} for device in found["devices"]),
        *({"engine": engine, "device": "h100"} for engine in found["engines"]),
        *({"dtype": dtype} for dtype in found["dtypes"]),
        *({"kv_dtype": dtype} for dtype in found["cache_dtypes"]),
    ]
    for option in options:
        answered = asked({"ask": "plan", "names": ["llama-3-8b"], "options": option})
        assert "error" not in answered, (option, answered)
    assert len(found["models"]) > 100 and len(found["devices"]) > 50
