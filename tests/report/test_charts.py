"""Charts of a plan's page, looked at in a browser: drawn, in light and dark, wide and narrow."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.command import planned
from headcount.plan.curves import contexts
from headcount.plan.report.charts import plan_charts
from headcount.plan.request import PlanRequest
from headcount.plan.result import plan_result
from headcount.report import render
from headcount.report.report import Chart, Report, Series

BROWSER = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
HOSTILE = "</script><script>alert(1)</script>"
CHART = Chart(
    key="c",
    title=HOSTILE,
    kind="line",
    x_title="x",
    y_title="y",
    places=(1, 2),
    series=(Series(HOSTILE, (3, 4)),),
    limits=((HOSTILE, 5.0),),
)


def page(*args: str) -> str:
    result = CliRunner().invoke(main, ["plan", *args, "--format", "html"])
    assert result.exit_code == 0, result.output
    return result.output


def test_terms_and_layers_add_up_to_the_plan() -> None:
    from headcount.audit.auditing import audit_model

    audit = audit_model("llama-3-8b")
    request = PlanRequest(context=4096, batch_size=2)
    result = plan_result(planned(audit), request)
    memory, layers = plan_charts(result)
    at = memory.places.index(4096)
    total = sum(series.values[at] for series in memory.series)
    assert total == pytest.approx(result.plan.total_bytes / 2**30)
    (series,) = layers.series
    assert sum(series.values) == pytest.approx(4096 * 131_072 / 2**20)
    assert memory.limits


def test_contexts_double_up_to_the_maximum() -> None:
    from headcount.audit.auditing import audit_model

    spec = audit_model("llama-3-8b").spec
    assert contexts(spec, 8192) == (1024, 2048, 4096, 8192)
    assert contexts(spec, 10_000) == (1024, 2048, 4096, 8192, 10_000)
    assert contexts(audit_model("gpt2").spec, 100) == (1024,)


def test_without_the_extra_who_makes_a_page_is_told_and_not_who_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headcount.report.charts.is_available", lambda: False)
    done = CliRunner().invoke(main, ["plan", "gpt2", "--device", "t4", "--format", "html"])
    assert done.exit_code == 0 and "Memory" in done.stdout
    assert "<script" not in done.stdout and "charts]" not in done.stdout
    assert done.stderr.count("pip install '.[charts]'") == 1
    assert CliRunner().invoke(main, ["rules", "--format", "html"]).stderr == ""


@pytest.mark.needs_convert
def test_without_the_extra_it_is_said_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of what fails at its first step, too; and not where there are no charts to draw."""
    monkeypatch.setattr("headcount.report.charts.is_available", lambda: False)
    model, page = str(tmp_path), str(tmp_path.parent / "page.html")
    evaluated = ("convert", model, str(tmp_path / "new"), "--kv-heads", "1", "--evaluate")
    for command, told in (
        (("evaluate", model), True),
        (("evaluate", model, "--behaviour", "none"), False),
        (evaluated, True),
        ((*evaluated, "--behaviour", "none"), False),
        (evaluated[:-1], False),
        (("convert", model, "--sweep", "1"), True),
        (("plan", model), True),
        (("heads", model), False),
    ):
        done = CliRunner().invoke(main, (*command, "-o", page))
        assert done.exit_code == 2, done.output
        assert ("pip install '.[charts]'" in done.stderr) is told, command
        first = done.stderr.splitlines()[0]
        assert first.startswith("Without plotly") is told


def test_only_known_scripts_may_run_and_no_name_breaks_out() -> None:
    pytest.importorskip("plotly")
    text = render([Report(title="t", charts=(CHART,))], "html")
    assert text.count("<script>") == 2
    assert "alert(1)</script>" not in text
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/=]{44}'", text[:8000])) == 2
    assert "unsafe-eval" not in text[:8000]
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text)
    assert data is not None
    drawn = json.loads(data[1])
    assert [trace["name"] for trace in drawn["data"]] == [HOSTILE, HOSTILE]


def test_only_html_has_charts() -> None:
    result = CliRunner().invoke(main, ["plan", "gpt2", "--format", "markdown"])
    assert "chart" not in result.output


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("plotly")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    path = tmp_path_factory.mktemp("charts") / "plan.html"
    args = ["qwen3-next", "--device", "h200", "--tp", "2", "--engine", "vllm"]
    path.write_text(page(*args), encoding="utf-8")
    return path


def browse(path: Path, width: int, dark: bool, *args: str) -> Any:
    """Chromium on the page: what it prints, with its console on standard error."""
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *("--enable-logging=stderr", "--virtual-time-budget=8000"),
        f"--user-data-dir={path.parent / 'profile'}",
        f"--window-size={width},2400",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *args,
        path.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 500], ids=["wide", "narrow"])
def test_charts_are_drawn_without_an_error_or_a_request(
    report: Path, width: int, dark: bool
) -> None:
    requests = report.parent / "requests.json"
    done = browse(report, width, dark, "--dump-dom", f"--log-net-log={requests}")
    assert "CONSOLE" not in done.stderr, done.stderr
    drawn = re.findall(r'<svg class="main-svg"[^>]*width="(\d+)" height="(\d+)"', done.stdout)
    sizes = {(int(wide), int(high)) for wide, high in drawn}
    assert len(drawn) >= 3
    assert all(0.6 * width < wide <= width and high > 300 for wide, high in sizes)
    assert done.stdout.count('class="point"') >= 48  # a bar for each layer
    assert done.stdout.count('class="js-fill"') >= 4  # the stacked terms
    hosts = re.findall(r'"url":"(https?://[^"]+)"', requests.read_text(encoding="utf-8"))
    own = [url for url in hosts if not re.search(r"google|gstatic|gvt1", url)]
    assert own == []  # a fresh browser asks its maker on its own account


@pytest.mark.slow
def test_a_screenshot_shows_the_colours_of_the_charts(report: Path) -> None:
    pictures = {}
    for dark in (False, True):
        picture = report.parent / f"{dark}.png"
        browse(report, 1200, dark, f"--screenshot={picture}")
        pictures[dark] = picture.read_bytes()
        assert pictures[dark][:8] == b"\x89PNG\r\n\x1a\n"
        assert len(pictures[dark]) > 60_000  # text alone is smaller
    assert pictures[False] != pictures[True]
