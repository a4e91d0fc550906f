"""A finished output held against its record and its source: what was changed is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from conversions import contents, run
from headcount.cli import main
from headcount.convert.verification.findings import Verified
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.model.errors import HeadcountError
from headcount.sources.safetensors import read_header

pytestmark = pytest.mark.needs_convert
COPIED, POOLED = "model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.v_proj.weight"


def verified(out: Path, source: Path | None, **options: Any) -> Verified:
    return verify(read_recorded(out), source, **{"sample": None, "seed": 0, **options})


def named(found: Verified) -> set[str]:
    return {one.where for one in found.differences}


def flip(folder: Path, name: str, bit: int = 1) -> None:
    """One bit of one byte in the middle of a tensor."""
    for path in folder.glob("*.safetensors"):
        for tensor in read_header(path).tensors:
            if tensor.name == name:
                data = bytearray(path.read_bytes())
                data[sum(tensor.offsets) // 2] ^= bit
                path.write_bytes(data)


def change_config(out: Path, *, key: str, value: Any) -> None:
    path = out / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}, indent=2) + "\n")


def swap(folder: Path, one: str, other: str) -> None:
    """Each gets the values of the other, which has its shape."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[one], tensors[other] = tensors[other], tensors[one]
    save_file(tensors, path, metadata={"format": "pt"})


KEY, OTHER_KEY = (f"model.layers.{layer}.self_attn.k_proj.weight" for layer in (0, 1))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda out: flip(out, COPIED), COPIED),
        (lambda out: flip(out, POOLED), POOLED),
        (lambda out: change_config(out, key="rms_norm_eps", value=0.5), "config.json"),
        (lambda out: (out / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda out: (out / "model.safetensors").unlink(), "model.safetensors"),
        (lambda out: swap(out, KEY, OTHER_KEY), KEY),
        (lambda out: swap(out, KEY, OTHER_KEY), OTHER_KEY),
        (lambda out: (out / "more.bin").write_text("more"), "more.bin"),
        (lambda out: (out / "model.safetensors").write_text("no"), "model.safetensors"),
    ],
)
def test_what_was_changed_is_named(
    source: Path, tmp_path: Path, change: Callable[[Path], Any], where: str
) -> None:
    out = tmp_path / "out"
    run(source, out)
    assert not verified(out, None).differences
    assert not verified(out, source).differences
    change(out)
    assert where in named(verified(out, None))
    assert where in named(verified(out, source))


@pytest.mark.parametrize("name", [COPIED, POOLED])
def test_what_was_changed_with_its_digests_is_seen_in_the_source(
    source: Path, tmp_path: Path, name: str
) -> None:
    """A record that was made to fit says nothing: only the source does."""
    out, other = tmp_path / "out", tmp_path / "other"
    run(source, out)
    shutil.copytree(source, other, symlinks=True)
    flip(other, name)
    run(other, tmp_path / "lie", source_name=source.name)
    record = json.loads((tmp_path / "lie" / "conversion.json").read_text())
    assert record["source"] == json.loads((out / "conversion.json").read_text())["source"]
    assert not verified(tmp_path / "lie", None).differences
    assert named(verified(tmp_path / "lie", source)) == {name}


def test_a_source_whose_values_changed_is_told_from_an_output_that_did(
    source: Path, tmp_path: Path
) -> None:
    run(source, tmp_path / "out")
    flip(source, COPIED)
    (found,) = verified(tmp_path / "out", source).differences
    assert found.where == COPIED and "the source is another one now" in found.what
    change_config(source, key="initializer_range", value=0.5)
    assert verified(tmp_path / "out", source).is_of_another_source
    done = CliRunner().invoke(main, ["convert", str(source), "--verify", str(tmp_path / "out")])
    answer = "is as it was written, and its source is another one now: 1 difference"
    assert done.exit_code == 1 and done.stderr.rstrip().endswith(answer)


def test_a_value_of_the_config_is_named(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    change_config(tmp_path / "out", key="num_key_value_heads", value=3)
    found = verified(tmp_path / "out", source).differences
    assert "num_key_value_heads is 3, not 2" in [one.what for one in found]


def test_a_swap_in_one_shape_names_both_and_nothing_else(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    swap(tmp_path / "out", KEY, OTHER_KEY)
    assert {KEY, OTHER_KEY} <= named(verified(tmp_path / "out", None))
    assert COPIED not in named(verified(tmp_path / "out", source))


@pytest.mark.parametrize(
    "options",
    [
        *({"method": "medoid"}, {"method": "random", "seed": 3}, {"method": "merge"}),
        {"method": "merge", "grouping": "similar"},
        *({"dtype": "bfloat16"}, {"max_shard_size": 9000}, {"kv": 3}),
    ],
    ids=str,
)
def test_whatever_is_converted_is_made_once_more(
    source: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    run(source, out, **options)
    found = verified(out, source)
    assert not found.differences
    tensors = len(read_recorded(out).tensors)
    made = sum(found.counts.get(kind, 0) for kind in ("copied", "recomputed"))
    assert (found.counts["tensors"], made) == (tensors, tensors)
    flip(out, POOLED, bit=64)
    assert POOLED in named(verified(out, source))


def test_single_layers_are_made_once_more(source: Path, tmp_path: Path) -> None:
    arguments = ["convert", str(source), str(tmp_path / "out"), "--kv-heads", "0:2"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert not verified(tmp_path / "out", source).differences


def test_a_sample_reads_as_many_tensors_as_it_says(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, out)
    found = [verified(out, source, sample=4, seed=seed).counts for seed in range(6)]
    assert all(one["tensors"] == 4 for one in found)
    assert all(one.get("copied", 0) + one.get("recomputed", 0) == 4 for one in found)
    flip(out, POOLED)
    seen = [POOLED in named(verified(out, None, sample=4, seed=seed)) for seed in range(40)]
    assert 0 < sum(seen) < 40
    assert POOLED in named(verified(out, source, sample=1000))


def test_another_source_is_told_from_another_output(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, out)
    change_config(source, key="rms_norm_eps", value=0.5)
    found = verified(out, source)
    assert [(one.where, "source" in one.what) for one in found.differences] == [
        ("config.json", True)
    ]
    assert "no tensor was compared" in found.notes[0]


def test_a_side_file_of_the_source_that_is_another_now_is_named(
    source: Path, tmp_path: Path
) -> None:
    run(source, tmp_path / "out")
    (source / "README.md").write_text("another")
    assert named(verified(tmp_path / "out", source)) == {"README.source.md"}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "no conversion.json there; --verify reads a folder that convert has written"),
        ("{", "not JSON"),
        ("{}", "manifest is not as"),
        ('{"manifest": {"../x": {"bytes": 1, "xxh3_128": ""}}}', "manifest is not as"),
        ('{"manifest": {"x": {"bytes": 1, "xxh3_128": ""}}, "digests": []}', "digests is not as"),
        ('{"manifest": {"x": {"bytes": 1, "xxh3_128": ""}}, "request": {}}', "request is not as"),
        (
            '{"manifest": {"x": {"bytes": 1, "xxh3_128": ""}}, "digests": {"rewritten": 7}}',
            "digests is not as",
        ),
    ],
)
def test_a_record_that_says_nothing_is_an_error(
    tmp_path: Path, record: str | None, words: str
) -> None:
    (tmp_path / "out").mkdir()
    if record is not None:
        (tmp_path / "out" / "conversion.json").write_text(record)
    with pytest.raises(HeadcountError, match=words):
        verified(tmp_path / "out", None)


@pytest.mark.parametrize("heads", [{"x": 4}, {"0": "y"}, "y", {"0": None}])
def test_options_that_are_none_are_an_error(source: Path, tmp_path: Path, heads: Any) -> None:
    out = tmp_path / "out"
    run(source, out)
    record = json.loads((out / "conversion.json").read_text())
    record["request"]["num_key_value_heads"] = heads
    (out / "conversion.json").write_text(json.dumps(record))
    with pytest.raises(HeadcountError, match="request is not as a conversion writes it"):
        verified(out, source)


def test_the_command_says_what_differs_and_changes_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, out)
    before = contents(out)
    done = CliRunner().invoke(main, ["convert", str(source), "--verify", str(out)])
    assert (done.exit_code, "is as its record says" in done.stdout) == (0, True)
    flip(out, POOLED)
    done = CliRunner().invoke(main, ["convert", str(source), "--verify", str(out), "--format=json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout)["verify"]["differences"]
    assert {one["where"] for one in found} == {POOLED}
    flip(out, POOLED)
    assert contents(out) == before
    assert CliRunner().invoke(main, ["convert", "--verify", str(source)]).exit_code == 2
    itself = CliRunner().invoke(main, ["convert", str(out), "--verify", str(out)])
    assert (itself.exit_code, "leave SOURCE out" in itself.stderr) == (2, True)
    for more in (["--kv-heads=2"], ["--check"], [str(tmp_path / "x")]):
        refused = CliRunner().invoke(main, ["convert", str(source), "--verify", str(out), *more])
        assert (refused.exit_code, "--verify" in refused.stderr) == (2, True)
    refused = CliRunner().invoke(main, ["convert", str(source), str(out), "--sample=3"])
    assert (refused.exit_code, "--verify" in refused.stderr) == (2, True)


def test_what_was_trained_further_is_held_against_its_files(source: Path, tmp_path: Path) -> None:
    """The rest of its record is about the conversion that it began with."""
    out = tmp_path / "out"
    run(source, out)
    path = out / "conversion.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "uptraining": {}}))
    assert not verified(out, None).differences
    assert "no digests of tensors" in verified(out, None).notes[0]
    with pytest.raises(HeadcountError, match="trained further"):
        verified(out, source)
    flip(out, POOLED)
    assert named(verified(out, None)) == {"model.safetensors"}
