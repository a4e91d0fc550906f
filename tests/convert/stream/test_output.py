"""The folder that comes out: its files, its tensors, its record, and the same every time."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from conversions import contents, load_whole, run
from headcount.audit import audit_model
from headcount.convert.conversion import apply_plan
from headcount.convert.conversion_report import conversion_report
from headcount.convert.plan.describe import describe_plan
from headcount.convert.plan.document import conversion_plan_document
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]


@pytest.mark.usefixtures("unchanged")
def test_the_folder_holds_what_the_plan_says(source: Path, tmp_path: Path) -> None:
    report = run(source, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.json", "conversion.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "README.md", "README.source.md", "LICENSE.txt", "NOTICE.txt"),
    }
    assert not (tmp_path / "out" / "NOTICE.txt").is_symlink()
    assert (tmp_path / "out" / "NOTICE.txt").read_text() == "shared"
    assert {file.name: file.reason for file in report.plan.left_files} == {
        **{".cache": "hidden", "onnx": "a folder", "modeling_x.py": "code"},
        **{"model.gguf": "other weights", "optimizer.bin": "other weights"},
        **{"dangling.txt": "a link to nothing"},
        **{"passwd": "a link that leads out of the folder"},
    }


def test_the_card_says_what_was_made_of_what(source: Path, tmp_path: Path) -> None:
    """And keeps of the source's card what is as true of the result."""
    card = "---\nlicense: apache-2.0\nlanguage:\n- en\nmetrics:\n- accuracy\n---\n# Theirs\n"
    (source / "README.md").write_text(card)
    plan = plan_conversion(
        ConversionRequest(
            source=source,
            target=tmp_path / "out",
            num_key_value_heads=2,
            source_name=f"org/some_model@{'a' * 40}",
        )
    )
    apply_plan(plan, progress=False)
    made = ModelCard.load(tmp_path / "out" / "README.md")
    assert made.data.to_dict() == {
        **{"base_model": "org/some_model", "library_name": "transformers"},
        **{"license": "apache-2.0", "language": ["en"], "pipeline_tag": "text-generation"},
        "tags": ["headcount", "grouped-query-attention"],
    }
    assert "# org/some_model with fewer key/value heads" in made.text
    assert "Key/value heads: 4 to 2" in made.text
    assert "`mean`" in made.text
    assert str(tmp_path) not in made.content
    assert (tmp_path / "out" / "README.source.md").read_text() == card


@pytest.mark.parametrize("card", ["---\nlicense: [1\n---\n", "---\n- a\n---\n", "---\n", "\0---"])
def test_a_card_that_says_nothing_is_no_obstacle(source: Path, tmp_path: Path, card: str) -> None:
    (source / "README.md").write_text(card)
    run(source, tmp_path / "out")
    assert "license" not in ModelCard.load(tmp_path / "out" / "README.md").data.to_dict()


def test_data_and_logs_beside_a_model_are_left_and_said(source: Path, tmp_path: Path) -> None:
    for name in ("val.txt", "train.jsonl", "trainer_state.json", "loss.png", "events.out.tf.1"):
        (source / name).write_text("x")
    (source / "chat_template.jinja").symlink_to("/etc/passwd")
    report = run(source, tmp_path / "out")
    left = {file.name: file.reason for file in report.plan.left_files}
    for name in ("val.txt", "train.jsonl", "trainer_state.json", "loss.png", "events.out.tf.1"):
        assert left[name] == "not part of a model by its name"
        assert not (tmp_path / "out" / name).exists()
    notes = conversion_report(report).notes
    assert any("may be missed: chat_template.jinja (a link that leads out" in n for n in notes)
    assert any("as not part of the model" in n and "val.txt" in n for n in notes)


def test_a_vocabulary_that_is_a_link_out_of_the_folder_is_left_and_said(
    source: Path, tmp_path: Path
) -> None:
    (source / "tokenizer.json").unlink(missing_ok=True)
    (source / "tokenizer.json").symlink_to("/etc/passwd")
    (source / "tokenizer_config.json").write_text("{}")
    report = run(source, tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    notes = conversion_report(report).notes
    assert any("may be missed: tokenizer.json (a link that leads out" in n for n in notes)


def _repeated(source: Path, tmp_path: Path) -> Path:
    """A copy of `source` in which two K/V heads of each pair are equal."""
    folder = Path(shutil.copytree(source, tmp_path / "repeated", symlinks=True))
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "k_proj" in name or "v_proj" in name:
            heads = tensor.reshape(2, 2, -1)
            tensors[name] = heads[:, :1].expand_as(heads).reshape(tensor.shape).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_mean_without_training_says_what_it_costs(source: Path, tmp_path: Path) -> None:
    """But for heads that were equal, where it costs nothing."""
    lossless = conversion_report(run(_repeated(source, tmp_path), tmp_path / "same", 2)).notes
    assert not any("--quality fast" in note for note in lossless)
    notes = conversion_report(run(source, tmp_path / "out", 2)).notes
    assert any("--quality fast" in n and "--evaluate measures it" in n for n in notes)


def test_a_name_that_is_not_utf8_is_left(source: Path, tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(source) + b"/bad-\xff.txt")).write_text("content")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    report = run(source, tmp_path / "out")
    left = {file.name: file.reason for file in report.plan.left_files}
    assert left["bad-\\xff.txt"] == "name is not UTF-8"
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert record["side_files"]["not_copied"]["bad-\\xff.txt"] == "name is not UTF-8"


@pytest.mark.parametrize("metadata", ["text", [1], 7, None])
def test_an_index_with_odd_metadata_gets_its_own(
    sharded: Path, tmp_path: Path, metadata: object
) -> None:
    path = sharded / "model.safetensors.index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "metadata": metadata}))
    report = run(sharded, tmp_path / "out")
    index = json.loads((tmp_path / "out" / path.name).read_text())
    assert index["metadata"] == {"total_size": report.plan.nbytes}


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
    model = load_whole(tmp_path / "out")
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
    report = run(folder, tmp_path / "out", 1)
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
    load_whole(tmp_path / "out")


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
    report = run(tmp_path / "two", tmp_path / "one", 1)
    assert "conversion.json" in {file.name for file in report.plan.left_files}
    record = json.loads((tmp_path / "one" / "conversion.json").read_text())
    assert record["layers"][0]["num_key_value_heads"] == {"before": 2, "after": 1}


def test_warnings_of_the_source_are_carried_over(source: Path, tmp_path: Path) -> None:
    """A config that names another dtype than the weights have is not for the converter to judge."""
    path = source / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": "float16"}))
    report = run(source, tmp_path / "out")
    assert "H106" in {finding.code for finding in report.plan.findings}


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
    document = json.loads(json.dumps(conversion_plan_document(plan)))
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert tensors.keys() == load_file(source / "model.safetensors").keys()
    assert document["target"]["bytes"] == sum(tensor["bytes"] for tensor in tensors.values())
