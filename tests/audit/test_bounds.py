"""What messages quote of a stranger's input: cut and escaped, wherever it is shown."""

import json
from pathlib import Path

from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG
from headcount.audit.rules.rule import Rule, Sighting
from headcount.audit.rules.rule import run as run_rules
from headcount.cli import main
from headcount.model.errors import HeadcountError


def test_one_of_several_that_fails_is_shown_within_bounds(tmp_path: Path) -> None:
    """A hostile value is cut and escaped in every format, as in an error of its own."""
    value = "x\x1b[2J" * 5000
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG | {"hidden_size": value}))
    targets = ("gpt2", str(tmp_path / "config.json"))
    for form in ("table", "markdown", "json", "csv"):
        done = CliRunner().invoke(main, ["audit", *targets, "--format", form])
        assert done.exit_code == 2
        assert "\x1b" not in done.stdout
        assert max(len(line) for line in done.stdout.splitlines()) < 2500


def test_every_error_bounds_what_it_quotes() -> None:
    error = HeadcountError("name \x1b[2J" + "y" * 10**6 + "\nnext line")
    first, second = str(error).split("\n")
    assert len(first) < 1100
    assert first.startswith("name \\x1b[2Jyyy")
    assert second == "next line"


def test_every_finding_bounds_what_it_quotes() -> None:
    def check(_: object) -> list[Sighting]:
        return [Sighting("w\x1b" * 10**5, "m\u202e" * 10**5)]

    rule = Rule(code="H999", name="n", severity="note", hint="", check=check)
    (finding,) = run_rules((rule,), None)
    assert len(finding.where) < 6000
    assert len(finding.message) < 7000
    assert finding.message.isprintable()
    assert finding.where.isprintable()
