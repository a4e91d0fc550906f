"""What is known of a type stands in one file of arch/: nobody else names it."""

import ast
import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

import headcount

PACKAGE = Path(headcount.__file__).parent
# Words that are model types and, where they stand, something else.
OTHER_MEANINGS = {
    "align": "a method of merging heads, and a mode of vLLM's recurrent cache",
    "vit": "a word in the names of tensors",
    "mamba": "the kind of a layer in `layer_types`, and a word in keys of configs",
    "rwkv": "a word in keys of configs",
}
# Rules of an engine that depend on a model_type: file -> the engine's source for it.
ENGINE_RULES = {
    "plan/gguf_mixes.py": "llama.cpp's own for Falcon and for models of 70 B, see the file",
    "plan/engines/llama_cpp/aborts.py": "where llama.cpp's own code for T5 aborts, see the file",
    "plan/engines/llama_cpp/placement.py": "llama.cpp's own buffers for BitNet, see the file",
    "plan/engines/sglang_caches.py": "SGLang's own layout of GLM's latents on 12.x, see the file",
    "plan/engines/sglang_requests.py": "SGLang's own caps of requests, see the file",
    "arch/gguf/written.py": "llama.cpp's architectures, which it names as types, see the file",
    "convert/gguf/names.py": "words that names of tensors begin with, no type",
    "convert/gguf/pre_tokenizers.py": "llama.cpp's names of pre-tokenizers (llama-vocab.cpp)",
    "convert/gguf/vocabulary.py": "GGUF's names of kinds of vocabulary (tokenizer.ggml.model)",
    "plan/engines/vllm/model_rules.py": "vLLM's own blocks for DeepSeek-V3.2, see the file",
}


def known_types() -> frozenset[str]:
    index = json.loads((PACKAGE / "arch" / "generated" / "lineages.json").read_bytes())
    return frozenset(index["types"]) | frozenset(index["spellings"])


def named(file: Path, types: frozenset[str]) -> set[str]:
    """The types that a file has as a whole string."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and value in types}


def source_files() -> list[Path]:
    """Every module of the package, through links, too (an editable install is made of them)."""
    walked = os.walk(PACKAGE, followlinks=True)
    return sorted(Path(folder) / name for folder, _, names in walked for name in names)


@pytest.fixture(scope="module")
def files() -> dict[str, set[str]]:
    """Each source file and the types that it names."""
    types = known_types() - OTHER_MEANINGS.keys()
    found = {
        file.relative_to(PACKAGE).as_posix(): named(file, types)
        for file in source_files()
        if file.suffix == ".py"
        and not {"tests", "tools", "bench", "build"} & set(file.relative_to(PACKAGE).parts)
    }
    return {name: types for name, types in found.items() if types}


def test_outside_arch_only_rules_of_engines_name_a_type(files: dict[str, set[str]]) -> None:
    outside = {name: types for name, types in files.items() if not name.startswith("arch/")}
    assert {name: types for name, types in outside.items() if name not in ENGINE_RULES} == {}
    assert ENGINE_RULES.keys() <= files.keys(), "the list names files that have no such rule"


def test_nearly_every_type_stands_in_one_file(files: dict[str, set[str]]) -> None:
    """What an engine does for a type is the engine's, and not counted here."""
    places = defaultdict(set)
    for name, types in files.items():
        if name in ENGINE_RULES:
            continue
        for model_type in types:
            places[model_type].add(name)
    types = known_types() - OTHER_MEANINGS.keys()
    several = {model_type for model_type in types if len(places[model_type]) != 1}
    assert len(several) <= len(types) * 0.04, sorted(several)
