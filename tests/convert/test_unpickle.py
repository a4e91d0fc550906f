"""`--allow-pickle`: .bin files become safetensors in a process of their own, or nothing at all."""

import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from conversions import contents, load_whole, run
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments), "--kv-heads", "2"])


def pickled(folder: Path, place: Path, shards: int = 1, **save: Any) -> Path:
    """The model in `folder` as torch.save writes it, with the other files."""
    place.mkdir()
    tensors = {
        name: tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }
    for path in folder.iterdir():
        if path.is_file() and "safetensors" not in path.name:
            shutil.copy(path, place / path.name)
    names = list(tensors)
    files = (
        ["pytorch_model.bin"]
        if shards == 1
        else [f"pytorch_model-{i + 1:05}-of-{shards:05}.bin" for i in range(shards)]
    )
    weight_map = {}
    for number, file in enumerate(files):
        part = names[number::shards]
        torch.save({name: tensors[name] for name in part}, place / file, **save)
        weight_map.update(dict.fromkeys(part, file))
    if shards > 1:
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (place / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return place


@pytest.mark.parametrize(
    ("shards", "save"), [(1, {}), (2, {}), (1, {"_use_new_zipfile_serialization": False})]
)
def test_a_pickled_model_gives_what_its_safetensors_give(
    grouped: MakeFolder, tmp_path: Path, shards: int, save: dict[str, Any]
) -> None:
    source = grouped("llama", 12, 4)
    run(source, tmp_path / "wanted")
    folder = pickled(source, tmp_path / "bin", shards, **save)
    before = contents(folder)
    result = convert(folder, tmp_path / "out", "--allow-pickle")
    assert result.exit_code == 0, result.stderr
    wanted = load_file(tmp_path / "wanted" / "model.safetensors")
    found = {
        name: tensor
        for path in (tmp_path / "out").glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    load_whole(tmp_path / "out")
    assert contents(folder) == before
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["source"]["name"] == "bin"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "out", "wanted"]
    again = convert(folder, tmp_path / "out", "--allow-pickle")
    assert (again.exit_code, "already done" in again.stdout) == (0, True), again.stderr


def test_without_the_option_the_way_out_is_named(grouped: MakeFolder, tmp_path: Path) -> None:
    folder = pickled(grouped("llama", 12, 4), tmp_path / "bin")
    result = convert(folder, tmp_path / "out")
    assert (result.exit_code, "--allow-pickle" in result.stderr) == (2, True)


def test_a_folder_that_may_not_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("headcount.convert.source_folder.find_pickles", closed)
    result = convert(tmp_path, tmp_path / "out", "--allow-pickle")
    assert result.exit_code == 2
    assert "cannot be read: Permission denied" in result.stderr


@pytest.mark.parametrize("tied", [True, False])
def test_shared_tensors_are_stored_once_where_the_config_ties_them(
    grouped: MakeFolder, tmp_path: Path, tied: bool
) -> None:
    source = Path(
        shutil.copytree(grouped("llama", 12, 4, tie_word_embeddings=True), tmp_path / "source")
    )
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
    folder = pickled(source, tmp_path / "bin")
    tensors = torch.load(folder / "pytorch_model.bin")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    torch.save(tensors, folder / "pytorch_model.bin")
    result = convert(folder, tmp_path / "out", "--allow-pickle")
    assert result.exit_code == 0, result.stderr
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert ("lm_head.weight" in found) == (not tied)
    model = load_whole(tmp_path / "out")
    assert torch.equal(model.lm_head.weight, tensors["lm_head.weight"])
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_file_that_runs_something_is_refused(grouped: MakeFolder, tmp_path: Path) -> None:
    folder = pickled(grouped("llama", 12, 4), tmp_path / "bin")
    tensors = torch.load(folder / "pytorch_model.bin")
    torch.save({**tensors, "evil": Evil(tmp_path / "ran")}, folder / "pytorch_model.bin")
    result = convert(folder, tmp_path / "out", "--allow-pickle")
    assert result.exit_code == 2
    assert "system" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_what_torch_refuses_is_one_line(grouped: MakeFolder, tmp_path: Path) -> None:
    folder = pickled(grouped("llama", 12, 4), tmp_path / "bin")
    data = (folder / "pytorch_model.bin").read_bytes()
    (folder / "pytorch_model.bin").write_bytes(data[: len(data) // 2])
    result = convert(folder, tmp_path / "out", "--allow-pickle")
    assert result.exit_code == 2
    assert "pytorch_model.bin" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_an_old_torch_is_refused(
    grouped: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pickled(grouped("llama", 12, 4), tmp_path / "bin")
    plain = importlib.metadata.version
    monkeypatch.setattr(
        "headcount.convert.unpickle.version",
        lambda name: "2.9.1+cpu" if name == "torch" else plain(name),
    )
    result = convert(folder, tmp_path / "out", "--allow-pickle")
    assert (result.exit_code, "2.10" in result.stderr) == (2, True)
