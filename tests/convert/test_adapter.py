"""An adapter beside the model: refused by default, merged on request, and never left out unsaid."""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from conversions import contents, run
from headcount.cli import main
from headcount.convert.adapter.merged_weight import merged_weight
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.stream.pooling import NotFiniteError
from headcount.model.errors import UnsupportedModelError
from headcount.running.runnable import open_runnable

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
BASE: dict[str, Any] = {
    **{"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/base"},
    **{"r": 4, "lora_alpha": 12, "target_modules": ["q_proj"], "lora_dropout": 0.1},
    **{"bias": "none", "use_dora": False, "init_lora_weights": True, "modules_to_save": None},
}
PREFIX = "base_model.model."
# All kinds of linear layers of a Llama, not only those with heads.
MODULES = [
    f"model.layers.{layer}.{name}"
    for layer in range(2)
    for name in (
        *(f"self_attn.{part}_proj" for part in "qkvo"),
        *("mlp.up_proj", "mlp.down_proj"),
    )
]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {n: t for path in folder.glob("model*.safetensors") for n, t in load_file(path).items()}


def add_adapter(
    folder: Path, modules: list[str], *, rank: Mapping[str, int] | int = 4, **config: Any
) -> dict[str, torch.Tensor]:
    """Random matrices for `modules` beside the model; returns them."""
    drawn, held = torch.Generator().manual_seed(1), weights(folder)
    tensors = {}
    for module in modules:
        rows, columns = held[f"{module}.weight"].shape
        if config.get("fan_in_fan_out"):
            rows, columns = columns, rows
        r = rank if isinstance(rank, int) else rank.get(module, 4)
        tensors[f"{PREFIX}{module}.lora_A.weight"] = torch.randn(r, columns, generator=drawn) / 8
        tensors[f"{PREFIX}{module}.lora_B.weight"] = torch.randn(rows, r, generator=drawn) / 8
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(BASE | config))
    return tensors


@pytest.fixture
def llama(grouped: MakeFolder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grouped("llama", 12, 4), tmp_path / "source"))


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def by_hand(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    scaling: Callable[[str], float],
    *,
    transposed: bool = False,
) -> dict[str, torch.Tensor]:
    """The weights of the model with the adapter added, by peft's formula."""
    result = weights(folder)
    for name, up in tensors.items():
        if name.endswith(".lora_B.weight"):
            module = name.removeprefix(PREFIX).removesuffix(".lora_B.weight")
            delta = up.double() @ tensors[name.replace("lora_B", "lora_A")].double()
            delta = (delta.T if transposed else delta) * scaling(module)
            weight = result[f"{module}.weight"]
            result[f"{module}.weight"] = (weight.double() + delta).to(weight.dtype)
    return result


def expected_output(folder: Path, merged: Mapping[str, torch.Tensor], place: Path) -> Path:
    """The conversion of a folder that holds the merged weights and no adapter."""
    place.mkdir()
    for path in folder.iterdir():
        if "adapter" not in path.name and "safetensors" not in path.name:
            shutil.copy(path, place / path.name)
    save_file(dict(merged), place / "model.safetensors", metadata={"format": "pt"})
    run(place, place.parent / "expected", 2)
    return place.parent / "expected"


CONFIGS: list[tuple[dict[str, Any], Callable[[str], float]]] = [
    ({}, lambda module: 12 / 4),
    ({"use_rslora": True}, lambda module: 12 / math.sqrt(4)),
    ({"alpha_pattern": {"v_proj": 2}}, lambda module: (2 if "v_proj" in module else 12) / 4),
    (
        {"rank_pattern": {"^model.layers.0.self_attn.k_proj": 2, "layers.1.mlp.up_proj": 3}},
        lambda module: 12 / RANKS.get(module, 4),
    ),
    ({"lora_bias": False, "megatron_config": None, "peft_version": "0.21.2"}, lambda module: 3.0),
]
RANKS = {"model.layers.0.self_attn.k_proj": 2, "model.layers.1.mlp.up_proj": 3}


@pytest.mark.parametrize(("config", "scaling"), CONFIGS)
def test_merged_as_peft_merges_before_heads_are_pooled(
    llama: Path, tmp_path: Path, config: dict[str, Any], scaling: Callable[[str], float]
) -> None:
    ranks = RANKS if "rank_pattern" in config else 4
    tensors = add_adapter(llama, MODULES, rank=ranks, **config)
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter", "--check")
    assert result.exit_code == 0, result.output
    assert "the adapter beside the model was merged" in result.stdout
    expected = expected_output(llama, by_hand(llama, tensors, scaling), tmp_path / "merged")
    assert {n: t.tolist() for n, t in weights(tmp_path / "out").items()} == {
        n: t.tolist() for n, t in weights(expected).items()
    }
    made, wanted = contents(tmp_path / "out"), contents(expected)
    assert made.keys() == wanted.keys() and made["config.json"] == wanted["config.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["expected", "merged", "out", "source"]


def test_matrices_of_conv1d_are_turned(build_model: Callable[..., Any], tmp_path: Path) -> None:
    """GPT-2's c_proj is square: its shape does not say which way round it is."""
    source = tmp_path / "source"
    build_model("gpt2", n_head=6).save_pretrained(source)
    modules = [f"transformer.h.1.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc")]
    tensors = add_adapter(source, modules, fan_in_fan_out=True)
    merged = by_hand(source, tensors, lambda module: 3.0, transposed=True)
    expected = expected_output(source, merged, tmp_path / "merged")
    assert convert(source, tmp_path / "out", "--kv-heads", 2, "--merge-adapter").exit_code == 0
    found = weights(tmp_path / "out")
    for name, tensor in weights(expected).items():
        assert torch.equal(found[name], tensor), name


def test_shards_stay_shards(sharded: Path, tmp_path: Path) -> None:
    """Each file keeps its tensors, and the index goes along."""
    modules = [m for m in MODULES if f"{m}.weight" in weights(sharded)]
    tensors = add_adapter(sharded, modules)
    result = convert(sharded, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 0, result.output
    merged = by_hand(sharded, tensors, lambda module: 3.0)
    expected = expected_output(sharded, merged, tmp_path / "merged")
    found = weights(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    for name, tensor in weights(expected).items():
        assert torch.equal(found[name], tensor), name


def test_a_sum_in_sixteen_bits_is_rounded_once(grouped: MakeFolder, tmp_path: Path) -> None:
    source = Path(shutil.copytree(grouped("llama", 12, 4, "bfloat16"), tmp_path / "source"))
    tensors = add_adapter(source, MODULES)
    merged = by_hand(source, tensors, lambda module: 3.0)
    expected = weights(expected_output(source, merged, tmp_path / "merged"))
    assert convert(source, tmp_path / "out", "--kv-heads", 2, "--merge-adapter").exit_code == 0
    found = weights(tmp_path / "out")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert found["model.layers.0.self_attn.k_proj.weight"].dtype == torch.bfloat16


def test_without_the_option_an_adapter_is_refused(llama: Path, tmp_path: Path) -> None:
    add_adapter(llama, MODULES)
    for more in ((), ("--dry-run",), ("--sweep", "2"), ("--allow-pickle",)):
        target = () if "--sweep" in more else (tmp_path / "out", "--kv-heads", 2)
        result = convert(llama, *target, *more)
        assert result.exit_code == 2
        assert "an adapter (LORA, for 'org/base') beside the model" in result.stderr
        assert "--merge-adapter" in result.stderr
    with pytest.raises(CannotConvertError, match="beside the model"):
        run(llama, tmp_path / "out")
    with pytest.raises(UnsupportedModelError, match="beside the model"):
        open_runnable(str(llama))
    assert not (tmp_path / "out").exists()


def test_the_option_wants_an_adapter(llama: Path, tmp_path: Path) -> None:
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 2 and "no adapter_config.json there" in result.stderr


def test_a_conversion_with_is_another_job_than_one_without(llama: Path, tmp_path: Path) -> None:
    """And with another adapter another one again; the same is done already."""
    assert convert(llama, tmp_path / "out", "--kv-heads", 2).exit_code == 0
    tensors = add_adapter(llama, MODULES[:1])
    merge = (llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert (
        "(the source's config, or what its weights say of themselves, is another)"
        in convert(*merge).stderr
    )
    assert convert(*merge, "--overwrite").exit_code == 0
    assert "already done" in convert(*merge).stdout
    verified = convert("--verify", tmp_path / "out", llama, "--merge-adapter")
    assert verified.exit_code == 0, verified.output
    tensors = {name: tensor * 2 for name, tensor in tensors.items()}
    save_file(tensors, llama / "adapter_model.safetensors", metadata={"format": "pt"})
    assert convert(*merge).exit_code == 2
    assert convert("--verify", tmp_path / "out", llama, "--merge-adapter").exit_code != 0


UNKNOWN: list[tuple[str, Any]] = [
    ("peft_type", "LOHA"),
    ("peft_type", None),
    ("use_dora", True),
    ("bias", "all"),
    ("bias", "lora_only"),
    ("modules_to_save", ["lm_head"]),
    ("lora_bias", True),
    ("layer_replication", [[0, 2]]),
    ("init_lora_weights", "pissa"),
    ("init_lora_weights", 1),
    ("trainable_token_indices", [3]),
    ("target_parameters", ["mlp.experts.gate_up_proj"]),
    ("use_qalora", True),
    ("alora_invocation_tokens", [1]),
    ("a_key_of_tomorrow", {"x": 1}),
    ("r", 0),
    ("r", True),
    ("r", "8"),
    ("lora_alpha", "16"),
    ("lora_alpha", 1e400),
    ("use_rslora", 1),
    ("rank_pattern", {"(a+)+$": 2}),
    ("rank_pattern", {"k_proj": -1}),
    ("alpha_pattern", [1]),
]


@pytest.mark.parametrize(("key", "value"), UNKNOWN)
def test_what_is_no_plain_lora_is_refused_by_its_name(
    llama: Path, tmp_path: Path, key: str, value: Any
) -> None:
    add_adapter(llama, MODULES[:1], **{key: value})
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 2, result.output
    assert "adapter_config.json" in result.stderr
    assert key in result.stderr or value == 1e400  # which is no JSON
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def rename(old: str, new: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def act(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if old in name]:
            tensors[name.replace(old, new)] = tensors.pop(name)

    return act


BROKEN: list[tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = [
    (rename("lora_A", "lora_embedding_A"), "is no lora_A or lora_B"),
    (rename("lora_A.weight", "lora_magnitude_vector"), "is no lora_A or lora_B"),
    (lambda tensors: tensors.update({f"{PREFIX}lm_head.weight": torch.ones(1)}), "is no lora_A"),
    (lambda tensors: tensors.pop(min(tensors)), "alone"),
    (rename("layers.0", "layers.7"), "hold no weights"),
    (rename("q_proj", "v_proj"), "do not make"),
    (lambda tensors: tensors.clear(), "holds no matrices"),
]


@pytest.mark.parametrize(("damage", "words"), BROKEN)
def test_matrices_that_belong_to_nothing_are_refused(
    llama: Path,
    tmp_path: Path,
    damage: Callable[[dict[str, torch.Tensor]], Any],
    words: str,
) -> None:
    tensors = add_adapter(llama, MODULES[:1])
    damage(tensors)
    save_file(tensors, llama / "adapter_model.safetensors", metadata={"format": "pt"})
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 2 and words in result.stderr, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_rank_that_the_config_does_not_say_is_refused(llama: Path, tmp_path: Path) -> None:
    add_adapter(llama, MODULES[:1], r=8)
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 2 and "is of rank 4, and its config says 8" in result.stderr


def test_a_sum_that_is_not_finite_is_refused(llama: Path, tmp_path: Path) -> None:
    tensors = add_adapter(llama, MODULES[:1])
    tensors[max(tensors)][0, 0] = math.inf
    save_file(tensors, llama / "adapter_model.safetensors", metadata={"format": "pt"})
    result = convert(llama, tmp_path / "out", "--kv-heads", 2, "--merge-adapter")
    assert result.exit_code == 2 and "once the adapter is added" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize("transposed", [False, True])
def test_a_weight_is_added_to_in_slices(monkeypatch: pytest.MonkeyPatch, transposed: bool) -> None:
    monkeypatch.setattr("headcount.convert.adapter.merged_weight._SLICE", 64)
    weight, down, up = torch.randn(40, 24), torch.randn(3, 24), torch.randn(40, 3)
    expected = (weight.double() + 0.5 * up.double() @ down.double()).float()
    given = weight.T.contiguous() if transposed else weight
    found = merged_weight(given, down, up, scaling=0.5, transposed=transposed)
    assert torch.equal(found.T if transposed else found, expected)
    with pytest.raises(NotFiniteError):
        merged_weight(given.half(), down * 1e5, up, scaling=0.5, transposed=transposed)


@pytest.mark.parametrize("with_config", [False, True])
def test_an_adapter_alone_is_told_by_its_name(
    llama: Path, tmp_path: Path, with_config: bool
) -> None:
    add_adapter(llama, MODULES[:1])
    (llama / "model.safetensors").unlink()
    if not with_config:
        (llama / "config.json").unlink()
    runs = (("convert", llama, tmp_path / "out", "--kv-heads", 2), ("evaluate", llama))
    for arguments in (*runs, (*runs[0], "--merge-adapter")):
        result = CliRunner().invoke(main, [*map(str, arguments)])
        assert result.exit_code == 2
        assert "holds an adapter (LORA, for 'org/base')" in result.stderr
        assert "base model" in result.stderr
    audit = CliRunner().invoke(main, ["audit", str(llama), "--details"])
    assert audit.exit_code == (0 if with_config else 2)
    said = audit.stdout if with_config else audit.stderr
    assert "an adapter (LORA, for 'org/base')" in said and "base model (org/base)" in said
