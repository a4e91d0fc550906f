"""What published files hold beside what their class builds is no alarm; the same without the
class's word for it is.

Names are those of the files of google-t5/t5-small, google-bert/bert-base-uncased and
deepseek-ai/DeepSeek-V3: transformers 5.24 loads all three without a word.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, typed, write_model, write_typed
from headcount.arch.not_loaded import not_loaded
from headcount.audit import audit_model

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")
import whole_models  # noqa: E402
from header_edits import Headers, rewrite  # noqa: E402

T5_TABLE = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def alarms(folder: Path) -> list[str]:
    found = audit_model(str(folder)).findings
    return [f"{f.code} {f.message}" for f in found if f.severity != "note"]


def saved(tmp_path: Path, model_type: str, task: str) -> Path:
    whole_models.saved(model_type, task, tmp_path)
    return tmp_path / "model.safetensors"


def test_a_table_of_the_first_release(tmp_path: Path) -> None:
    file = saved(tmp_path, "t5", "seq2seq")
    rewrite(file, lambda headers: headers.update({T5_TABLE: ("BF16", [32, 2])}))
    assert alarms(tmp_path) == []
    other = T5_TABLE.replace("relative_attention_bias", "another_bias")
    rewrite(file, lambda headers: headers.update({other: ("BF16", [32, 2])}))
    assert [text[:4] for text in alarms(tmp_path)] == ["H203"]


def test_heads_of_another_task(tmp_path: Path) -> None:
    file = saved(tmp_path, "bert", "masked")

    def more(headers: Headers) -> None:
        width = headers["bert.embeddings.word_embeddings.weight"][1][1]
        headers["cls.seq_relationship.weight"] = ("BF16", [2, width])
        headers["bert.pooler.dense.weight"] = ("BF16", [width, width])

    rewrite(file, more)
    assert alarms(tmp_path) == []
    codes = {f.code: f.severity for f in audit_model(str(tmp_path)).findings}
    assert codes["H109"] == "note"


def layers_that_predict(config: dict[str, Any], count: int, *, joined: bool) -> dict[str, Any]:
    """The layers after the last, and what joins them to the model."""
    last = config["num_hidden_layers"]
    tensors = llama_shapes({**config, "num_hidden_layers": last + count})
    for index in range(last, last + count if joined else last):
        for name, shape in {"eh_proj": (32, 64), "enorm": (32,), "hnorm": (32,)}.items():
            tensors[f"model.layers.{index}.{name}.weight"] = shape
    return typed(tensors)


GLM = {**LLAMA_CONFIG, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe"}


@pytest.mark.parametrize(
    ("count", "said", "joined", "is_alarm"),
    [(1, 1, True, False), (2, 1, True, True), (1, 0, True, True), (1, 1, False, True)],
)
def test_layers_that_predict(
    tmp_path: Path, count: int, said: int, joined: bool, is_alarm: bool
) -> None:
    """As many as the config gives, with what joins them; else they are a layer too many."""
    dense = {"first_k_dense_replace": 3, "n_routed_experts": 4, "use_qk_norm": False}
    config = {**GLM, **dense, "num_nextn_predict_layers": said}
    write_typed(tmp_path, config, layers_that_predict(config, count, joined=joined))
    assert ("H103" in {text[:4] for text in alarms(tmp_path)}) == is_alarm


def with_biases(shapes: dict[str, Any]) -> dict[str, Any]:
    """Of q, k and v, as Qwen2 and its relatives have them."""
    ends = tuple(f"{letter}_proj.weight" for letter in "qkv")
    biased = {name: shape for name, shape in shapes.items() if name.endswith(ends)}
    return shapes | {n.replace(".weight", ".bias"): s[:1] for n, s in biased.items()}


def test_layers_that_predict_may_be_counted(tmp_path: Path) -> None:
    """The code beside MiMo builds them, and so does the count from its config."""
    named = {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    config = {**LLAMA_CONFIG, **named, "num_nextn_predict_layers": 1}
    own = with_biases(llama_shapes())
    first = {name: shape for name, shape in own.items() if ".layers.0." in name}
    ahead = {name.replace(".layers.", ".mtp_layers."): shape for name, shape in first.items()}
    names = ("token_layernorm", "hidden_layernorm", "final_layernorm")
    ahead |= {f"model.mtp_layers.0.{name}.weight": (32,) for name in names}
    ahead["model.mtp_layers.0.input_proj.weight"] = (32, 64)
    write_model(tmp_path, config, own | ahead)
    assert alarms(tmp_path) == []
    lost = {name: shape for name, shape in own.items() if "layers.1.mlp.up" not in name}
    write_model(tmp_path, config, lost | ahead)
    assert [text[:4] for text in alarms(tmp_path)] == ["H109"]


def test_what_a_class_leaves_out_is_read_from_the_table() -> None:
    found = not_loaded("DeepseekV3ForCausalLM")
    assert found is not None and found.search("model.layers.61.eh_proj.weight")
    assert not found.search("model.layers.60.self_attn.o_proj.weight")
    assert not_loaded("LlamaForCausalLM") is None


@pytest.mark.slow
def test_the_table_is_what_transformers_says() -> None:
    """Of all classes whose files can be imported here."""
    path = Path(__file__).parents[3] / "tools" / "not_loaded.py"
    spec = importlib.util.spec_from_file_location("tool", path)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert "".join(tool.lines()) == tool.TARGET.read_text(encoding="utf-8")


def test_nothing_is_left_out_of_a_sound_llama(tmp_path: Path) -> None:
    assert alarms(write_model(tmp_path, LLAMA_CONFIG, llama_shapes())) == []
