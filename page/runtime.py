"""Pyodide, Python for browsers: the files of one version of its npm package, checked, and the
standard library in them compiled, without which a browser would compile it at every start."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from headcount.model.errors import HeadcountError

VERSION = "0.29.5"
_STDLIB = "python_stdlib.zip"
# Of the npm package: what a page needs, and its SHA-512.
FILES: Mapping[str, str] = {
    "pyodide.mjs": (
        "d655d7d63b09a1e300bc7d5e53573dde7119089b4056e5374ce4feb4dad14a32"
        "054c587e1beb9fdd1d3fa65b78cd6499d10ff3bbca4b261626b40a83b3e6d7e8"
    ),
    "pyodide.asm.js": (
        "8cb45ae5bce6439bcda7555cf63f0360d12e43b54145479f796ff29e4333100a"
        "bcb698f92f9786907c722805bf30952de5364f13c3e2b0936eaf179ec91441e5"
    ),
    "pyodide.asm.wasm": (
        "545ed1959536cc77834bbf9979c6bca39ce73ef17c8febb2f5edd24a5e3b2ead"
        "ff8aef8030f514f0ee3e45149e2a8ad7662c3788562e55f92011ea4b35dd60e0"
    ),
    _STDLIB: (
        "3e5c2a5ade3df225b2aa81dda2d099811f5f4e51fcdc79957f63514dc2e278a1"
        "c973632c652d53abf452792b112d71d89879e2ecabc7c46d56cb056c4bf4b721"
    ),
    "pyodide-lock.json": (
        "eb0fd223e5406d2c89f6011b0721c4388424ce66bbc8fd10ab607e2b1af42cbf"
        "4cb1556dbd837b4068354d173e2d2e0f06de11c45d8565ac46ab7af114d5d606"
    ),
}
_COMPILER = Path(__file__).with_name("assets") / "compile.mjs"
_TIMEOUT = 600  # seconds


def pyodide_files(folder: Path | None, say: Callable[[str], None]) -> dict[str, bytes]:
    """The files by their names, from the unpacked npm package in `folder`, or fetched by npm from
    the registry that it is set to. `say` is told what takes seconds. Raises HeadcountError."""
    node = _program("node", "which compiles Python's standard library for the page")
    with tempfile.TemporaryDirectory(prefix="headcount-page-") as work:
        if folder is None:
            say(f"Fetching pyodide {VERSION} with npm…")
            found = _fetched(Path(work))
        else:
            found = {name: _read(folder / name) for name in FILES}
        _check(found, folder)
        say("Compiling Python's standard library for the page…")
        found[_STDLIB] = _compiled(node, found, Path(work) / "package")
    return found


def _program(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise HeadcountError(
            f"{name} is not found, {what}: install Node.js 18 or newer (https://nodejs.org)"
        )
    return path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HeadcountError(
            f"{path}: cannot be read: {error.strerror or error}; --pyodide names the unpacked"
            f" folder `package` of what `npm pack pyodide@{VERSION}` fetches"
        ) from error


def _fetched(work: Path) -> dict[str, bytes]:
    npm = _program("npm", f"which fetches pyodide {VERSION} (or name its folder with --pyodide)")
    _run([npm, "pack", f"pyodide@{VERSION}", "--silent"], work, f"npm pack pyodide@{VERSION}")
    try:
        (archive,) = work.glob("*.tgz")
        with tarfile.open(archive) as package:
            return {name: _member(package, f"package/{name}") for name in FILES}
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise HeadcountError(f"npm pack pyodide@{VERSION}: gave no package: {error}") from error


def _member(package: tarfile.TarFile, name: str) -> bytes:
    file = package.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no file")
    return file.read()


def _check(found: Mapping[str, bytes], folder: Path | None) -> None:
    for name, digest in FILES.items():
        if hashlib.sha512(found[name]).hexdigest() != digest:
            where = folder / name if folder else f"npm's {name}"
            raise HeadcountError(f"{where}: is not that of pyodide {VERSION}: its SHA-512 differs")


def _compiled(node: str, found: Mapping[str, bytes], package: Path) -> bytes:
    """The archive with each module compiled by the Python that is to run it."""
    package.mkdir()
    for name, data in found.items():
        (package / name).write_bytes(data)
    archive = package.with_name("compiled.zip")
    _run([node, str(_COMPILER), str(package), str(archive)], package, "node")
    return archive.read_bytes()


def _run(command: list[str], folder: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise HeadcountError(f"{what}: took more than {_TIMEOUT} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-8:]
        raise HeadcountError(f"{what}: failed with status {done.returncode}: {' '.join(said)}")
