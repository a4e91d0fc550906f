"""Make docs/plan.png, README.md's picture: the first chart of a plan's page, as a browser draws
it. Wants the extra `charts` and a Chromium, whose command is the argument (default: chromium)."""

import subprocess
import sys
import tempfile
from pathlib import Path

from headcount.commands.plan import plan
from headcount.plan.command import plan_command
from headcount.report import render

COMMAND = ["llama-3.1-8b", "--device", "l40s", "--engine", "vllm", "--batch-size", "2"]
PICTURE = Path(__file__).parents[1] / "docs" / "plan.png"
SIZE = "900,560"


def main() -> None:
    browser = sys.argv[1] if len(sys.argv) > 1 else "chromium"
    options = plan.make_context("plan", [*COMMAND]).params
    del options["output"]
    (report,) = plan_command(*options.pop("models"), **{**options, "form": "html"}).reports
    shown = report._replace(facts=(), tables=(), notes=(), bars=(), charts=report.charts[:1])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "plan.html"
        page.write_text(render([shown], "html"), "utf-8")
        drawn = [f"--screenshot={PICTURE}", f"--window-size={SIZE}", page.as_uri()]
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        subprocess.run([browser, *quiet, *drawn], check=True, capture_output=True)
    print(PICTURE)


if __name__ == "__main__":
    main()
