"""H217 against transformers' own loading: a word in front of all names, known to the class or not.

`FOUND` was seen in from_pretrained(…, output_loading_info=True) of transformers 5.24, which
`test_transformers_finds_what_is_said_here` does again: the class's own base_model_prefix may stand
twice or be missing, and of any other word all keys are missing.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.audit import audit_model

NAMES = llama_shapes(LLAMA_CONFIG)
FOUND = {"language_model.": False, "llm.": False, "transformer.": False, "model.": True, "": True}
Shapes = dict[str, tuple[int, ...]]


def under(prefix: str) -> Shapes:
    return {f"{prefix}{name}": shape for name, shape in NAMES.items()}


def bare(prefix: str) -> Shapes:
    """The base model's names alone."""
    inner = (name for name in NAMES if name.startswith("model."))
    return {f"{prefix}{name.removeprefix('model.')}": NAMES[name] for name in inner}


@pytest.mark.parametrize("named", [under, bare])
@pytest.mark.parametrize("prefix", FOUND)
def test_a_foreign_word_in_front_is_an_error(tmp_path: Path, prefix: str, named: Any) -> None:
    folder = write_model(tmp_path, LLAMA_CONFIG, named(prefix))
    found = [one for one in audit_model(str(folder)).findings if one.code == "H217"]
    assert [one.severity for one in found] == ([] if FOUND[prefix] else ["error"])
    assert all(prefix in str(one) for one in found)


@pytest.mark.parametrize(("name", "is_known"), [("LlamaForQuestionAnswering", True), ("", True)])
def test_another_class_of_the_type_knows_another_word(
    tmp_path: Path, name: str, is_known: bool
) -> None:
    """The base model is `transformer` there; a file that names no class may be for it."""
    named = {"architectures": [name]} if name else {"architectures": None}
    folder = write_model(tmp_path, {**LLAMA_CONFIG, **named}, bare("transformer."))
    found = {one.code for one in audit_model(str(folder)).findings}
    assert ("H217" not in found) is is_known


def test_a_class_that_comes_with_the_model_has_names_of_its_own(tmp_path: Path) -> None:
    code = {"auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}}
    folder = write_model(tmp_path, {**LLAMA_CONFIG, **code}, under("llm."))
    assert "H217" not in {one.code for one in audit_model(str(folder)).findings}


@pytest.mark.needs_convert
@pytest.mark.parametrize("prefix", FOUND)
def test_transformers_finds_what_is_said_here(tmp_path: Path, prefix: str) -> None:
    transformers: Any = importlib.import_module("transformers")
    folder = write_model(tmp_path, LLAMA_CONFIG, under(prefix))
    load = transformers.LlamaForCausalLM.from_pretrained
    _, said = load(str(folder), output_loading_info=True)
    missing = {*said["missing_keys"]}
    assert missing == (set() if FOUND[prefix] else {*NAMES})
