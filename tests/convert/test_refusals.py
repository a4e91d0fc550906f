"""What is refused, with which words, while the plan is made: nothing is written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headcount.convert.plan.errors import CannotConvertError, HeadCountError, TargetError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.refusals.source import check_source
from headcount.convert.plan.request import ConversionRequest, HomeChoice, KeyValueHeads
from headcount.model.errors import HeadcountError, InvalidWeightsError, WriteError
from headcount.report.report import Finding

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
Change = Callable[[dict[str, Any]], None]
K_PROJ = "model.layers.1.self_attn.k_proj.weight"


@pytest.fixture
def llama(grouped: MakeFolder, tmp_path: Path) -> Path:
    """A private copy of a Llama with 12 heads and 4 K/V heads."""
    return Path(shutil.copytree(grouped("llama", 12, 4), tmp_path / "llama"))


def plan(
    source: Path,
    kv: KeyValueHeads = 2,
    target: Path | None = None,
    home: HomeChoice = "auto",
) -> None:
    request = ConversionRequest(
        source=source, target=target or source.parent / "out", num_key_value_heads=kv, home=home
    )
    plan_conversion(request)


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_tensors(folder: Path, change: Change) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("kv", "words"),
    [
        (4, "already has 4 K/V heads"),
        (8, "has 4 K/V heads; 8 would be more"),
    ],
)
def test_counts(llama: Path, kv: int, words: str) -> None:
    with pytest.raises(HeadCountError, match=words):
        plan(llama, kv)


def test_a_count_that_divides_nothing_needs_a_free_head_dim(
    grouped: MakeFolder, tmp_path: Path
) -> None:
    """StableLM's head_dim is hidden_size / heads, so that query heads cannot be padded."""
    words = "6 K/V heads cannot be pooled to 4 in equal groups; --kv-heads can be 1, 2, 3"
    with pytest.raises(HeadCountError, match=words):
        plan(grouped("stablelm", 12, 6), 4, tmp_path / "out")


def test_counts_of_single_layers_need_a_config_that_says_them(llama: Path) -> None:
    with pytest.raises(CannotConvertError, match="one number of K/V heads for all layers"):
        plan(llama, {0: 2}, home="native")
    with pytest.raises(HeadCountError, match="layer 7 has no K/V heads"):
        plan(llama, {7: 2})
    with pytest.raises(HeadCountError, match="layer 1: has 4 K/V heads; 8 would be more"):
        plan(llama, {1: 8})
    with pytest.raises(HeadCountError, match="layer 1: 4 K/V heads cannot be pooled to 3"):
        plan(llama, {0: 2, 1: 3})


def test_zero_heads_and_unknown_methods(llama: Path) -> None:
    with pytest.raises(HeadcountError, match="at least one"):
        plan(llama, 0)
    with pytest.raises(HeadcountError, match="mean, renorm, align, merge, first, medoid, random"):
        ConversionRequest(
            source=llama,
            target=llama,
            num_key_value_heads=1,
            method="median",  # type: ignore[arg-type]
        )


def test_a_single_head_has_no_fewer(grouped: MakeFolder, tmp_path: Path) -> None:
    with pytest.raises(HeadCountError, match="MQA"):
        plan(grouped("llama", 6, 1), 1, tmp_path / "out")


@pytest.mark.parametrize(
    ("model_type", "sizes", "words"),
    [
        ("bert", {}, "keeps no K/V cache"),
        (
            "deepseek_v2",
            {
                **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8},
                **{"qk_rope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 6},
                **{"n_group": 1, "topk_group": 1},
            },
            "latent attention",
        ),
        ("rwkv", {"context_length": 32}, "not made of K/V heads"),
    ],
)
def test_architectures(
    save_any: Callable[..., Path], model_type: str, sizes: dict[str, Any], words: str
) -> None:
    with pytest.raises(CannotConvertError, match=words):
        plan(save_any(model_type, **sizes), 2)


@pytest.fixture
def save_any(tmp_path: Path) -> Callable[..., Path]:
    """Saves a tiny model of any type through its most general class."""
    from transformers import CONFIG_MAPPING, AutoModel

    def save(model_type: str, **config: Any) -> Path:
        size = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2}
        small = {"vocab_size": 64, "intermediate_size": 64, "pad_token_id": 0, **size, **config}
        folder = tmp_path / model_type
        AutoModel.from_config(CONFIG_MAPPING[model_type](**small)).save_pretrained(folder)
        return folder

    return save


def _rename(old: str, new: str) -> Change:
    def change(tensors: dict[str, Any]) -> None:
        tensors[new] = tensors.pop(old)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_rename(K_PROJ, "model.layers.1.self_attn.k_proj.qweight"), "H103|H603|quantised"),
        (lambda t: t.pop(K_PROJ), "H103 layer 1: no tensor for k"),
        (lambda t: t.update({K_PROJ: t[K_PROJ][:16].clone()}), "H101|H102"),
        (lambda t: t.update({K_PROJ: t[K_PROJ].to(torch.float8_e4m3fn)}), "quantised|H6"),
        (
            lambda t: t.update({"model.layers.0.self_attn.gate_proj.weight": torch.ones(2, 2)}),
            r"model\.layers\.0\.self_attn\.gate_proj\.weight",
        ),
        (
            lambda t: t.update({"model.layers.0.self_attn.k_proj.lora_A": torch.ones(2, 2)}),
            r"k_proj\.lora_A",
        ),
        (
            lambda t: t.update({"model.layers.0.linear_attn.conv.weight": torch.ones(2, 2)}),
            "looks like attention",
        ),
        (
            lambda t: t.update({"model.layers.0.self_attn.k_norm.weight": torch.ones(5)}),
            r"k_norm\.weight",
        ),
        (
            lambda t: t.update({"mtp.layers.0.self_attn.k_proj.weight": torch.ones(32, 96)}),
            "belongs to 'mtp'",
        ),
    ],
)
def test_tensors(llama: Path, change: Change, words: str) -> None:
    change_tensors(llama, change)
    with pytest.raises(HeadcountError, match=words):
        plan(llama)


def test_quantised_config(llama: Path) -> None:
    change_config(llama, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(CannotConvertError, match="quantised \\(gptq\\)"):
        plan(llama)


def test_config_against_weights(llama: Path) -> None:
    change_config(llama, num_key_value_heads=6)
    with pytest.raises(InvalidWeightsError, match="H101"):
        plan(llama)


@pytest.mark.parametrize(
    ("name", "words"), [("MistralForCausalLM", "H422.*'mistral'"), ("NobodyKnows", None)]
)
def test_a_class_of_another_type(llama: Path, name: str, words: str | None) -> None:
    """What loads the output goes by the model_type; a name that nobody knows says nothing else."""
    change_config(llama, architectures=[name])
    if words is None:
        plan(llama)
    else:
        with pytest.raises(InvalidWeightsError, match=words):
            plan(llama)


@pytest.mark.parametrize(
    ("gone", "words"),
    [("config.json", "no config.json there"), ("model.safetensors", "no safetensors weights")],
)
def test_missing_files(llama: Path, gone: str, words: str) -> None:
    (llama / gone).unlink()
    with pytest.raises(HeadcountError, match=words):
        plan(llama)


def test_not_a_folder(llama: Path) -> None:
    with pytest.raises(HeadcountError, match="not a folder"):
        plan(llama / "config.json")
    with pytest.raises(HeadcountError, match="not a folder"):
        plan(llama / "nowhere")


def test_remote_code_types(llama: Path) -> None:
    change_config(llama, model_type="deepseek")
    with pytest.raises(CannotConvertError, match="no class for it"):
        plan(llama)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("llama", "is the source itself"),
        ("llama/../llama", "is the source itself"),
        ("llama/out", "lies inside the source"),
        (".", "lies inside it"),
        ("full", "exists and is not empty"),
        ("file", "exists and is not a folder"),
        ("link", "is a link"),
        ("nowhere/out", "no such folder"),
        ("x" * 300, "too long"),
    ],
)
def test_targets(llama: Path, target: str, words: str) -> None:
    base = llama.parent
    (base / "full").mkdir()
    (base / "full" / "x").write_text("x")
    (base / "file").write_text("x")
    (base / "link").symlink_to(llama)
    with pytest.raises(TargetError, match=words):
        plan(llama, target=base / target)


def test_a_target_behind_a_linked_folder(llama: Path) -> None:
    (llama.parent / "elsewhere").symlink_to(llama.parent)
    with pytest.raises(TargetError, match="is the source itself"):
        plan(llama, target=llama.parent / "elsewhere" / "llama")


def test_too_little_space(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(llama)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(WriteError, match=r"bytes\) are needed, 1000 B \(1,000 bytes\) are free"):
        plan(llama)


def test_nothing_is_written_by_a_plan(llama: Path) -> None:
    plan(llama)
    assert [path.name for path in llama.parent.iterdir()] == ["llama"]


def test_a_list_of_layers_that_the_config_does_not_describe_is_refused(llama: Path) -> None:
    """A second tower whose layers look like those of the language model."""
    change_tensors(llama, lambda t: t.update({f"other.{K_PROJ}": t[K_PROJ].clone()}))
    with pytest.raises(HeadcountError, match=r"a list of layers that is none of the config's"):
        plan(llama)


@pytest.mark.parametrize("model_type", ["minimax", "recurrent_gemma"])
def test_padding_that_would_change_recurrent_layers(tmp_path: Path, model_type: str) -> None:
    """Their width follows the query heads: the output's own audit would fail."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 8}
    more = {"num_hidden_layers": 3, "vocab_size": 64, "intermediate_size": 32, "lru_width": 32}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 4}
    config = CONFIG_MAPPING[model_type](**sizes, **more, **experts)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    with pytest.raises(HeadCountError, match=r"change its recurrent layers.*can be 1, 2, 4"):
        plan(tmp_path / "model", 3)
    plan(tmp_path / "model", 2)


def test_errors_that_one_finding_stands_for_are_counted() -> None:
    first = Finding("H201", "error", "a.safetensors", "not there", "download it again")
    found = (first, first, first._replace(where="…", places=1_198))
    audit: Any = SimpleNamespace(findings=found)
    with pytest.raises(InvalidWeightsError, match="and 1,199 more; `headcount audit` lists them"):
        check_source(Path("model"), audit, {})
