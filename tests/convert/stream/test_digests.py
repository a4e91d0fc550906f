"""The digests in the record are those of what lies on the disk, counted another way."""

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from click.testing import CliRunner
from safetensors import safe_open

from conversions import run
from headcount.cli import main
from headcount.convert.stream.hashing import Digester
from headcount.sources.safetensors import read_header

pytestmark = pytest.mark.needs_convert


def digests_of(folder: Path) -> dict[str, str]:
    """Of every tensor in `folder`, by the library."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            names = file.keys()
            found |= {name: xxhash.xxh3_128_hexdigest(file.get_tensor(name)) for name in names}
    return found


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "conversion.json").read_text())["digests"]
    return record


@pytest.mark.parametrize(
    "options",
    [{}, {"method": "medoid"}, {"method": "merge"}, {"dtype": "float16"}, {"max_shard_size": 9000}],
    ids=str,
)
def test_every_tensor_that_was_read_and_written_is_recorded(
    sharded: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    before = digests_of(sharded)
    run(sharded, tmp_path / "out", **options)
    digests = record_of(tmp_path / "out")
    if "dtype" not in options:  # numpy has no name for some types that are cast to
        assert digests["tensors"] == digests_of(tmp_path / "out")
    assert {n: before[n] for n in digests["source_tensors"]} == digests["source_tensors"]
    copied = {n for n, digest in digests["tensors"].items() if before[n] == digest}
    assert copied | digests["source_tensors"].keys() == before.keys()
    assert bool(digests["rewritten"]) == ("merge" in options.values())


def test_one_digest_stands_for_all_of_a_file(sharded: Path, tmp_path: Path) -> None:
    run(sharded, tmp_path / "out")
    before, inputs = digests_of(sharded), record_of(tmp_path / "out")["inputs"]
    for path in sharded.iterdir():
        entry = inputs.pop(path.name)
        assert entry["bytes"] == path.stat().st_size
        if path.suffix != ".safetensors":
            assert entry["xxh3_128"] == xxhash.xxh3_128_hexdigest(path.read_bytes())
            continue
        header = read_header(path)
        text = "".join(before[tensor.name] for tensor in header.tensors)
        start = path.read_bytes()[: header.data_start]
        wanted = xxhash.xxh3_128_hexdigest(start + text.encode())
        assert entry["xxh3_128_of_tensors"] == wanted
    assert not inputs


def test_the_report_names_what_was_read_and_written(sharded: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["convert", str(sharded), str(tmp_path / "out"), "--kv-heads=2", "--details"]
    )
    assert done.exit_code == 0
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    for entry in (*record["digests"]["inputs"].values(), *record["manifest"].values()):
        assert (entry.get("xxh3_128") or entry["xxh3_128_of_tensors"]) in done.output


def test_parts_have_digests_of_their_own_wherever_pieces_end() -> None:
    data, sizes = bytes(range(256)) * 5, (0, 7, 0, 600, 1, 672, 0)
    for length in (1, 5, 600, 2000):
        digester = Digester(sizes)
        for start in range(0, len(data), length):
            digester.update(memoryview(data[start : start + length]))
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        parts = [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        assert digester.whole() == xxhash.xxh3_128_hexdigest(data)
        assert list(digester.parts()) == [xxhash.xxh3_128_hexdigest(part) for part in parts]
