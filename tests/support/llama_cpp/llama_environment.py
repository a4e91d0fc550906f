"""An environment that has llama.cpp, as llama-cpp-python brings it, and gguf.

`HEADCOUNT_LLAMA_CPP` names the interpreter of one that is there; else one is made of the package
index: llama.cpp is compiled, which takes minutes.
"""

import os
import shutil
import subprocess
import venv
from pathlib import Path

from llama_record import recorded

VARIABLE = "HEADCOUNT_LLAMA_CPP"
# Its RPC backend stands for a device. Buffers are as large without optimisation, and without what
# this machine's processor has beside others.
BUILD = (
    "-DGGML_RPC=ON -DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF -DLLAVA_BUILD=OFF -DLLAMA_BUILD_MTMD=OFF"
    " -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_C_FLAGS_RELEASE=-O0"
)


class NoEnvironmentError(Exception):
    """There is no llama.cpp, and none can be made; says why."""


def interpreter(folder: Path) -> Path:
    """That of the environment which VARIABLE names; else of one that is made in `folder`. Raises
    NoEnvironmentError."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    missing = [name for name in ("c++", "cc") if shutil.which(name) is None]
    if missing:
        raise NoEnvironmentError(f"llama.cpp is compiled: no {', '.join(missing)}")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    version = recorded()[0]["llama-cpp-python"]
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    done = subprocess.run(
        [*command, f"llama-cpp-python=={version}", "gguf"],
        env={**os.environ, "CMAKE_ARGS": BUILD},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoEnvironmentError(f"llama-cpp-python {version}: {done.stderr.strip()[-300:]}")
    return python
