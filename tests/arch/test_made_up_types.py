"""Architectures that nobody has: one value each, and nothing else, takes a type through an audit,
its total, a plan of every engine, GGUF and a conversion.

What a program reads off transformers (the defaults of the made-up class) is generated, as for any
new type; the registry finds the made-up file as it finds the others.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from gguf_files import key_values, write_gguf
from headcount.arch import class_defaults, registry
from headcount.arch.architecture import Architecture, ConfigKeys
from headcount.arch.attention.layer_kinds import FULL, full_every
from headcount.arch.attention.shape import AttentionShape
from headcount.arch.body.body import Body
from headcount.arch.body.feed_forward import Experts, sparse_steps
from headcount.arch.gguf.form import Gguf, Recurrence, Windows
from headcount.arch.states.hybrid import LINEAR, hybrid, query_gated_attention
from headcount.arch.states.kinds import every_nth
from headcount.arch.states.linear import gated_delta_net
from headcount.arch.tensors.names import HYBRID_NAMES
from headcount.cli import main

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_convert

TOOLS = Path(__file__).parents[2] / "tools"
ENGINES = ("vllm", "sglang", "llama.cpp", "transformers")

RELATIVE = Architecture(
    types=("madeup",),
    attention=AttentionShape(
        qkv_bias="attention_bias", o_bias="attention_bias", norm="head", kinds=full_every(3)
    ),
    body=Body(),
    gguf=(Gguf(architecture="madeup", windows=Windows(period=3)),),
    rotary="halves",
)
HYBRID_TYPE = Architecture(
    types=("madeup_hybrid",),
    config=ConfigKeys(),
    attention=AttentionShape(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm="head",
        kinds=every_nth(4, FULL, LINEAR, "full_attention_interval"),
        build=hybrid({FULL: query_gated_attention, LINEAR: gated_delta_net}),
    ),
    body=Body(
        experts=Experts(
            layers=sparse_steps,
            shared=1,
            shared_width="shared_expert_intermediate_size",
            shared_gate=True,
        )
    ),
    tensors=HYBRID_NAMES,
    gguf=(
        Gguf(
            architecture="madeup_hybrid",
            recurrence=Recurrence(form="gated delta net", layers="interval", period=4),
            query_gate=True,
        ),
    ),
)
SIZES: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 6},
    **{"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 8},
    **{"max_position_embeddings": 128, "tie_word_embeddings": False},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
HYBRID_SIZES: dict[str, Any] = {
    **SIZES,
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
}


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Two classes that transformers knows from here on, and the file that describes them."""
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM
    from transformers.models import qwen3, qwen3_next

    class MadeUpConfig(qwen3.Qwen3Config):  # type: ignore[misc]
        model_type = "madeup"

        def __post_init__(self, **kwargs: Any) -> None:
            self.use_sliding_window = True
            kinds = ["sliding_attention", "sliding_attention", "full_attention"]
            self.layer_types = (kinds * self.num_hidden_layers)[: self.num_hidden_layers]
            super().__post_init__(**kwargs)

    class MadeUpForCausalLM(qwen3.Qwen3ForCausalLM):  # type: ignore[misc]
        config_class = MadeUpConfig

    class MadeUpHybridConfig(qwen3_next.Qwen3NextConfig):  # type: ignore[misc]
        model_type = "madeup_hybrid"

    class MadeUpHybridForCausalLM(qwen3_next.Qwen3NextForCausalLM):  # type: ignore[misc]
        config_class = MadeUpHybridConfig

    classes = ((MadeUpConfig, MadeUpForCausalLM), (MadeUpHybridConfig, MadeUpHybridForCausalLM))
    for config, model in classes:
        AutoConfig.register(config.model_type, config)
        AutoModelForCausalLM.register(config, model)
    monkeypatch.setattr(class_defaults, "_TABLE", generated_defaults(tmp_path, classes))
    class_defaults.class_defaults.cache_clear()
    module = ModuleType("headcount.arch.made_up")
    module.ARCHITECTURES = (RELATIVE, HYBRID_TYPE)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with_made_up = {kind: dict(names) for kind, names in registry.index().items()}
    for one in module.ARCHITECTURES:
        with_made_up["types"][one.types[0]] = "made_up"
        with_made_up["gguf"][one.gguf[0].architecture] = "made_up"
    monkeypatch.setattr(registry, "index", lambda: with_made_up)
    yield
    class_defaults.class_defaults.cache_clear()
    for config, _ in classes:
        del CONFIG_MAPPING._extra_content[config.model_type]


def generated_defaults(folder: Path, classes: Any) -> Path:
    """The table of class defaults with the lines that its tool writes for the made-up classes."""
    spec = importlib.util.spec_from_file_location("made_up_defaults", TOOLS / "class_defaults.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    target = folder / "class_defaults.jsonl"
    lines = [tool.line_of(config.model_type) + "\n" for config, _ in classes]
    target.write_text(class_defaults._TABLE.read_text() + "".join(lines))
    return target


def run(*arguments: str | Path) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(main, [*map(str, arguments), "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def saved(folder: Path, model_type: str, sizes: dict[str, Any]) -> tuple[Path, Any]:
    """A checkpoint of the type with random weights, and the model."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**sizes))
    model.save_pretrained(folder)
    return folder, model.eval()


CASES = [
    pytest.param("madeup", {**SIZES, "sliding_window": 16}, id="relative"),
    pytest.param("madeup_hybrid", HYBRID_SIZES, id="hybrid"),
]


@pytest.mark.parametrize(("model_type", "sizes"), CASES)
def test_audit_and_total(tmp_path: Path, model_type: str, sizes: dict[str, Any]) -> None:
    folder, model = saved(tmp_path / "model", model_type, sizes)
    count = sum(parameter.numel() for parameter in model.parameters())
    by_weights = run("audit", folder)
    by_config = run("audit", folder / "config.json")
    for report in (by_weights, by_config):
        assert report["totals"]["parameters"] == count
        assert not [f for f in report["findings"] if f["severity"] == "error"]
    assert by_config["totals"] == {**by_weights["totals"], "parameters_source": "config"}
    cache = model(torch.arange(1, 41)[None], use_cache=True).past_key_values
    kinds = [layer["mixers"][0]["kind"] for layer in by_config["layers"]]
    if model_type == "madeup":
        held = [layer.keys.shape[-2] for layer in cache.layers]
        windows = [layer["mixers"][0]["window"] for layer in by_config["layers"]]
        assert held == [40 if window is None else window - 1 for window in windows]
        assert windows == [16, 16, None, 16, 16, None]
    else:
        assert kinds == ["recurrent"] * 3 + ["attention"] + ["recurrent"] * 2


@pytest.mark.parametrize("engine", [None, *ENGINES])
@pytest.mark.parametrize(("model_type", "sizes"), CASES)
def test_plan(tmp_path: Path, model_type: str, sizes: dict[str, Any], engine: str | None) -> None:
    folder, model = saved(tmp_path / "model", model_type, sizes)
    options = [] if engine is None else ["--engine", engine]
    plan = run("plan", folder, "--device", "h100", "--context", "64", *options)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert plan["model"]["model_type"] == model_type
    assert plan["model"]["parameters"] == count
    assert plan["fits"]
    every_token = 2 if model_type == "madeup" else 1  # layers that keep all tokens
    # Serving engines load float32 as 16 bit, and llama.cpp's cache is float16 whatever the weights.
    width = 2 if engine in ("llama.cpp", "sglang", "vllm") else 4
    assert plan["per_rank"]["rank_cache_bytes_per_token"] == every_token * 2 * 6 * 8 * width


@pytest.mark.parametrize("method", ["mean", "merge"])
@pytest.mark.parametrize(("model_type", "sizes"), CASES)
def test_conversion(tmp_path: Path, model_type: str, sizes: dict[str, Any], method: str) -> None:
    from transformers import AutoModelForCausalLM

    folder, _ = saved(tmp_path / "model", model_type, sizes)
    target = tmp_path / "fewer"
    run("convert", folder, target, "--kv-heads", "2", "--method", method)
    model, info = AutoModelForCausalLM.from_pretrained(target, output_loading_info=True)
    assert not any(info.values()), info
    attending = [m for name, m in model.named_modules() if name.endswith("self_attn")]
    assert attending and {m.k_proj.weight.shape[0] for m in attending} == {2 * sizes["head_dim"]}
    report = run("audit", target)
    heads = [m["num_key_value_heads"] for layer in report["layers"] for m in layer["mixers"]]
    assert {count for count in heads if count} == {2}


def test_gguf_windows(tmp_path: Path) -> None:
    keys = key_values("madeup", attention__sliding_window=16, attention__key_length=8)
    report = run("audit", write_gguf(tmp_path / "m.gguf", keys, {}), "--fail-on", "never")
    windows = [layer["mixers"][0]["window"] for layer in report["layers"]]
    assert windows == [16, 16, None, 16, 16, None]


def test_gguf_of_a_hybrid(tmp_path: Path) -> None:
    keys = key_values(
        "madeup_hybrid",
        ssm__conv_kernel=4,
        ssm__inner_size=32,
        ssm__state_size=8,
        ssm__group_count=2,
        attention__key_length=8,
    )
    report = run("audit", write_gguf(tmp_path / "m.gguf", keys, {}), "--fail-on", "never")
    kinds = [layer["mixers"][0]["kind"] for layer in report["layers"]]
    assert kinds == ["recurrent"] * 3 + ["attention"] + ["recurrent"] * 2
