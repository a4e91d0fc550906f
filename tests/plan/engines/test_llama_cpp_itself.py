"""llama.cpp is asked anew, in an environment of its own, and answers as it is recorded."""

import sys
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from llama_environment import VARIABLE, NoEnvironmentError, interpreter
from llama_record import recorded

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return str(interpreter(tmp_path_factory.mktemp("llama_cpp")))
    except NoEnvironmentError as error:
        pytest.skip(f"no llama.cpp to ask ({error}); or set {VARIABLE}")


def tool(name: str) -> Any:
    spec = spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_llama_cpp_answers_as_recorded(python: str) -> None:
    head, models = recorded()
    answers = list(tool("record_llama_cpp").answered(python, head, models))
    changed = [now["name"] for was, now in zip(models, answers, strict=True) if was != now]
    assert changed == []


@pytest.mark.slow
def test_llama_cpp_makes_the_graphs_that_are_recorded(python: str) -> None:
    made = "".join(f"{line}\n" for line in tool("record_llama_graphs").lines(python))
    recorded_ones = files("headcount.plan.engines.llama_cpp").joinpath("graphs.jsonl")
    assert made == recorded_ones.read_text(encoding="utf-8")
