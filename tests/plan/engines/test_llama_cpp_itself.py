"""llama.cpp is asked anew, in an environment of its own, and answers as it is recorded."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from llama_record import recorded

# The Python of an environment that has llama-cpp-python and gguf, to save building one.
GIVEN = "HEADCOUNT_LLAMA_CPP"
TOOLS = Path(__file__).resolve().parents[3] / "tools"
# Its RPC backend stands for a device. Buffers are as large without optimisation.
BUILD = (
    "-DGGML_RPC=ON -DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF"
    " -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_C_FLAGS_RELEASE=-O0"
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    if given := os.environ.get(GIVEN):
        return given
    missing = [name for name in ("c++", "cc", "make") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"llama.cpp is built from source: no {', '.join(missing)}; or set {GIVEN}")
    folder = tmp_path_factory.mktemp("llama_cpp")
    venv.create(folder, with_pip=True)
    made = str(folder / "bin" / "python")
    version = recorded()[0]["llama-cpp-python"]
    ran = subprocess.run(
        [made, "-m", "pip", "install", "-q", f"llama-cpp-python=={version}", "gguf"],
        env={**os.environ, "CMAKE_ARGS": BUILD},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        pytest.skip(f"llama-cpp-python does not install: {ran.stderr.strip()[-300:]}")
    return made


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
