"""Tiny random checkpoints with grouped K/V heads, and the same with every K/V head repeated."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faulty import FaultyCommand, faulty_command

HEAD_DIM = 8
# Values for whichever of these fields a config class has. Flags are on, so that biases and norms
# are there; sizes are small and no two that matter are equal.
SMALL = {
    **{"vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"head_dim": HEAD_DIM, "max_position_embeddings": 64, "sliding_window": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False},
    **{"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "n_routed_experts": 4},
    **{"moe_num_experts": 4, "moe_k": 2, "intermediate_size_mlp": 64, "expert_ffn_hidden_size": 32},
    **{"attention_bias": True, "use_bias": True, "use_qkv_bias": True, "qkv_bias": True},
    **{"bias": True, "use_qk_norm": True, "qk_layernorm": True, "attention_out_bias": True},
}

BuildModel = Callable[..., Any]
MakeFolder = Callable[..., Path]


@pytest.fixture
def classes_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the home that holds whatever no class of transformers does."""
    from headcount.convert.homes import finding

    others = {name: find for name, find in finding.HOMES.items() if name != "custom"}
    monkeypatch.setattr(finding, "HOMES", others)


@pytest.fixture(scope="session")
def build_model() -> BuildModel:
    """build_model(model_type, **config) -> a model with random values in every parameter."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    def build(model_type: str, **config: Any) -> Any:
        torch.manual_seed(0)
        config_class = CONFIG_MAPPING[model_type]
        known = {*config_class().to_dict(), *config_class.attribute_map}
        fields = {key: value for key, value in {**SMALL, **config}.items() if key in known}
        model = AutoModelForCausalLM.from_config(config_class(**fields)).eval()
        for parameter in model.parameters():
            parameter.data.normal_(std=0.3)
        return model

    return build


@pytest.fixture(scope="session")
def grouped(build_model: BuildModel, tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """grouped(model_type, heads, kv_heads, dtype) -> a saved GQA model; made once per session."""
    import torch

    made: dict[tuple[Any, ...], Path] = {}

    def make(
        model_type: str = "llama",
        heads: int = 6,
        kv: int = 3,
        dtype: str = "float32",
        **config: Any,
    ) -> Path:
        key = (model_type, heads, kv, dtype, *sorted(config.items()))
        if key not in made:
            size = {"hidden_size": heads * HEAD_DIM, "num_attention_heads": heads}
            model = build_model(model_type, **{**size, "num_key_value_heads": kv, **config})
            made[key] = tmp_path_factory.mktemp(f"{model_type}-{heads}-{kv}")
            model.to(getattr(torch, dtype)).save_pretrained(made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """repeated(folder, times) -> the same function with every K/V head `times` times in a row."""
    from safetensors.torch import load_file, save_file

    made: dict[tuple[Path, int], Path] = {}

    def repeat(folder: Path, times: int) -> Path:
        if (folder, times) not in made:
            target = tmp_path_factory.mktemp(f"{folder.name}-x{times}")
            shutil.copytree(folder, target, dirs_exist_ok=True)
            config = json.loads((folder / "config.json").read_text())
            kv = config["num_key_value_heads"]
            config["num_key_value_heads"] = kv * times
            (target / "config.json").write_text(json.dumps(config))
            tensors = {
                new: value
                for name, tensor in load_file(folder / "model.safetensors").items()
                for new, value in repeat_tensor(name, tensor, kv, times)
            }
            save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
            made[folder, times] = target
        return made[folder, times]

    return repeat


def repeat_tensor(name: str, tensor: Any, kv: int, times: int) -> list[tuple[str, Any]]:
    """Written for the test, from the shapes alone: it knows nothing of the converter's plan."""
    numbered = re.search(r"(k_layernorm\.norms\.)(\d+)", name)
    if numbered:
        first = int(numbered[2]) * times
        old = numbered[0]
        return [
            (name.replace(old, f"{numbered[1]}{first + i}"), tensor.clone()) for i in range(times)
        ]
    per_head = re.search(r"[kv]_proj\.(weight|bias)$", name) or (
        re.search(r"k_(layer)?norm\.weight$", name) and tensor.shape != (HEAD_DIM,)
    )
    if not per_head or "vision" in name:
        return [(name, tensor)]
    heads = tensor.reshape(kv, -1, *tensor.shape[1:])
    repeated = heads.repeat_interleave(times, 0)
    flat = tensor.shape[0] != kv  # Cohere keeps [kv, head_dim]
    return [(name, (repeated.flatten(0, 1) if flat else repeated.squeeze(1)).contiguous())]


@pytest.fixture(scope="session")
def command() -> Iterator[FaultyCommand]:
    """The command line in processes that a fault can be planted in."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with faulty_command() as made:
        yield made


@pytest.fixture
def source(grouped: MakeFolder, tmp_path: Path) -> Path:
    """A Llama of 12 heads and 4 K/V heads with the usual files, and some that must not go along."""
    folder = Path(shutil.copytree(grouped("llama", 12, 4), tmp_path / "source"))
    for name in ("README.md", "modeling_x.py", "model.gguf", "optimizer.bin"):
        (folder / name).write_text(f"content of {name}")
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (folder / ".cache").mkdir()
    (folder / "onnx").mkdir()
    (folder / "LICENSE.txt").write_text("shared")
    (folder / "NOTICE.txt").symlink_to("LICENSE.txt")
    (folder / "dangling.txt").symlink_to("nowhere")
    (folder / "passwd").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def sharded(grouped: MakeFolder, tmp_path: Path) -> Path:
    """The same model in several shards."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "sharded"
    model = AutoModelForCausalLM.from_pretrained(grouped("llama", 12, 4))
    model.save_pretrained(folder, max_shard_size="100KB")
    return folder


@pytest.fixture
def unchanged(source: Path) -> Iterator[None]:
    """Asserts that a test leaves the source as it was, and nothing hidden beside it."""
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in _files(source)}
    yield
    assert before == {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in _files(source)}
    assert not [path for path in source.parent.iterdir() if path.name.startswith(".")]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]
