"""An output against its source: copies byte for byte, everything else made once more."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch

from headcount.model import limits
from headcount.model.errors import HeadcountError, InvalidConfigError, short
from headcount.model.units import format_indices
from headcount.sources.json_file import open_bytes, read_json
from headcount.sources.safetensors import FileHeader, TensorInfo

from ..attention_map.attention_tensors import Where
from ..plan.existing import DIGEST
from ..plan.plan import ConversionPlan
from ..plan.planner import plan_of
from ..plan.rewriting import Rewriting
from ..plan.source import CONFIG, read_source
from ..plan.steps import Copy, Step
from ..rewrite.groups import recorded_groups
from ..rewrite.layer import INPUTS, attention_key
from ..rewrite.store import NOTHING, Rewritten, names_of, redirected, rewrite_layers
from ..stream.hashing import digest_of, digest_of_bytes
from ..stream.os_failures import writing
from ..stream.reader import DTYPES, SourceReader
from ..stream.threads import one_thread
from ..stream.weight_file import WeightStream
from ..stream.work_folder import WorkFolder
from ..stream.writer import json_bytes
from ..temporary_folder import temporary_folder
from .findings import CONFIG_CHANGED, HEADERS_CHANGED, SOURCE_CHANGED, Verified
from .recorded import Recorded, damaged

# Of the norm of a tensor that was merged: another processor sums in another order, and the result
# is rounded to its type.
_ROUNDING = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-9}
_LEAST_ROUNDING = 1e-4


def check_source(
    recorded: Recorded,
    folder: Path,
    headers: Sequence[FileHeader],
    chosen: Collection[str] | None,
    verified: Verified,
) -> None:
    """Adds to `verified` how the output with these `headers` differs from what the source in
    `folder` gives: its tensors, or only the `chosen` ones, its config and index, and what was
    copied beside them. Raises HeadcountError for a source that cannot be read."""
    plan = plan_of(read_source(folder), recorded.request_for(folder))
    if plan.source.fingerprint != recorded.fingerprint:
        _another_source(recorded, plan, verified)
        return
    for file in plan.side_files:
        entry = recorded.manifest.get(file.name)
        if entry is None or digest_of(file.path, file.identity) != entry[DIGEST]:
            verified.differs(file.name, "the source's is another one than was copied")
    if plan.gguf is not None:
        _check_gguf(recorded, plan, chosen, verified)
        plan.source.check()
        return
    _check_json(recorded.folder, CONFIG, plan.config, verified)
    if plan.index_name is not None and plan.index is not None:
        _check_json(recorded.folder, plan.index_name, plan.index, verified)
    with _rewritten(recorded, plan) as rewritten:
        _check_tensors(recorded, redirected(plan, rewritten), rewritten, headers, chosen, verified)
    plan.source.check()


def _another_source(recorded: Recorded, plan: ConversionPlan, verified: Verified) -> None:
    """What of the files that describe the source is not as it was."""
    headers = {header.path.name for header in plan.source.headers}
    found = False
    for file in plan.source.described_by:
        entry = recorded.inputs.get(file.path.name)
        if file.path.name not in headers and entry != {
            "bytes": file.identity.size,
            DIGEST: digest_of_bytes(file.start),
        }:
            found = True
            verified.differs(file.path.name, CONFIG_CHANGED)
    if not found:
        verified.differs("source", HEADERS_CHANGED)
    verified.notes.append("The source is another one: no tensor was compared with it.")


def _check_json(folder: Path, name: str, wanted: Mapping[str, Any], verified: Verified) -> None:
    """Names each value of a JSON file that is not as planned."""
    try:
        found = read_json(folder / name, limits.INDEX_BYTES)
    except InvalidConfigError as error:
        verified.differs(name, str(error).removeprefix(f"{folder / name}: "))
        return
    except HeadcountError:  # missing: said already
        return
    if json_bytes(found) == json_bytes(wanted):
        return
    for key in dict.fromkeys((*wanted, *found)):
        for where, was, now in _unequal(key, wanted.get(key), found.get(key)):
            verified.differs(name, f"{where} is {short(now)}, not {short(was)}")


def _unequal(where: str, wanted: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*wanted, *found)):
            yield from _unequal(f"{where}.{key}", wanted.get(key), found.get(key))
    elif json_bytes(wanted) != json_bytes(found):
        yield where, wanted, found


def _check_gguf(
    recorded: Recorded, plan: ConversionPlan, chosen: Collection[str] | None, verified: Verified
) -> None:
    """Makes the one file once more and holds it against what is there, byte for byte."""
    if recorded.is_calibrated or chosen is not None:
        verified.notes.append(
            "A GGUF file is held against its source as a whole, and not where a text decided or"
            " where tensors are drawn: its digest alone was compared."
        )
        return
    from ..gguf.gguf_file import NAME
    from ..gguf.writing import file_pieces  # imports the package gguf

    assert plan.gguf is not None
    if not (recorded.folder / NAME).exists():
        return  # said already
    with (
        one_thread(),
        _rewritten(recorded, plan) as rewritten,
        SourceReader(plan.source.headers, rewritten.files) as reader,
        ThreadPoolExecutor(1) as pool,
        open_bytes(recorded.folder / NAME) as file,
    ):
        if _by_digest(recorded, rewritten, verified):
            return
        stream = WeightStream(redirected(plan, rewritten), reader, pool)
        pieces = file_pieces(plan.gguf, stream)
        same = all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)
    if same:
        verified.count("recomputed")
    else:
        verified.differs(NAME, "is not what its source gives")


@contextmanager
def _rewritten(recorded: Recorded, plan: ConversionPlan) -> Iterator[Rewritten]:
    """The layers that were merged by their weights, merged again, in a folder that goes away."""
    if plan.rewriting is None:
        yield NOTHING
        return
    with (
        writing(Path(gettempdir()), plan.rewriting.nbytes),
        temporary_folder("verify") as aside,
        WorkFolder(aside / "model", "verification", resumable=False) as work,
    ):
        work.start()
        rewriting = replace(plan.rewriting, chosen=_chosen_groups(recorded, plan.rewriting))
        yield rewrite_layers(rewriting, work, progress=True)


def _chosen_groups(
    recorded: Recorded, rewriting: Rewriting
) -> Mapping[Where, Sequence[Sequence[int]]]:
    """The K/V heads that became one, as the record has them: where several choices cost nearly the
    same another processor may make another one. Raises HeadcountError for a record that fits not.
    """
    if recorded.is_calibrated:
        return {}
    found = {}
    for where, own in rewriting.heads.layers.items():
        index, cross = where
        document = recorded.layers.get(index, {}).get(attention_key(cross))
        if document is None or not own.is_changed:
            continue
        if (
            not isinstance(document, dict)
            or document.get("groups") != list(own.runs)
            or not isinstance(document.get("order"), list)
            or set(document["order"]) != set(range(sum(own.runs)))
            or len(document["order"]) != sum(own.runs)
        ):
            raise damaged(recorded.folder, f"the order of heads of layer {index}")
        found[where] = recorded_groups(document)
    return found


def _by_digest(recorded: Recorded, rewritten: Rewritten, verified: Verified) -> Collection[str]:
    """The tensors of the source whose values follow from what is not kept, or not to be had here: a
    text; or the moments of random tokens, which groups of heads alone do not tell, where these can
    be run in one place only."""
    if recorded.is_calibrated:
        return recorded.rewritten
    unlike = {
        index
        for index, measured in rewritten.measured.items()
        if _assumed(measured) != _assumed(recorded.layers.get(index, {}))
    }
    if not unlike:
        return ()
    given = (_inputs(rewritten.measured[index]).get("reason") for index in sorted(unlike))
    reasons = dict.fromkeys(reason for reason in given if reason is not None)
    verified.notes.append(
        f"Of layers {format_indices(sorted(unlike))} the digests alone were compared: the record"
        " has the order of heads, and not what they read, which was"
        + (
            f" measured on random tokens, that cannot be run here: {'; '.join(reasons)}"
            if reasons
            else " taken for white where random tokens could not be run, as they can here"
        )
    )
    return names_of(rewritten, unlike)


def _inputs(measured: Mapping[str, Any]) -> Mapping[str, Any]:
    found = measured.get(INPUTS)
    return found if isinstance(found, dict) else {}


def _assumed(measured: Mapping[str, Any]) -> object:
    """What was taken for known of what a layer reads; None: it was measured."""
    return _inputs(measured).get("assumed")


def _check_tensors(
    recorded: Recorded,
    plan: ConversionPlan,
    rewritten: Rewritten,
    headers: Sequence[FileHeader],
    chosen: Collection[str] | None,
    verified: Verified,
) -> None:
    found = {tensor.name: tensor for header in headers for tensor in header.tensors}
    by_digest = _by_digest(recorded, rewritten, verified)
    with (
        one_thread(),
        SourceReader(plan.source.headers, rewritten.files) as reader,
        SourceReader(headers) as written,
        ThreadPoolExecutor(1) as pool,
    ):
        stream = WeightStream(plan, reader, pool)
        for step in plan.steps:
            if step.name in found and (chosen is None or step.name in chosen):
                info = found[step.name]
                _check_tensor(recorded, stream, step, written, info, by_digest, verified)
            if chosen is not None:
                reader.forget()  # what else needs it may not be chosen


def _check_tensor(
    recorded: Recorded,
    stream: WeightStream,
    step: Step,
    written: SourceReader,
    info: TensorInfo,
    by_digest: Collection[str],
    verified: Verified,
) -> None:
    if (info.dtype, info.shape) != (step.dtype, step.shape):
        found, wanted = f"{info.dtype} {list(info.shape)}", f"{step.dtype} {list(step.shape)}"
        verified.differs(step.name, f"is {found}, not {wanted}")
        return
    if any(source.name in by_digest for source in step.sources):
        verified.count("by_digest_only")
        return
    if _is_equal(stream.pieces(step), written, info):
        verified.count("copied" if isinstance(step.action, Copy) else "recomputed")
    elif any(s.name in recorded.rewritten for s in step.sources) and _is_rounded(
        stream, step, written, info
    ):
        verified.count("rounded")
    else:
        what = f"is not what its source gives ({step.action.verb})"
        known = step.name in recorded.tensors and not verified.names(step.name)
        verified.differs(step.name, f"{what}; {SOURCE_CHANGED}" if known else what)


def _is_equal(pieces: Iterator[memoryview], written: SourceReader, info: TensorInfo) -> bool:
    start = 0
    for piece in pieces:
        block = memoryview(bytearray(len(piece)))
        written.read_into(info, block, start)
        if block != piece:
            return False
        start += len(piece)
    return start == info.nbytes


def _is_rounded(stream: WeightStream, step: Step, written: SourceReader, info: TensorInfo) -> bool:
    """Whether a merged tensor differs by no more than roundings do."""
    if info.dtype not in DTYPES:
        return False
    dtype = DTYPES[info.dtype]
    made = torch.frombuffer(bytearray(b"".join(stream.pieces(step))), dtype=dtype).double()
    found = written.tensor(info).flatten().double()
    allowed = _ROUNDING.get(dtype, _LEAST_ROUNDING)
    return bool((made - found).norm() <= allowed * made.norm())
