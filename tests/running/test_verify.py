"""`audit --verify`: an audit's counts against the model that transformers builds on meta."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headcount
from headcount.audit import audit_model
from headcount.audit.rules.rule import run
from headcount.audit.rules.verified import RULES, Unlike, VerifyFacts
from headcount.cli import main
from headcount.report.report import Finding

CLEAN = VerifyFacts("LlamaForCausalLM", (), (5,), (), ())
UNLIKE = {
    "H801": Unlike("attention", "k", "decoder", (0, 1, 2), 64, 128),
    "H802": Unlike("total", "parameters", "", (), 64, 128),
    "H803": Unlike("cache", "elements of 5 tokens", "decoder", (7,), 64, 128),
}
MODELS = {
    **{"llama-3-8b": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"},
    **{"google-t5/t5-small": "T5ForConditionalGeneration", "openai/whisper-tiny": ""},
    **{"google/gemma-3-4b-it": "", "deepseek-ai/DeepSeek-V3": "DeepseekV3ForCausalLM"},
    **{"Qwen/Qwen3-Next-80B-A3B-Instruct": "Qwen3NextForCausalLM"},
    **{"state-spaces/mamba-130m-hf": "MambaForCausalLM", "google-bert/bert-base-uncased": ""},
}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["audit", *arguments])


def report(*arguments: str) -> dict[str, Any]:
    done = invoke(*arguments, "--verify", "--format", "json")
    assert done.exit_code in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def findings(facts: VerifyFacts) -> list[Finding]:
    return list(run(RULES, facts))


@pytest.mark.parametrize("code", UNLIKE)
def test_each_kind_of_difference_has_its_code(code: str) -> None:
    assert findings(CLEAN) == []
    (finding,) = findings(CLEAN._replace(unlike=(UNLIKE[code],)))
    assert (finding.code, finding.severity) == (code, "error")
    assert "audit counts 64, LlamaForCausalLM has 128" in finding.message
    assert finding.where == {"H801": "decoder layers 0-2", "H802": "the model"}.get(
        code, "decoder layer 7"
    )


@pytest.mark.needs_convert
@pytest.mark.parametrize("model", MODELS)
def test_models_of_the_catalogue_are_as_built(model: str) -> None:
    verify = report(model)["verify"]
    assert verify["differences"] == []
    assert [one for one in verify["not_compared"] if "without weights" in one["reason"]] == []
    assert verify["cache_tokens"] or not audit_model(model).spec.is_cached
    assert verify["model_class"].startswith(MODELS[model])
    assert any(one["built"] for one in verify["compared"][1:])
    compared = {one["what"]: (one["audit"], one["built"]) for one in verify["compared"]}
    assert all(audit == built for audit, built in compared.values())
    layers = len([la for la in audit_model(model).spec.layers if la.stack != "vision"])
    assert compared["Layers"] == (layers, layers)


ENCODERS = {
    **{
        "albert": "AlbertForMaskedLM",
        "bert": "BertForMaskedLM",
        "camembert": "CamembertForMaskedLM",
    },
    **{"clip": "CLIPModel", "deberta": "DebertaForMaskedLM", "distilbert": "DistilBertForMaskedLM"},
    **{"electra": "ElectraForMaskedLM", "modernbert": "ModernBertForMaskedLM"},
    **{"mpnet": "MPNetForMaskedLM", "roberta": "RobertaModel", "siglip": "SiglipModel"},
    **{"vit": "ViTModel", "xlm-roberta": "XLMRobertaForMaskedLM", "dinov2": "Dinov2Model"},
}


@pytest.mark.needs_convert
@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders_are_as_built(tmp_path: Path, model_type: str) -> None:
    """Whatever their type: what was built does not say that its only stack is an encoder."""
    config = {"model_type": model_type, "architectures": [ENCODERS[model_type]]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = report(str(tmp_path / "config.json"))
    assert [one for one in found["findings"] if one["code"].startswith("H8")] == []
    compared = {one["what"]: (one["audit"], one["built"]) for one in found["verify"]["compared"]}
    assert all(audit == built and built for audit, built in compared.values())
    layers = {"albert": 1, "distilbert": 6, "modernbert": 22}  # BERT's number where nothing is said
    assert compared["Layers"][1] == layers.get(model_type, 12)


@pytest.mark.needs_convert
def test_groups_of_layers_are_as_built(tmp_path: Path) -> None:
    """ALBERT's twelve layers run the weights of three."""
    config = {"model_type": "albert", "architectures": ["AlbertModel"], "num_hidden_groups": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    verify = report(str(tmp_path / "config.json"))["verify"]
    assert verify["differences"] == []
    assert verify["compared"][0] == {"what": "Layers", "audit": 3, "built": 3}


@pytest.mark.needs_convert
@pytest.mark.parametrize(
    ("model_type", "model_class"),
    [
        *(("longcat_flash", "LongcatFlashForCausalLM"), ("cpmant", "CpmAntForCausalLM")),
        *(("bart", "BartForConditionalGeneration"), ("mbart", "MBartForConditionalGeneration")),
        *(("whisper", "WhisperForConditionalGeneration"), ("dory", "DoryForCausalLM")),
    ],
)
def test_a_config_that_names_no_class(tmp_path: Path, model_type: str, model_class: str) -> None:
    """The whole model is built, and two attentions of one block are those of its module. LongCat's
    class makes room for zero experts, which is not counted."""
    config = {"model_type": model_type, "zero_expert_num": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    verify = report(str(tmp_path / "config.json"))["verify"]
    assert verify["model_class"] == model_class
    assert verify["differences"] == []


@pytest.mark.needs_convert
@pytest.mark.parametrize("model_type", ["zaya", "inkling2", "pix2struct", "hrm_text"])
def test_modules_that_are_not_known_are_refused(tmp_path: Path, model_type: str) -> None:
    """No difference is reported that would be one of the comparison."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    done = invoke(str(tmp_path / "config.json"), "--verify")
    assert done.exit_code == 2
    assert "cannot be verified: its " in done.stderr


@pytest.mark.needs_convert
def test_windows_are_filled() -> None:
    assert report("google/gemma-3-4b-it")["verify"]["cache_tokens"] == [5, 1029]


@pytest.mark.needs_convert
def test_a_wrong_row_is_found_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the architecture misread the K/V heads: parts, total and cache all tell."""
    from headcount.running.built import compare_layers as compare

    read = compare.read_config
    monkeypatch.setattr(
        compare,
        "read_config",
        lambda config, where: read({**config, "num_key_value_heads": 4}, where),
    )
    monkeypatch.setattr(compare, "counted", lambda reading, _: _counted(reading))
    found = report("llama-3-8b")
    assert {f["code"] for f in found["findings"]} == {"H801", "H802", "H803"}
    assert {
        (d["what"], d["detail"], d["audit"], d["built"]) for d in found["verify"]["differences"]
    }
    keys = [d for d in found["verify"]["differences"] if d["detail"] == "k"]
    assert keys == [
        {
            **{"what": "attention", "detail": "k", "stack": "decoder", "layers": [*range(32)]},
            **{"audit": 4096 * 512, "built": 4096 * 1024},
        }
    ]
    assert invoke("llama-3-8b", "--verify").exit_code == 1
    assert invoke("llama-3-8b", "--verify", "--fail-on", "never").exit_code == 0
    assert invoke("llama-3-8b", "--verify", "--ignore", "H8").exit_code == 0
    assert "differs" in invoke("llama-3-8b", "--verify", "--format", "markdown").stdout


def _counted(reading: Any) -> Any:
    from dataclasses import replace

    return replace(reading.spec, parameters=reading.parameters())


@pytest.mark.needs_convert
@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModelForCausalLM": "modeling_chatglm.X"}},
        {},
    ],
)
def test_code_of_a_model_is_never_run(tmp_path: Path, config: dict[str, Any]) -> None:
    entry = {"model_type": "chatglm", "num_layers": 2, "hidden_size": 64, **config}
    entry |= {"num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": False}
    entry |= {"ffn_hidden_size": 96, "padded_vocab_size": 99, "seq_length": 64}
    (tmp_path / "config.json").write_text(json.dumps(entry))
    (tmp_path / "modeling_chatglm.py").write_text("raise SystemExit('executed')")
    done = invoke(str(tmp_path / "config.json"), "--verify")
    assert done.exit_code == 2
    assert "cannot be verified: transformers has no model_type 'chatglm'" in done.stderr
    assert ("its code comes with its weights" in done.stderr) == ("auto_map" in config)


@pytest.mark.needs_convert
def test_keys_that_name_code_or_kernels_are_dropped_at_any_depth() -> None:
    from headcount.running.built.meta_model import without_code

    nested = {"text_config": {"_attn_implementation_internal": "evil/kernels", "n_layer": 2}}
    assert without_code({"auto_map": {}, **nested}) == {"text_config": {"n_layer": 2}}


@pytest.mark.needs_convert
def test_a_config_that_transformers_refuses_is_one_line(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 2, "vocab_size": 99, "hidden_act": "no such function"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = invoke(str(tmp_path / "config.json"), "--verify")
    assert done.exit_code == 2
    assert "transformers cannot build it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "transformers" else find(name)
    )
    done = invoke("gpt2", "--verify")
    assert done.exit_code == 2
    assert "--verify needs transformers: install the extra `convert`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_builder_reads_no_table_of_the_audit() -> None:
    """It is the truth of other tests: only errors may come from the audit."""
    built = Path(headcount.__file__).parent / "running" / "built"
    for name in ("meta_model", "built_layers", "cached_elements", "shapes_only"):
        tree = ast.parse((built / f"{name}.py").read_text(encoding="utf-8"))
        froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours = {module for module in froms if module and module.startswith("headcount")}
        assert ours <= {"headcount.model.errors"}


@pytest.mark.needs_convert
@pytest.mark.parametrize("model_type", ["perceiver", "funnel"])
def test_models_without_one_list_of_layers_are_compared_as_a_whole(
    model_type: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    text = invoke(str(tmp_path), "--verify").stdout
    (row,) = [line.split() for line in text.splitlines() if line.startswith("Attention parameters")]
    assert row[2] == row[3] != "0" and row[4:] == ["the", "same"]
    assert "layers one by one, cache: its attention does not stand in one list" in text
    assert "encoder layers: only" not in text
