"""Folders, indexes and shards: what belongs together, what is missing, what is not opened."""

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from headcount.model.errors import HeadcountError, InvalidWeightsError
from headcount.sources.checkpoint import find_weights, is_plain_shard_name, read_checkpoint
from headcount.sources.path import read_path

INDEX = "model.safetensors.index.json"


def edit_index(folder: Path, **changes: Any) -> Path:
    path = folder / INDEX
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def test_one_file_and_many_hold_the_same_tensors(tmp_path: Path) -> None:
    shapes = llama_shapes()
    one = read_checkpoint(
        find_weights(write_model(tmp_path / "1", LLAMA_CONFIG, shapes)) or tmp_path
    )
    many = read_checkpoint(
        find_weights(write_sharded(tmp_path / "3", LLAMA_CONFIG, shapes, 3)) or tmp_path
    )
    assert {t.name: t.shape for t in one.tensors.values()} == shapes
    assert {t.name: t.shape for t in many.tensors.values()} == shapes
    assert one.nbytes == many.nbytes == many.total_size
    assert (len(one.files), len(many.files)) == (1, 3)


def test_a_missing_shard_is_named_with_its_tensors(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    (folder / "model-00002-of-00002.safetensors").unlink()
    checkpoint = read_checkpoint(folder / INDEX)
    assert list(checkpoint.missing) == ["model-00002-of-00002.safetensors"]
    lost = checkpoint.missing["model-00002-of-00002.safetensors"]
    assert len(lost) + len(checkpoint.tensors) == len(llama_shapes())


@pytest.mark.parametrize(
    "name",
    [
        *("../a.safetensors", "/etc/a.safetensors", "a/b.safetensors", "..\\a.safetensors"),
        *("C:a.safetensors", "a.bin", "", "a\0.safetensors", 7, None, "//host/a.safetensors"),
    ],
)
def test_a_shard_is_a_plain_file_name(tmp_path: Path, name: Any) -> None:
    assert not is_plain_shard_name(name)
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    with pytest.raises(HeadcountError, match="plain file name"):
        read_checkpoint(edit_index(folder, weight_map={"lm_head.weight": name}))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    shard = folder / "model-00001-of-00002.safetensors"
    shard.rename(tmp_path / "elsewhere.safetensors")
    shard.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(HeadcountError, match="outside"):
        read_checkpoint(folder / INDEX)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_single_file_outside_the_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HeadcountError, match="outside"):
        read_path(folder)


def test_links_into_the_hub_cache_are_followed(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "models--a--b/snapshots/123", LLAMA_CONFIG, llama_shapes())
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for shard in folder.glob("*.safetensors"):
        shard.rename(blobs / shard.name)
        shard.symlink_to(Path("../../blobs") / shard.name)
    assert len(read_checkpoint(folder / INDEX).tensors) == len(llama_shapes())


def test_an_index_of_other_shards_is_an_error(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    edit_index(folder, weight_map={**index, "made.up": "model-00001-of-00002.safetensors"})
    with pytest.raises(InvalidWeightsError, match=r"made\.up"):
        read_checkpoint(folder / INDEX)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": 3}', "{"])
def test_an_index_without_a_map_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(InvalidWeightsError, match=r"index\.json"):
        read_checkpoint(tmp_path / INDEX)


def test_a_shard_that_links_to_itself(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    shard = folder / "model-00001-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to(shard.name)
    with pytest.raises(HeadcountError, match=f"{shard.name}: cannot be read"):
        read_checkpoint(folder / INDEX)


@pytest.mark.parametrize("weights", [True, False])
def test_a_config_that_links_to_nothing_is_named(tmp_path: Path, weights: bool) -> None:
    folder = write_model(tmp_path / "m", LLAMA_CONFIG, llama_shapes())
    if not weights:
        (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("gone.json")
    for path in (folder, folder / "config.json", folder / "model.safetensors"):
        if weights or path.suffix != ".safetensors":
            with pytest.raises(HeadcountError, match=r"config\.json: is a link to gone\.json"):
                read_path(path)
