"""The folder of a page: whole or not there, and never in place of anything else."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.page.runtime import FILES

RUNTIME = {name: name.encode() for name in FILES}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What npm and node make takes seconds, and is looked at in a browser."""
    monkeypatch.setattr("headcount.page.folder.pyodide_files", lambda folder, say: RUNTIME)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["page", *arguments])
    return result.exit_code, result.output


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.usefixtures("compiled")
def test_the_same_bytes_twice_and_no_other_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        code, said = run(str(tmp_path / name))
        assert code == 0, said
        assert f"python -m http.server -d {tmp_path / name}" in said
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "two")
    assert {f"pyodide/{name}" for name in FILES} < one.keys()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


@pytest.mark.usefixtures("compiled")
def test_the_files_hold_all_that_they_name(tmp_path: Path) -> None:
    run(str(tmp_path / "out"))
    files = contents(tmp_path / "out")
    texts = {name: data.decode() for name, data in files.items() if "/" not in name}
    for name in ("page.js", "answer.js", "controls.js", "charts.js", "elements.js", "worker.js"):
        for line in texts[name].splitlines():
            if line.startswith("import "):
                assert line.split('"')[1].removeprefix("./") in files
    for name in ("page.css", "page.js", "icon.svg", "NOTICES.txt"):
        assert f'"{name}"' in texts["index.html"] and name in files
    assert "http:" not in texts["index.html"] and "https:" not in texts["index.html"]
    assert json.loads(texts["choices.json"])["models"]


@pytest.mark.usefixtures("compiled")
def test_overwrite_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(str(out))
    (out / "page.js").write_text("old")
    code, said = run(str(out))
    assert code == 2 and "--overwrite" in said
    assert (out / "page.js").read_text() == "old"
    code, said = run(str(out), "--overwrite")
    assert code == 0, said
    assert (out / "page.js").read_text() != "old"
    (out / "thesis.txt").write_text("mine")
    code, said = run(str(out), "--overwrite")
    assert code == 2 and "thesis.txt" in said
    assert (out / "thesis.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("compiled")
def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "index.html").write_text("another site")
    for name, said in (
        ("file", "is not a folder"),
        ("link", "is not a folder"),
        ("nowhere/out", "there is no folder"),
        ("full", "is not empty"),
    ):
        code, output = run(str(tmp_path / name))
        assert code == 2 and said in output, output
    code, output = run(str(tmp_path / "full"), "--overwrite")
    assert code == 2 and "is no page" in output


def test_another_pyodide_is_refused(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node on this machine, which compiles the page's library")
    for name in FILES:
        (tmp_path / name).write_bytes(b"another")
    code, said = run(str(tmp_path / "out"), "--pyodide", str(tmp_path))
    assert code == 2 and "SHA-512" in said and "pyodide.mjs" in said
    (tmp_path / "pyodide.mjs").unlink()
    code, said = run(str(tmp_path / "out"), "--pyodide", str(tmp_path))
    assert code == 2 and "npm pack pyodide@" in said
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = run(str(tmp_path / "out"))
    assert code == 2 and "node is not found" in said
    (tmp_path / "node").symlink_to("/bin/true")
    code, said = run(str(tmp_path / "out"))
    assert code == 2 and "npm is not found" in said and "--pyodide" in said
    (tmp_path / "npm").symlink_to("/bin/false")
    code, said = run(str(tmp_path / "out"))
    assert code == 2 and "npm pack pyodide@" in said and "status 1" in said
    assert not (tmp_path / "out").exists()
