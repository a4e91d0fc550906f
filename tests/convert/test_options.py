"""`--dtype` and `--max-shard-size`: the same tensors as other floats, in other files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversions import contents, load_whole, run
from headcount.audit import audit_model
from headcount.convert.plan.errors import BadValuesError
from headcount.model.errors import HeadcountError, InvalidWeightsError

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for path in folder.glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }


@pytest.mark.parametrize("limit", [1, 20_000, 100_000])
def test_shards_of_a_size(source: Path, sharded: Path, tmp_path: Path, limit: int) -> None:
    run(source, tmp_path / "whole")
    wanted = tensors_of(tmp_path / "whole")
    for folder in (source, sharded):
        out = tmp_path / f"{folder.name}-out"
        run(folder, out, max_shard_size=limit)
        files = sorted(out.glob("*.safetensors"))
        names = [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
        assert [path.name for path in files] == names
        for path in files:
            shard = load_file(path)
            assert len(shard) == 1 or sum(tensor.nbytes for tensor in shard.values()) <= limit
        found = tensors_of(out)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == sum(t.nbytes for t in wanted.values())
        assert {name for path in files for name in load_file(path)} == index["weight_map"].keys()
        assert audit_model(str(out)).findings == ()
        load_whole(out)


def test_shards_become_one_file(source: Path, sharded: Path, tmp_path: Path) -> None:
    run(sharded, tmp_path / "out", max_shard_size=10**9)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {name for name in names if "model" in name} == {"model.safetensors"}
    run(source, tmp_path / "whole")
    found, wanted = tensors_of(tmp_path / "out"), tensors_of(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    load_whole(tmp_path / "out")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_floats_of_another_type(
    grouped: MakeFolder, tmp_path: Path, stored: str, dtype: str
) -> None:
    folder = grouped("llama", 12, 4, stored)
    run(folder, tmp_path / "plain")
    run(folder, tmp_path / "out", dtype=dtype)
    plain, found = tensors_of(tmp_path / "plain"), tensors_of(tmp_path / "out")
    assert found.keys() == plain.keys()
    for name, tensor in plain.items():
        assert torch.equal(found[name], tensor.to(getattr(torch, dtype))), name
    model = load_whole(tmp_path / "out", dtype="auto")
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype
    assert audit_model(str(tmp_path / "out")).findings == ()


def test_a_cast_to_what_is_stored_copies(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "plain")
    report = run(source, tmp_path / "out", dtype="float32")
    assert {step.action.verb for step in report.plan.steps} == {"copy", "pool"}
    plain, found = contents(tmp_path / "plain"), contents(tmp_path / "out")
    assert found["model.safetensors"] == plain["model.safetensors"]


@pytest.mark.parametrize("name", ["mlp.up_proj", "self_attn.v_proj", "input_layernorm"])
def test_a_number_that_the_type_cannot_hold_is_an_error(
    source: Path, tmp_path: Path, name: str
) -> None:
    file, full = source / "model.safetensors", f"model.layers.1.{name}.weight"
    tensors = load_file(file)
    tensors[full].flatten()[3:15] = 200_000.0
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadValuesError, match="overflows float16") as caught:
        run(source, tmp_path / "out", dtype="float16")
    assert full in str(caught.value)
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "out", dtype="bfloat16")


def test_what_was_not_finite_stays_so(source: Path, tmp_path: Path) -> None:
    file, name = source / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3], tensors[name][4, 4] = float("nan"), float("inf")
    save_file(tensors, file, metadata={"format": "pt"})
    run(source, tmp_path / "out", dtype="float16")
    found = tensors_of(tmp_path / "out")[name]
    assert (int(found.isnan().sum()), int(found.isinf().sum())) == (1, 1)


def test_a_table_beside_the_weights_is_not_cast(source: Path, tmp_path: Path) -> None:
    """Older checkpoints hold masks of -1e9, which no 16-bit class reads."""
    file = source / "model.safetensors"
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**load_file(file), name: torch.tensor([1e9, 1.0])}, file, metadata={"format": "pt"})
    run(source, tmp_path / "out", dtype="float16")
    assert tensors_of(tmp_path / "out")[name].dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"max_shard_size": 10_000}])
def test_tied_embeddings_stay_tied(
    grouped: MakeFolder, tmp_path: Path, options: dict[str, object]
) -> None:
    folder = grouped("llama", 12, 4, tie_word_embeddings=True)
    run(folder, tmp_path / "out", **options)
    assert "lm_head.weight" not in tensors_of(tmp_path / "out")
    model = load_whole(tmp_path / "out")
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_are_refused(source: Path, tmp_path: Path, dtype: str) -> None:
    file, name = source / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name] = tensors[name].to(getattr(torch, dtype))
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InvalidWeightsError, match=r"H603.*up_proj"):
        run(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int8"}, "bfloat16"),
        ({"max_shard_size": 0}, "at least one"),
        ({"workers": 0}, "at least one"),
    ],
)
def test_options_that_make_no_sense(
    source: Path, tmp_path: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        run(source, tmp_path / "out", **options)
