"""One name for an idea, in options, tables and documents (docs/words.md)."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headcount.cli import COMMANDS, main
from headcount.commands.options import names
from headcount.library.schemas import schema_of

# A title of tables and facts for people, by the key that documents have.
TITLES = {
    "context": "Context",
    "batch_size": "Batch size",
    "max_context": "Largest context",
    "max_batch_size": "Largest batch size",
    "concurrency": "Concurrency",
    "max_concurrency": "Concurrency",
}
# What these ideas were, or may be, called, and are not.
NOT_KEYS = {
    *("users", "num_users", "max_users", "requests_at_once", "most_at_once", "batch", "max_batch"),
    *("largest_batch", "num_sequences", "bytes_per_token", "kv_cache_bytes_per_token"),
    *("kv_bytes_per_token", "max_model_len", "context_length", "tensor_parallel_size"),
}
COMMON = (
    "audit gpt2 gemma-3-4b",
    "plan gemma-3-4b --device h100",
    "plan gemma-3-4b",
    "plan gemma-3-4b --device h100 --engine vllm",
    "plan qwen3-8b --target-users 4 --device h100,l40s",
    "plan qwen3-8b gpt2 --device h100",
    "diff llama-3-8b llama-2-7b",
)


def options() -> list[tuple[str, click.Option]]:
    return [
        (name, param)
        for name in sorted(COMMANDS)
        for param in COMMANDS[name].params
        if isinstance(param, click.Option)
    ]


def test_an_option_has_all_its_names_in_every_command() -> None:
    """Ours and those of engines are one option: none of them is another elsewhere."""
    known = [v for k, v in vars(names).items() if k.isupper()]
    found = set()
    for command, option in options():
        flags = tuple(option.opts)
        for each in known:
            if set(flags) & {*each}:
                assert set(flags) - {option.name} == {*each}, f"{command}: {flags}"
                found.add(each)
    assert found == {*known}


def test_a_flag_means_one_thing() -> None:
    meanings: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, option in options():
        for flag in option.opts:
            meanings[flag].add(tuple(option.opts))
    assert {flag: found for flag, found in meanings.items() if len(found) > 1} == {}


def reports(command: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reports that a command writes."""
    import headcount.report as report_room

    seen: list[Any] = []
    kept = report_room.render

    def render(found: Any, form: str, view: Any = None) -> str:
        seen.extend(found)
        return kept(found, form, view)

    monkeypatch.setattr(report_room, "render", render)
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code in (0, 1), done.output
    return seen


@pytest.mark.parametrize("command", COMMON)
def test_tables_call_an_idea_by_its_name(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = reports(command, monkeypatch)
    assert found
    for report in found:
        titled = [(fact.key, fact.title) for fact in report.facts]
        titled += [(c.key, c.title) for table in report.tables for c in table.columns]
        assert {key for key, _ in titled} & NOT_KEYS == set()
        for key, title in titled:
            assert TITLES.get(key, title) == title, key
            by_title = {TITLES[k]: k for k in TITLES}
            if title in by_title:
                assert TITLES.get(key) == title, f"{key} is called {title}"


def keys(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(keys, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = {*schema.get("properties", {})}
    return own.union(*map(keys, schema.values()))


@pytest.mark.parametrize(
    "command", ["audit", "plan", "diff", "convert", "evaluate", "heads", "uptrain"]
)
def test_documents_call_an_idea_by_its_name(command: str) -> None:
    assert keys(schema_of(command)) & NOT_KEYS == set()


def document(*command: str) -> Any:
    done = CliRunner().invoke(main, [*command, "--format", "json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", ["gpt2", "gemma-3-4b", "gpt-oss-120b", "deepseek-v3", "jamba"])
def test_what_a_token_takes_is_one_figure(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the slope of the audit's own cache far beyond every window, and a plan's on one
    device without an engine's blocks."""
    near, far = (document("audit", model, "--context", str(n)) for n in (900_000, 900_001))
    slope = far["totals"]["cache_bytes"] - near["totals"]["cache_bytes"]
    assert near["totals"]["cache_bytes_per_token"] == slope
    against = document("diff", model, "llama-3-8b", "--context", "900000")
    assert against["model"]["cache_bytes_per_token"]["a"] == slope
    plan = document("plan", model, "--context", "900000", "--device", "80GiB")
    assert plan["per_rank"]["rank_cache_bytes_per_token"] == slope
    compared = reports(f"audit {model} gpt2 --context 900000", monkeypatch)[-1]
    at = [column.key for column in compared.tables[0].columns].index("cache_bytes_per_token")
    assert compared.tables[0].rows[0][at] == slope


@pytest.mark.parametrize(
    ("ending", "begins"),
    [
        (".html", "<!doctype html>"),
        (".json", "{"),
        (".csv", "report,"),
        (".md", "## "),
        (".HTML", "<!doctype html>"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "devices", "plan gpt2 --device h100", "rules"])
def test_the_ending_of_the_output_says_the_format(
    command: str, ending: str, begins: str, tmp_path: Path
) -> None:
    path = tmp_path / f"x{ending}"
    done = CliRunner().invoke(main, [*command.split(), "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_text(encoding="utf-8").lower().startswith(begins.lower())


def test_every_command_that_reports_takes_a_format_and_an_output() -> None:
    """And the same formats, but for what is one command's own."""
    for name in sorted({*COMMANDS} - {"schema", "mcp", "page"}):
        flags = {flag: param for param in COMMANDS[name].params for flag in param.opts}
        assert "-o" in flags and "--format" in flags, name
        choices = set(flags["--format"].type.choices)
        assert {"table", "markdown", "json", "csv", "html"} <= choices, name


def test_an_ending_that_a_command_does_not_write_is_refused(tmp_path: Path) -> None:
    for command in ("plan gpt2", "schema plan"):
        wrong = ".sarif" if command == "plan gpt2" else ".html"
        done = CliRunner().invoke(main, [*command.split(), "-o", str(tmp_path / f"x{wrong}")])
        assert done.exit_code == 2 and "does not write" in done.stderr
    done = CliRunner().invoke(main, ["audit", "gpt2", "-o", str(tmp_path / "x.sarif")])
    assert done.exit_code == 0 and '"version": "2.1.0"' in (tmp_path / "x.sarif").read_text()
