"""The folder that comes out: whole or not there, the same every time; the source untouched."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headcount.audit import audit_model
from headcount.audit.errors import WriteError
from headcount.convert import conversion
from headcount.convert.conversion import ConversionReport, apply_plan, convert
from headcount.convert.plan.describe import describe_plan
from headcount.convert.plan.document import plan_document
from headcount.convert.plan.errors import BadValuesError, SelfCheckError, SourceChangedError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]


@pytest.fixture
def source(grouped: MakeFolder, tmp_path: Path) -> Path:
    """A Llama of 12 heads and 4 K/V heads with the usual files, and some that must not go along."""
    folder = Path(shutil.copytree(grouped("llama", 12, 4), tmp_path / "source"))
    for name in ("tokenizer.json", "README.md", "modeling_x.py", "model.gguf", "optimizer.bin"):
        (folder / name).write_text(f"content of {name}")
    (folder / ".cache").mkdir()
    (folder / "onnx").mkdir()
    (folder / "shared.txt").write_text("shared")
    (folder / "linked.txt").symlink_to("shared.txt")
    (folder / "dangling.txt").symlink_to("nowhere")
    (folder / "passwd").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def sharded(grouped: MakeFolder, tmp_path: Path) -> Path:
    """The same model in several shards."""
    folder = tmp_path / "sharded"
    model = AutoModelForCausalLM.from_pretrained(grouped("llama", 12, 4))
    model.save_pretrained(folder, max_shard_size="100KB")
    return folder


def run(source: Path, target: Path, **options: Any) -> ConversionReport:
    fields = {"num_key_value_heads": 2, **options}
    return convert(ConversionRequest(source=source, target=target, **fields), progress=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def unchanged(source: Path) -> Iterator[None]:
    """Asserts that a test leaves the source as it was, and nothing hidden beside it."""
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in _files(source)}
    yield
    assert before == {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in _files(source)}
    assert not [path for path in source.parent.iterdir() if path.name.startswith(".")]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


@pytest.mark.usefixtures("unchanged")
def test_the_folder_holds_what_the_plan_says(source: Path, tmp_path: Path) -> None:
    report = run(source, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.json", "conversion.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "README.md", "shared.txt", "linked.txt"),
    }
    assert not (tmp_path / "out" / "linked.txt").is_symlink()
    assert (tmp_path / "out" / "linked.txt").read_text() == "shared"
    assert {file.name: file.reason for file in report.plan.left_files} == {
        **{".cache": "hidden", "onnx": "a folder", "modeling_x.py": "code"},
        **{"model.gguf": "other weights", "optimizer.bin": "other weights"},
        **{"dangling.txt": "a link to nothing"},
        **{"passwd": "a link that leads out of the folder"},
    }


def test_mean_pooled_weights_and_untouched_rest(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if "k_proj" in name or "v_proj" in name:
            heads = tensor.double().unflatten(0, (2, 2, 8))
            assert torch.equal(after[name], heads.mean(1).flatten(0, 1).float()), name
        else:
            assert torch.equal(after[name], tensor), name


def test_the_output_audits_clean_loads_and_generates(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    audit = audit_model(str(tmp_path / "out"))
    assert audit.findings == ()
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    assert model.config.num_key_value_heads == 2
    assert model.generate(torch.tensor([[1, 5]]), max_new_tokens=5, min_new_tokens=5).shape[1] == 7


def test_the_record(source: Path, tmp_path: Path) -> None:
    report = run(source, tmp_path / "out", method="random", seed=5)
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert next(iter(record)) == "schema_version"
    assert record == json.loads(json.dumps(report.document()))
    assert record["method"] == "random"
    assert record["seed"] == 5
    assert record["source"]["name"] == "source"
    assert str(tmp_path) not in json.dumps(record)
    for layer in record["layers"]:
        assert layer["num_key_value_heads"] == {"before": 4, "after": 2}
        assert 0 < layer["relative_error"]["k"] < 2
        assert [head // 2 for head in layer["kept"]] == [0, 1]


def test_the_seed_changes_the_choice(source: Path, tmp_path: Path) -> None:
    kept = {
        tuple(layer.kept or () for layer in run(source, tmp_path / str(seed), **options).layers)
        for seed in range(6)
        for options in [{"method": "random", "seed": seed}]
    }
    assert len(kept) > 1


def test_only_the_count_changes_in_the_config(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    before = json.loads((source / "config.json").read_text())
    after = json.loads((tmp_path / "out" / "config.json").read_text())
    assert after == {**before, "num_key_value_heads": 2}
    assert list(after) == list(before)


def test_a_head_dim_that_the_class_knew_is_written_out(grouped: MakeFolder, tmp_path: Path) -> None:
    """Gemma's class says 256 where the file says nothing; the output says it itself."""
    folder = Path(
        shutil.copytree(grouped("gemma", 6, 3, hidden_size=32, head_dim=256), tmp_path / "gemma")
    )
    config = json.loads((folder / "config.json").read_text())
    del config["head_dim"]
    (folder / "config.json").write_text(json.dumps(config))
    report = run(folder, tmp_path / "out", num_key_value_heads=1)
    assert report.plan.config["head_dim"] == 256


def test_shards_and_index(sharded: Path, tmp_path: Path) -> None:
    run(sharded, tmp_path / "out")
    shards = {path.name for path in sharded.glob("*.safetensors")}
    assert len(shards) > 2
    assert shards == {path.name for path in (tmp_path / "out").glob("*.safetensors")}
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    tensors = {
        name: (file, t) for file in shards for name, t in load_file(tmp_path / "out" / file).items()
    }
    assert index["weight_map"] == {name: file for name, (file, _) in sorted(tensors.items())}
    assert index["metadata"]["total_size"] == sum(t.nbytes for _, t in tensors.values())
    assert index["metadata"]["total_parameters"] == sum(t.numel() for _, t in tensors.values())
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


@pytest.mark.parametrize("method", ["mean", "medoid"])
def test_shards_hold_the_same_tensors_as_a_single_file(
    source: Path, sharded: Path, tmp_path: Path, method: str
) -> None:
    run(source, tmp_path / "one", method=method)
    run(sharded, tmp_path / "many", method=method)
    one = load_file(tmp_path / "one" / "model.safetensors")
    for shard in (tmp_path / "many").glob("*.safetensors"):
        for name, tensor in load_file(shard).items():
            assert torch.equal(tensor, one.pop(name))
    assert not one


def test_the_same_bytes_every_time(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "a", method="medoid")
    run(source, tmp_path / "b", method="medoid")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_plain_copies_give_the_same_bytes_as_the_kernel(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, tmp_path / "kernel")
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    run(source, tmp_path / "plain")
    assert contents(tmp_path / "kernel") == contents(tmp_path / "plain")


def test_copying_falls_back_on_file_systems_without_support(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*arguments: Any, **options: Any) -> int:
        calls.append(arguments)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    run(source, tmp_path / "kernel")
    monkeypatch.setattr(os, "copy_file_range", fail, raising=False)
    run(source, tmp_path / "plain")
    assert calls
    assert contents(tmp_path / "kernel") == contents(tmp_path / "plain")


def test_permissions_follow_the_umask(source: Path, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        run(source, tmp_path / "out")
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert modes == {0o640}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750


def test_an_empty_target_folder_is_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run(source, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()


def test_a_converted_model_can_be_converted_again(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "two")
    report = run(tmp_path / "two", tmp_path / "one", num_key_value_heads=1)
    assert "conversion.json" in {file.name for file in report.plan.left_files}
    record = json.loads((tmp_path / "one" / "conversion.json").read_text())
    assert record["layers"][0]["num_key_value_heads"] == {"before": 2, "after": 1}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("after", [0, 3, 12])
def test_a_failing_disk_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    """The k-th write fails: a WriteError (exit 3), no output, no work folder."""
    real, calls = os.write, 0

    def write(descriptor: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(WriteError, match="cannot be written") as caught:
        apply_plan(plan, progress=False)
    monkeypatch.undo()
    assert caught.value.exit_code == 3
    assert (number in (errno.ENOSPC, errno.EDQUOT)) == ("are free" in str(caught.value))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", ["fsync", "rename"])
def test_a_failing_fsync_or_rename_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(WriteError):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unchanged")
def test_ctrl_c_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        assert [path for path in tmp_path.iterdir() if ".out.partial-" in path.name]
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "verify_output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("value", "words"), [(float("nan"), "NaN"), (float("inf"), "NaN or inf")])
def test_bad_values_leave_nothing(source: Path, tmp_path: Path, value: float, words: str) -> None:
    file, name = source / "model.safetensors", "model.layers.1.self_attn.v_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3] = value
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadValuesError, match=words) as caught:
        run(source, tmp_path / "out")
    assert name in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_bad_values_in_other_tensors_are_copied(source: Path, tmp_path: Path) -> None:
    file, name = source / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})
    run(source, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors")[name].isnan().sum() == 1


def test_a_source_that_changes_meanwhile_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*arguments: Any) -> None:
        os.utime(source / "model.safetensors", ns=(1, 1))

    monkeypatch.setattr(conversion, "_copy_side_file", touch)
    with pytest.raises(SourceChangedError, match=r"model\.safetensors: changed"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_target_that_appears_meanwhile_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rival(*arguments: Any) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("theirs")

    monkeypatch.setattr(conversion, "verify_output", rival)
    with pytest.raises(Exception, match="meanwhile"):
        run(source, tmp_path / "out")
    assert contents(tmp_path / "out") == {"theirs": b"theirs"}


def test_an_output_with_a_wrong_config_never_gets_its_name(source: Path, tmp_path: Path) -> None:
    import dataclasses

    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    wrong = dataclasses.replace(plan, config={**plan.config, "num_key_value_heads": 4})
    with pytest.raises(SelfCheckError, match="H101"):
        apply_plan(wrong, progress=False)
    assert not (tmp_path / "out").exists()


def test_warnings_of_the_source_are_carried_over(source: Path, tmp_path: Path) -> None:
    """A config that names another dtype than the weights have is not for the converter to judge."""
    path = source / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": "float16"}))
    report = run(source, tmp_path / "out")
    assert [finding.code for finding in report.plan.findings] == ["H106"]


def test_the_dry_run_says_everything(source: Path, tmp_path: Path) -> None:
    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    text = "\n".join(describe_plan(plan))
    for words in (
        "K/V heads 4 -> 2",
        "model.layers.{0-1}.self_attn.k_proj.weight  [32, 96] -> [16, 96]",
        "num_key_value_heads: 4 -> 2",
        "modeling_x.py (code)",
    ):
        assert words in text
    document = json.loads(json.dumps(plan_document(plan)))
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert tensors.keys() == load_file(source / "model.safetensors").keys()
    assert document["target"]["bytes"] == sum(tensor["bytes"] for tensor in tensors.values())
