"""What the system sees of an audit of a hostile folder: strace tells of each file and process.

No program is started, no connection is opened, nothing is written, and nothing outside the folder
is opened but the files that Python and this package consist of.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import headcount
from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from pickles import EVIL, write_bin

SECONDS = 60  # strace makes a process many times slower
SHARD = "model-00001-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
AUDIT = (sys.executable, "-c", "from headcount.cli import audit_main; audit_main()")
CALLS = "trace=execve,execveat,connect,open,openat,openat2,creat,mkdir,rename,unlink,symlink,link"
OPENED = re.compile(
    r'open(?:at2?)?\((?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)", (.*)'
)
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
# Python's modules and what they link to.
PYTHON = tuple(
    os.path.realpath(folder)
    for folder in (
        *(sys.prefix, sys.base_prefix, Path(headcount.__file__).resolve().parent),
        *sysconfig.get_paths().values(),
    )
)


class Trace(NamedTuple):
    """System calls of one run: programs started, connections, paths opened, calls that write."""

    started: list[str]
    connected: list[str]
    opened: set[str]
    wrote: list[str]
    output: str
    status: int


def trace(folder: Path, *command: str) -> Trace:
    """`command`, run in `folder`, which gets the log. Skips where strace cannot run."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = folder / "strace.log"
    done = subprocess.run(
        ["strace", "-f", "-y", "-qq", "-e", CALLS, "-o", str(log), *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": ""},
    )
    calls = log.read_text(errors="replace").splitlines() if log.exists() else []
    if "ptrace" in done.stderr or not calls:
        pytest.skip(f"strace may not trace here: {done.stderr[:200]}")
    found = [(match, line) for line in calls if (match := OPENED.search(line))]
    changes = ("creat(", "mkdir", "rename", "unlink", "symlink", "link(")
    return Trace(
        started=[line for line in calls if "execve" in line],
        connected=[line for line in calls if "connect(" in line],
        opened={_path(folder, match) for match, _ in found},
        wrote=[
            line
            for line in calls
            if any(call in line.split("(")[0] + "(" for call in changes)
            or ((match := OPENED.search(line)) and WRITES.search(match[3]))
        ],
        output=done.stdout + done.stderr,
        status=done.returncode,
    )


def _path(folder: Path, match: re.Match[str]) -> str:
    """The file that was opened, behind all links."""
    name = match[2].encode().decode("unicode_escape")
    return os.path.realpath(Path(match[1] or folder, name))


def _sound(folder: Path) -> None:
    write_model(folder, LLAMA_CONFIG, llama_shapes())


def _own_code(folder: Path) -> None:
    _sound(folder)
    auto = {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}, "trust_remote_code": True}
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG | auto))
    for name in ("modeling_evil.py", "__init__.py", "sitecustomize.py", "json.py", "click.py"):
        (folder / name).write_text("import os\nos.system('touch EXECUTED')\n")
    (folder / "tokenizer_config.json").symlink_to("/etc/passwd")
    (folder / "generation_config.json").symlink_to("/dev/zero")
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")


def _pickle(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    write_bin(folder / "pytorch_model.bin", llama_shapes(), before=EVIL)


def _index(folder: Path) -> None:
    write_sharded(folder, LLAMA_CONFIG, llama_shapes())
    index = json.loads((folder / INDEX).read_text())
    names = iter(("../secret.safetensors", "/etc/passwd", "..\\secret.safetensors"))
    index["weight_map"] |= dict(zip(index["weight_map"], names, strict=False))
    (folder / INDEX).write_text(json.dumps(index))
    _sound(folder.parent / "other")
    shutil.copy(folder.parent / "other" / "model.safetensors", folder.parent / "secret.safetensors")


def _shard(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write_sharded(folder, LLAMA_CONFIG, llama_shapes())
        (folder / SHARD).unlink()
        make(folder / SHARD)

    return change


def _config_is_a_device(folder: Path) -> None:
    _sound(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "code and links beside it": (_own_code, "H301"),
    "pickle that calls": (_pickle, "posix.system"),
    "index out of the folder": (_index, "plain file name"),
    "shard is a FIFO": (_shard(lambda path: os.mkfifo(path)), "regular"),
    "shard is /dev/zero": (_shard(lambda path: path.symlink_to("/dev/zero")), "outside"),
    "shard is /etc/passwd": (_shard(lambda path: path.symlink_to("/etc/passwd")), "outside"),
    "config is /dev/zero": (_config_is_a_device, "config.json"),
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What Python opens by itself: libraries, locales."""
    folder = tmp_path_factory.mktemp("usual")
    _sound(folder / "model")
    return trace(folder, *AUDIT, str(folder / "model")).opened


def outside(opened: set[str], *folders: Path) -> list[str]:
    allowed = (*(os.path.realpath(folder) for folder in folders), *PYTHON)
    return sorted(path for path in opened if not any(Path(path).is_relative_to(a) for a in allowed))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_folder_is_only_read(name: str, tmp_path: Path, usual: set[str]) -> None:
    make, said = FOLDERS[name]
    run, model = tmp_path / "run", tmp_path / "model"
    run.mkdir()
    make(model)
    seen = trace(run, *AUDIT, str(model), "--details")
    assert len(seen.started) == 1, "the audit itself"
    assert seen.connected == []
    assert [line for line in seen.wrote if "/dev/null" not in line] == []
    assert outside(seen.opened - usual, model, run) == []  # `python -c` looks for modules in run
    assert any(Path(path).is_relative_to(model.resolve()) for path in seen.opened)
    assert not list(tmp_path.rglob("EXECUTED"))
    assert not list(tmp_path.rglob("MARKER"))
    assert said in seen.output
    assert seen.status in (0, 1, 2)
    assert "Traceback" not in seen.output


def test_the_trace_sees_what_it_looks_for(tmp_path: Path) -> None:
    """A program that does all of it is caught: the check cannot pass by seeing nothing."""
    code = (
        "import os, socket, sys\n"
        "open('/etc/hosts').close(); open('written', 'w').close()\n"
        "s = socket.socket(); s.settimeout(1)\n"
        "try: s.connect(('127.0.0.1', 9))\n"
        "except OSError: pass\n"
        "os.system('true')\n"
    )
    (tmp_path / "evil.py").write_text(code)
    seen = trace(tmp_path, sys.executable, "evil.py")
    assert len(seen.started) > 1
    assert seen.connected
    assert "/etc/hosts" in outside(seen.opened, tmp_path)
    assert any("written" in line for line in seen.wrote)
