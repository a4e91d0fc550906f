"""A model of .bin files as safetensors, for as long as it is converted.

Each file is loaded by torch in a process of its own, with weights_only, after the audit has looked
at what it imports without loading anything.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headcount.audit import Audit, audit_model
from headcount.model.errors import HeadcountError, InvalidWeightsError, WriteError
from headcount.model.redaction import without_secrets
from headcount.model.text import printable
from headcount.running.passing_folder import passing_folder, remove_folder
from headcount.running.signals import exit_cleanly, held_signals, on_signals
from headcount.sources.checkpoint import INDEX, SINGLE, Checkpoint
from headcount.sources.identity import FileIdentity, check_unchanged
from headcount.sources.safetensors import read_header

from .plan.leftovers import leftovers, own_folder, real_place
from .plan.side_files import sort_side_files
from .plan.target import check_space, check_target
from .stream.os_failures import writing
from .stream.side_file_copy import copy_side_file

# Below, files can break torch's reader even so: CVE-2025-32434, CVE-2026-24747.
_SAFE_TORCH = (2, 10)
_KIND = "unpickled"
_CANNOT_WRITE = 3  # an exit status of the program below
_CHILD = Path(__file__).with_name("unpickle_child.py")


@contextmanager
def unpickled(folder: Path, checkpoint: Checkpoint, target: Path) -> Iterator[Path]:
    """`folder` with its pickles as safetensors, beside `target`, removed when the context ends.

    Raises HeadcountError, for files that hold more than tensors without loading them.
    """
    audit = _check(folder, checkpoint)
    check_target(folder, target)
    shards, nbytes = len(checkpoint.files), sum(header.size for header in checkpoint.files)
    check_space(target, 2 * nbytes, 2 * shards)
    for left in leftovers(target, _KIND):
        remove_folder(left)
    with ExitStack() as stack:
        with writing(target, checkpoint.nbytes):
            copy = stack.enter_context(passing_folder(own_folder(real_place(target), _KIND)))
            with on_signals(exit_cleanly):
                _fill(folder, audit, checkpoint, copy)
        yield copy


def _check(folder: Path, checkpoint: Checkpoint) -> Audit:
    """Raises HeadcountError unless the files may be loaded; else the audit that says so."""
    found = version("torch")
    if tuple(int(part) for part in found.split(".")[:2]) < _SAFE_TORCH:
        raise HeadcountError(
            f"torch {found}: --allow-pickle needs torch 2.10 or newer, whose reader of pickles has"
            " known holes closed"
        )
    for file, names in checkpoint.suspects.items():
        raise InvalidWeightsError(
            f"{folder / file}: imports {', '.join(names[:3])[:200]}: loading it may run any"
            " program; get the model as safetensors"
        )
    if checkpoint.missing:
        raise InvalidWeightsError(
            f"{folder}: missing {', '.join(sorted(checkpoint.missing)[:3])}: download the files"
        )
    audit = audit_model(str(folder.absolute()))
    errors = [finding for finding in audit.findings if finding.severity == "error"]
    if errors:
        raise InvalidWeightsError(
            f"{folder}: {errors[0].code} {errors[0].where}: {errors[0].message}; {errors[0].hint}"
        )
    return audit


def _fill(folder: Path, audit: Audit, checkpoint: Checkpoint, copy: Path) -> None:
    """The copy of one state of `folder`, which is the one that was audited. Raises
    SourceChangedError where there is none."""
    side_files = sort_side_files(folder, frozenset())[0]
    seen = tuple(_seen(audit, checkpoint))
    tied = "tied" if audit.spec.tie_word_embeddings else "untied"
    files = [header.path for header in checkpoint.files]
    weight_map: dict[str, str] = {}
    for number, path in enumerate(files, start=1):
        name = SINGLE if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        print(
            f"Loading {printable(str(path))} with torch, in a process of its own …", file=sys.stderr
        )
        _convert_file(path, copy / name, tied)
        weight_map.update({tensor.name: name for tensor in read_header(copy / name).tensors})
        _as_old_as(copy / name, path)
    if len(files) > 1:
        _write_index(copy / INDEX, weight_map, checkpoint)
        _as_old_as(copy / INDEX, files[0])
    for side_file in side_files:
        copy_side_file(side_file, copy)
        _as_old_as(copy / side_file.name, side_file.path)
    check_unchanged((*seen, *((file.path, file.identity) for file in side_files)))


def _seen(audit: Audit, checkpoint: Checkpoint) -> Iterator[tuple[Path, FileIdentity]]:
    """What was judged: config, index, and pickles, whose imports were listed before the audit."""
    assert audit.checkpoint is not None
    read = (audit.source.config_file, audit.checkpoint.index_file, checkpoint.index_file)
    headers = (*audit.checkpoint.files, *checkpoint.files)
    for file in (*read, *(header.read for header in headers)):
        if file is not None:
            yield file.path, file.identity


def _convert_file(path: Path, target: Path, tied: str) -> None:
    # By its path: with -m, a torch.py in the current folder would be imported.
    command = [sys.executable, str(_CHILD), str(path.absolute()), str(target), tied]
    status, said = _run(command)
    if status:
        last = (said.strip().splitlines() or [f"status {status}"])[-1]
        if status == _CANNOT_WRITE:
            raise WriteError(f"{target}: cannot be written: {last[:300]}")
        raise InvalidWeightsError(f"{path}: cannot be loaded: {last[:300]}")


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Status and stderr of a process that does not outlive this call, whatever ends it."""
    process = None
    try:
        with held_signals():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=without_secrets(os.environ),  # it needs no network
            )
        said = process.communicate()[1]
        return process.returncode, said
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


def _write_index(path: Path, weight_map: Mapping[str, str], checkpoint: Checkpoint) -> None:
    index: dict[str, Any] = {
        "metadata": {"total_size": checkpoint.nbytes},
        "weight_map": dict(sorted(weight_map.items())),
    }
    path.write_text(json.dumps(index))


def _as_old_as(path: Path, original: Path) -> None:
    """So that an output is not taken for older than its source."""
    stat = original.stat()
    os.utime(path, ns=(stat.st_atime_ns, max(stat.st_mtime_ns, stat.st_ctime_ns)))
