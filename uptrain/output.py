"""The output folder: trained weights in the files, names and types of CONVERTED, all beside them
as it was there, and the record of what was done."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from headcount.convert.audited_output import audited_output
from headcount.convert.homes.modeling_files import modeling_files
from headcount.convert.plan.document import SCHEMA_VERSION
from headcount.convert.plan.errors import SelfCheckError
from headcount.convert.plan.existing import DIGEST, Existing
from headcount.convert.plan.model_card import CARD
from headcount.convert.plan.side_files import RECORD, sort_side_files
from headcount.convert.plan.source import CONFIG
from headcount.convert.stream.hashing import digest_of
from headcount.convert.stream.side_file_copy import copy_side_file
from headcount.convert.stream.writer import json_bytes, write_bytes
from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.model.version import __version__
from headcount.sources.checkpoint import find_weights, read_checkpoint
from headcount.sources.identity import check_identity
from headcount.sources.json_file import read_json_file

from .uptrain_plan import UptrainPlan
from .uptrained_card import uptrained_card


def job_digest(plan: UptrainPlan) -> str:
    """What tells one uptraining from another in conversion.json."""
    text = json.dumps(plan.job(local=False), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def write_output(
    plan: UptrainPlan,
    student: PreTrainedModel,
    state: Mapping[str, Tensor],
    folder: Path,
    uptraining: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes the whole model into `folder`, which must not exist, checks it, and returns its
    record. Raises OSError, SafetensorError and SelfCheckError."""
    folder.mkdir()
    _write_weights(plan, student, state, folder)
    source = plan.student.folder
    weights = {path.name for path in folder.iterdir()}
    for file in sort_side_files(source, frozenset({CONFIG, *weights}))[0]:
        check_identity(file.path, plan.source.standing.get(file.name), file.identity)
        copy_side_file(file, folder)
    if "auto_map" in plan.source.config:  # of ours, or the student had not been loaded
        for path in modeling_files(plan.source.model_type):
            shutil.copyfile(path, folder / path.name)
    conversion = _conversion(plan)
    _tell(folder / CARD, conversion, uptraining)
    write_bytes(folder / CONFIG, plan.source.config_file.start)
    for state_of in plan.states:
        state_of.check()
    record = _record(plan, folder, conversion, uptraining)
    write_bytes(folder / RECORD, json_bytes(record))
    _check(plan, folder)
    return record


def _write_weights(
    plan: UptrainPlan,
    student: PreTrainedModel,
    state: Mapping[str, Tensor],
    folder: Path,
) -> None:
    """By transformers, which knows what its weights are called on the disk."""
    files = plan.source.checkpoint.files
    sizes = [file.size for file in files]
    scratch = folder / "weights"
    student.save_pretrained(
        scratch,
        state_dict=dict(state),
        max_shard_size=2 * sum(sizes) if len(sizes) == 1 else max(sizes),
    )
    for path in scratch.iterdir():
        if path.name.endswith((".safetensors", ".safetensors.index.json")):
            path.rename(folder / path.name)
    shutil.rmtree(scratch)


def _conversion(plan: UptrainPlan) -> dict[str, Any]:
    """The record of the conversion that wrote CONVERTED, empty where none did."""
    if RECORD not in plan.source.standing:
        return {}
    path = plan.student.folder / RECORD
    record, read = read_json_file(path, limits.RECORD_BYTES)
    check_identity(path, plan.source.standing[RECORD], read.identity)
    return record


def _tell(card: Path, conversion: Mapping[str, Any], uptraining: Mapping[str, Any]) -> None:
    """Adds to the model card, where CONVERTED has one, what was done since. It may be anybody's:
    bytes that are no UTF-8 stay as they are."""
    if not card.is_file():
        return
    text = card.read_bytes().decode(errors="surrogateescape")
    card.unlink()
    told = uptrained_card(text, conversion, uptraining)
    write_bytes(card, told.encode(errors="surrogateescape"))


def _record(
    plan: UptrainPlan, folder: Path, old: Mapping[str, Any], uptraining: Mapping[str, Any]
) -> dict[str, Any]:
    """The conversion's own record with what was done since. No times, no paths."""
    begun = {"schema_version": SCHEMA_VERSION, "tool": {"name": "headcount"}}
    kept = {key: value for key, value in {**begun, **old}.items() if key not in ("job", "manifest")}
    manifest = {
        path.name: {"bytes": path.stat().st_size, DIGEST: digest_of(path)}
        for path in sorted(folder.iterdir())
    }
    return {
        **kept,
        "uptraining": {"tool": {"name": "headcount", "version": __version__}, **uptraining},
        "job": job_digest(plan),
        "manifest": manifest,
    }


def _check(plan: UptrainPlan, folder: Path) -> None:
    """Raises SelfCheckError unless the output audits like CONVERTED and has its tensors."""
    left = sort_side_files(plan.student.folder, frozenset())[1]
    audited_output(folder, plan.source.audit.findings, has_left_files=bool(left))
    path = find_weights(folder)
    assert path is not None
    found = {n: (t.dtype, t.shape) for n, t in read_checkpoint(path).tensors.items()}
    wanted = {n: (t.dtype, t.shape) for n, t in plan.source.checkpoint.tensors.items()}
    other = sorted(name for name in found if found[name] != wanted.get(name))
    if other:
        raise SelfCheckError(
            f"transformers writes a tensor {other[0]!r} that {plan.student.id} has not (or with"
            " another type or shape); nothing was kept"
        )


def done_before(plan: UptrainPlan, existing: Existing | None) -> dict[str, Any] | None:
    """The record of a target that this very job has written, whole; None for any other."""
    if existing is None or existing.job != job_digest(plan):
        return None
    for name, entry in existing.manifest.items():
        try:
            if digest_of(existing.folder / name) != entry[DIGEST]:
                return None
        except HeadcountError:
            return None
    return dict(existing.record)
