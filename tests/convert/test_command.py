"""`convert` as a user meets it: plans, results, messages, exit codes and signals."""

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faulty import FaultyCommand
from headcount.cli import main
from lowered_limits import Lower

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    grouped: MakeFolder, tmp_path: Path
) -> None:
    result = convert(grouped(), tmp_path / "out", "--kv-heads", 1, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "K/V heads 3 -> 1" in result.stdout
    assert "num_key_value_heads: 3 -> 1" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_some_of_many_files(
    grouped: MakeFolder, tmp_path: Path, lower: Lower
) -> None:
    lower("FILES_SHOWN", 3)
    source = grouped()
    for i in range(5):
        (source / f"vocab{i}.txt").touch()
        (source / f"{i}.bin").touch()
    lines = convert(source, tmp_path / "out", "--kv-heads", 1, "--dry-run").stdout.splitlines()
    (copied,) = (line for line in lines if line.lstrip().startswith("copied "))
    assert "vocab0.txt, vocab1.txt and " in copied and copied.endswith(" more")
    left = [line for line in lines if line.lstrip().startswith("not copied ")]
    assert len(left) == 4
    assert left[-1].endswith("and 2 more")


def test_a_conversion_is_reported_recorded_and_clean(grouped: MakeFolder, tmp_path: Path) -> None:
    target = tmp_path / "out"
    result = convert(grouped(), target, "--kv-heads", 1, "--format", "json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record == json.loads((target / "conversion.json").read_text())
    assert [(layer["before"], layer["after"]) for layer in _heads(record)] == [(3, 1), (3, 1)]
    audit = CliRunner().invoke(main, ["audit", str(target), "--fail-on", "note"])
    assert (audit.exit_code, "MQA" in audit.stdout) == (0, True)


def _heads(record: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
    return [layer["num_key_value_heads"] for layer in record["layers"]]  # type: ignore[misc]


def test_a_count_that_does_not_divide_lists_the_divisors(
    grouped: MakeFolder, tmp_path: Path
) -> None:
    result = convert(grouped("stablelm", 12, 6), tmp_path / "out", "--kv-heads", 4)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--kv-heads can be 1, 2, 3" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["out", "out/inside", "."])
def test_a_target_that_is_taken_or_inside_is_refused(
    grouped: MakeFolder, tmp_path: Path, place: str
) -> None:
    source = grouped()
    if place == "out":
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("mine")
        target = tmp_path / "out"
    else:
        target = source / place
    before = sorted(path.name for path in source.iterdir())
    result = convert(source, target, "--kv-heads", 1)
    assert result.exit_code == 2
    assert str(target) in result.stderr or str(target.resolve()) in result.stderr
    assert sorted(path.name for path in source.iterdir()) == before
    if place == "out":
        assert [path.name for path in target.iterdir()] == ["precious"]


def test_a_dry_run_lists_every_tensor_for_programs(grouped: MakeFolder, tmp_path: Path) -> None:
    command = (grouped(), tmp_path / "out", "--kv-heads", 1, "--dry-run", "--format")
    tensors = {
        tensor["name"]: tensor for tensor in json.loads(convert(*command, "json").stdout)["tensors"]
    }
    pooled = tensors["model.layers.0.self_attn.k_proj.weight"]
    assert (pooled["action"], pooled["shape"]) == ("pool", [8, 48])
    assert pooled["sources"][0]["shape"] == [24, 48]
    rows = list(csv.DictReader(io.StringIO(convert(*command, "csv").stdout)))
    assert [row["name"] for row in rows] == list(tensors)
    row = next(row for row in rows if row["name"] == pooled["name"])
    assert (row["action"], row["shape"], row["bytes"]) == ("pool", "8x48", str(pooled["bytes"]))
    assert row["sources"] == pooled["name"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    "place", ["source/report.json", "source/config.json", "link", "out/r", "no/r"]
)
def test_a_report_never_goes_into_a_model_folder(
    grouped: MakeFolder, tmp_path: Path, place: str, more: tuple[str, ...]
) -> None:
    source = Path(shutil.copytree(grouped(), tmp_path / "source"))
    (tmp_path / "link").symlink_to(source / "config.json")
    before = {path: path.read_bytes() for path in source.iterdir()}
    result = convert(source, tmp_path / "out", "--kv-heads", 1, "-o", tmp_path / place, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(tmp_path / place) in result.stderr
    assert {path: path.read_bytes() for path in source.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "source"]


SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize(
    "module", ["torch.nn", "torch.fx", "tqdm", "safetensors", "headcount.convert.audited_output"]
)
def test_a_signal_during_the_imports_ends_the_process(
    grouped: MakeFolder, tmp_path: Path, number: signal.Signals, code: int, module: str
) -> None:
    """An exception would be eaten by some of the modules that are being imported."""
    script = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            try:\n"
        f"                os.kill(os.getpid(), {int(number)})\n"
        "            except BaseException:\n"
        "                pass\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from headcount.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "convert", grouped(), tmp_path / "out", "--kv-heads", "1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


WRITE = "headcount.convert.stream.weight_file:WeightStream.write"


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_leaves_nothing_behind(
    command: FaultyCommand, grouped: MakeFolder, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """It is stopped in the middle of its writing."""
    fault = {"fault": "signal", "at": WRITE, "number": int(number)}
    done = command("convert", grouped(), tmp_path / "out", "--kv-heads", 1, **fault)
    assert done.status == code, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_one_line_says_what_to_install(
    grouped: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = convert(grouped(), tmp_path / "out", "--kv-heads", 1)
    assert result.exit_code == 2
    assert "pip install" in result.stderr


def test_a_conversion_names_the_command_that_measures_it(
    grouped: MakeFolder, tmp_path: Path
) -> None:
    source, target = grouped(), tmp_path / "out"
    done = convert(source, target, "--kv-heads", 1)
    assert f"headcount evaluate {target} --against {source} --text FILE" in done.stdout
    file = convert(source, tmp_path / "file", "--format", "gguf")
    assert file.exit_code == 0, file.output
    assert "headcount evaluate" not in file.stdout  # which runs folders
