"""Write arch/generated/gguf_tensors.jsonl: which tensors llama.cpp's loaders create.

Read from its sources, whose code is parsed and never run: `create_tensor` in `load_arch_tensors`
of src/models/*.cpp, and the names in src/llama-arch.cpp. A loader refuses a file that lacks a
tensor which it needs, and one that has a tensor which it does not create. The first line has the
version, and each other line an architecture that `arch/gguf/written.py` describes:

    {"architecture":"olmo","needs":["blk.attn_k.weight",…],"takes":["output.weight",…]}

Numbers of layers are left out of the names. What stands under a condition is only taken.

    python tools/gguf_tensors.py             # download the package, write the file
    python tools/gguf_tensors.py --from FILE # take the sdist of llama-cpp-python
    python tools/gguf_tensors.py --check     # exit 1 if the file is not what the sources say
"""

import argparse
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.arch.gguf.written import WRITTEN

VERSION = "0.3.36"
TARGET = Path(__file__).parent.parent / "arch" / "generated" / "gguf_tensors.jsonl"
_ENUM = re.compile(r'\{\s*(LLM_\w+),\s*"([^"]+)"\s*\}')
_LOADER = re.compile(r"::load_arch_tensors\(.*?\)\s*\{(.*?)\n\}", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<open>\{)|(?P<close>\})|(?P<semicolon>;)|(?P<word>\b(?:if|else|for)\b)"
    r'|create_tensor\(tn\((?P<name>LLM_TENSOR_\w+)\s*,\s*"(?P<leaf>\w+)"[^)]*\),'
    r"\s*\{[^}]*\},\s*(?P<flags>[^;]*)\)|(?P<qkv>create_tensor_qkv)\([^)]*,\s*(?P<how>\w+)\)"
    r"|(?P<experts>create_tensor_gate_up_exps)"
)


def tensors_of(code: str, names: dict[str, str]) -> dict[str, bool]:
    """The tensors of one loader's source, and whether it needs each."""
    found: dict[str, bool] = {}
    loader = _LOADER.search(code)
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", loader[1] if loader else "", flags=re.DOTALL)
    blocks: list[str] = []
    word = ""
    for token in _TOKEN.finditer(body):
        if token["word"]:
            word = token["word"]
        elif token["open"]:
            blocks.append(word)
            word = ""
        elif token["close"]:
            blocks.pop() if blocks else None
        elif token["semicolon"]:
            word = ""
        else:
            sure = not {"if", "else"} & {*blocks, word}
            for name, needed in _created(token, names):
                found[name] = found.get(name, False) or (needed and sure)
    return found


def _created(token: re.Match[str], names: dict[str, str]) -> Iterator[tuple[str, bool]]:
    if token["qkv"]:
        for part in ("attn_qkv", "attn_q", "attn_k", "attn_v"):
            yield f"blk.{part}.weight", False
            yield f"blk.{part}.bias", False
    elif token["experts"]:
        for part in ("gate_up_exps", "gate_exps", "up_exps"):
            yield f"blk.ffn_{part}.weight", False
    elif "TENSOR_DUPLICATED" not in token["flags"] or "i !=" in token["flags"]:
        name = names[token["name"]].replace(".%d", "")
        # `flags`: 0 but in files with layers for multi-token prediction
        yield f"{name}.{token['leaf']}", token["flags"].strip() in ("0", "flags")


def lines(sdist: Path) -> Iterator[str]:
    with tarfile.open(sdist) as files:
        prefix = f"{sdist.name.removesuffix('.tar.gz')}/vendor/llama.cpp/src/"

        def text(path: str) -> str:
            file = files.extractfile(prefix + path)
            assert file is not None
            return file.read().decode()

        names = dict(_ENUM.findall(text("llama-arch.cpp")))
        sources = {names[key]: key for key in names if key.startswith("LLM_ARCH_")}
        yield json.dumps({"versions": {"llama-cpp-python": VERSION}}, separators=(",", ":"))
        for architecture in sorted(WRITTEN):
            file = sources[architecture].removeprefix("LLM_ARCH_").lower().replace("_", "-")
            found = tensors_of(text(f"models/{file}.cpp"), names)
            line = {
                "architecture": architecture,
                "needs": sorted(name for name, needed in found.items() if needed),
                "takes": sorted(name for name, needed in found.items() if not needed),
            }
            yield json.dumps(line, separators=(",", ":"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="sdist", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        sdist = given.sdist
        if sdist is None:
            package = f"llama-cpp-python=={VERSION}"
            options = ["--no-deps", "--no-binary", ":all:", "--dest", folder]
            pip = [sys.executable, "-m", "pip", "download", "--quiet", *options, package]
            subprocess.run(pip, check=True)
            (sdist,) = Path(folder).glob("*.tar.gz")
        content = "".join(f"{line}\n" for line in lines(sdist))
    if given.check:
        same = TARGET.read_text(encoding="utf-8") == content
        print(TARGET, "is as the sources say" if same else "is not as the sources say")
        return 0 if same else 1
    TARGET.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
