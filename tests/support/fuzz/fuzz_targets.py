"""Every parser of what a stranger wrote, each as a function of bytes, in one table.

What is read from a disk is written to a folder of this process first; nothing else is written, and
no network is asked.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zlib import crc32

import fuzz_seeds as seeds
from checkpoints import LLAMA_CONFIG, header_bytes, llama_shapes, write_sharded
from fuzz_mutators import mutate_bytes, mutate_header, mutate_json, mutate_text
from fuzz_target import Parser, Target
from gguf_files import gguf_bytes
from headcount.audit.audit_report import audit_report
from headcount.audit.audited import Audit
from headcount.audit.auditing import audit_model, audit_source
from headcount.cli import COMMANDS
from headcount.convert.plan.existing import read_existing
from headcount.convert.stream.journal import read_journal
from headcount.model.errors import HeadcountError
from headcount.model.sizes import AuditRequest
from headcount.plan.command import planned
from headcount.plan.devices import parse_device
from headcount.plan.engines.registry import ENGINES
from headcount.plan.hardware.prices import read_prices
from headcount.plan.options.modalities import parse_image_size, parse_limits
from headcount.plan.options.speculation import parse_speculative_config
from headcount.plan.reconcile.command import reconcile_log
from headcount.plan.report.report import plan_report
from headcount.plan.request import PlanRequest
from headcount.plan.result import plan_result
from headcount.report import render
from headcount.sources import hub
from headcount.sources.connection.http_client import Response, UnreachableError
from headcount.sources.found import FoundModel
from headcount.sources.json_file import parse_json
from headcount.sources.pickles.pickle_file import read_pickle
from headcount.sources.safetensors import read_header

_CONFIG = json.dumps(LLAMA_CONFIG).encode()
_PARAMETERS = 10**12  # of a model that does not say them, so that there is a plan
_MOST_BYTES = 2**40  # of a sparse file that is made for a header


@cache
def _kept() -> "TemporaryDirectory[str]":
    """The folder of this process, which goes when it ends."""
    return TemporaryDirectory(prefix="headcount-fuzz-")


def _folder(name: str) -> Path:
    path = Path(_kept().name, name)
    path.mkdir(exist_ok=True)
    return path


def _file(name: str, data: bytes) -> Path:
    path = _folder("files") / name
    path.write_bytes(data)
    return path


def _shown(audit: Audit, data: bytes) -> None:
    """What `audit` and `plan` make of a model, on an engine that depends on `data`."""
    render([audit_report(audit, AuditRequest(explain=True))], "json")
    engine = sorted(ENGINES)[crc32(data) % len(ENGINES)]
    request = PlanRequest(engine=engine, device=parse_device("h100"))
    weighed = audit.weights_bytes or audit.spec.parameters
    model = planned(audit, None if weighed else _PARAMETERS)
    render([plan_report(plan_result(model, request))], "markdown")


def read_config(data: bytes) -> None:
    config = parse_json(data, "config.json", allow_non_finite=True)
    _shown(
        audit_source(FoundModel(kind="config", id="m", where="config.json", config=config)), data
    )


@cache
def _sharded() -> Path:
    folder = _folder("sharded")
    write_sharded(folder, LLAMA_CONFIG, llama_shapes())
    return folder


def read_index(data: bytes) -> None:
    (_sharded() / "model.safetensors.index.json").write_bytes(data)
    _shown(audit_model(str(_sharded())), data)


def read_safetensors(data: bytes) -> None:
    read_header(_file("a.safetensors", data))


def read_shapes(data: bytes) -> None:
    """JSON of names and shapes, as the header of a Llama checkpoint whose values are a hole."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in parse_json(data, "shapes").items():
        known = isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)
        size = 2 * prod(shape) if known else 2
        size = size if end + size < _MOST_BYTES else 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    folder = _folder("shapes")
    (folder / "config.json").write_bytes(_CONFIG)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header_bytes(header))
        file.truncate(file.tell() + end)
    _shown(audit_model(str(folder)), data)


def read_gguf(data: bytes) -> None:
    _shown(audit_model(str(_file("a.gguf", data))), data)


def read_gguf_keys(data: bytes) -> None:
    """JSON of key-values, as those of a GGUF file without tensors."""
    keys = {name: _of_gguf(value) for name, value in parse_json(data, "keys").items()}
    encoded = {_text(name): value for name, value in keys.items() if value is not None}
    _shown(audit_model(str(_file("a.gguf", gguf_bytes(encoded, {})))), data)


def _of_gguf(value: Any) -> Any:
    """`value` where a GGUF file can hold it; None for what it cannot."""
    if isinstance(value, list):
        items = [_of_gguf(item) for item in value]
        alike = len({type(item) for item in items}) < 2 and None not in items
        return items if alike and not any(isinstance(item, list) for item in items) else None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return value if abs(value) < 3e38 or value != value else None
    return value if type(value) in (bool, int) and 0 <= value < 2**32 else None


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def read_torch(data: bytes) -> None:
    read_pickle(_file("a.bin", data))


def read_log(data: bytes) -> None:
    known = {"model": "Qwen/Qwen3-8B"} if crc32(data) % 2 else {}
    render([reconcile_log(str(_file("a.log", data)), known).report], "json")


# Options are typed beside these words, or, where there are none, only parsed.
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    **{"plan": ("gpt2",), "audit": ("gpt2", "llama-3-8b"), "diff": ("gpt2", "llama-3-8b")},
    **dict.fromkeys(("convert", "uptrain", "evaluate"), ()),
}
_PLACES = {"convert": ("x", "y"), "uptrain": ("x",), "evaluate": ("x",)}
_NOT_TYPED = ("--output", "-o", "--config", "--scan", "--verify", "--help", "-h")


def read_price_list(data: bytes) -> None:
    read_prices(_file("prices", data))


def read_additions(data: bytes) -> None:
    """What drafts, and what a prompt may bring, as the options of a plan say it."""
    text, gpt2 = data.decode("utf-8", "replace"), planned(audit_model("gpt2"))
    parsers: tuple[Callable[[str], object], ...] = (
        lambda text: parse_speculative_config(text, lambda name: gpt2),
        parse_limits,
        parse_image_size,
    )
    for parse in parsers:
        with suppress(HeadcountError):
            parse(text)


def read_options(data: bytes) -> None:
    """A line with the name of a command, and one for each option."""
    name, *typed = data.decode("utf-8", "replace").replace("\x00", "").split("\n")
    if name not in _COMMANDS:
        return
    args = [word for word in typed if word.startswith("--") and not word.startswith(_NOT_TYPED)]
    words = _COMMANDS[name]
    with _quiet():
        if words:
            COMMANDS[name].main([*words, *args], prog_name=name, standalone_mode=False)
        else:
            COMMANDS[name].make_context(name, [*_PLACES[name], *args])


@contextmanager
def _quiet() -> Iterator[None]:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as null,
        redirect_stdout(null),
        redirect_stderr(null),
    ):
        yield


class _Server:
    """Answers every request with the next of what it was given."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self.answers = answers

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, url: str, headers: Mapping[str, str], limit: int) -> Response:
        answer = next(self.answers, None)
        if not isinstance(answer, dict) or type(answer.get("status")) is not int:
            raise UnreachableError("no answer")
        given, body = answer.get("headers"), answer.get("body")
        text = body if isinstance(body, str) else json.dumps(body)
        return Response(
            status=answer["status"],
            headers={
                _text(key.lower()): _text(str(value))
                for key, value in (given if isinstance(given, dict) else {}).items()
            },
            body=text.encode("utf-8", "surrogatepass")[:limit],
        )


def read_answers(data: bytes) -> None:
    """JSON with a list of `answers`: what the Hub says, one after another."""
    answers = parse_json(data, "answers", allow_non_finite=True).get("answers")
    server = _Server(iter(answers if isinstance(answers, list) else []))
    offline = "huggingface_hub.constants.HF_HUB_OFFLINE"
    with _quiet(), patch.object(hub, "Client", lambda: server), patch(offline, False):
        _shown(audit_source(hub.read_hub("org/name")), data)


def read_records(data: bytes) -> None:
    """JSON of what a conversion leaves on the disk: for each file its lines."""
    folders = {"journal.jsonl": _folder("work"), "conversion.json": _folder("target")}
    documents = parse_json(data, "records", allow_non_finite=True)
    for name, folder in folders.items():
        lines = documents.get(name)
        text = "".join(
            f"{json.dumps(line)}\n" for line in (lines if isinstance(lines, list) else [])
        )
        (folder / name).write_text(text, "utf-8", "surrogatepass")
    read_journal(folders["journal.jsonl"] / "journal.jsonl", "j")
    read_existing(folders["conversion.json"])


def read_beside(data: bytes) -> None:
    """JSON of what lies beside a config, by the names of the files."""
    documents = parse_json(data, "files", allow_non_finite=True)
    with TemporaryDirectory(dir=_kept().name) as name:
        for file in _BESIDE:
            if file in documents:
                Path(name, file).write_text(json.dumps(documents[file]))
        _shown(audit_model(name), data)


_BESIDE = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    *("hf_quant_config.json", "model.safetensors.index.json"),
)
_JSON_WORDS = (b"null", b"true", b"NaN", b"1e999", b'"', b"{", b"[", b"\\ud800")


def _of_json(name: str, parse: Parser, make: Callable[[], list[bytes]]) -> Target:
    return Target(name=name, parse=parse, seeds=make, mutate=mutate_json, words=_JSON_WORDS)


TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        _of_json("config", read_config, seeds.configs),
        _of_json("index", read_index, seeds.indices),
        Target(
            name="safetensors",
            parse=read_safetensors,
            seeds=seeds.safetensors,
            mutate=mutate_header,
            words=(b'"dtype"', b'"shape"', b'"data_offsets"', b"__metadata__", b"F32", b"[0,0]"),
        ),
        _of_json("shapes", read_shapes, seeds.shapes),
        Target(
            name="gguf",
            parse=read_gguf,
            seeds=seeds.ggufs,
            mutate=mutate_bytes,
            words=(b"GGUF", b"general.architecture", b"general.alignment", b"\x09\x00\x00\x00"),
        ),
        _of_json("gguf_keys", read_gguf_keys, seeds.gguf_keys),
        Target(
            name="pickle",
            parse=read_torch,
            seeds=seeds.pickles,
            mutate=mutate_bytes,
            words=(b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x80\x02", b"PK\x03\x04", b"Q", b"R"),
        ),
        Target(
            name="log",
            parse=read_log,
            seeds=seeds.logs,
            mutate=mutate_text,
            words=(b"prefill_context_parallel_size=", b"max_model_len=", b" GiB", b"'model': '"),
        ),
        Target(
            name="prices",
            parse=read_price_list,
            seeds=seeds.prices,
            mutate=mutate_text,
            words=(b"h100,", b"name,price\n", b'{"h100": ', b'"price"', b"nan", b"1e999", b'"'),
        ),
        Target(
            name="additions",
            parse=read_additions,
            seeds=seeds.additions,
            mutate=mutate_text,
            words=(b'"method"', b'"mtp"', b'"model"', b'"image"', b'"max_pixels"', b"1e999", b"[["),
        ),
        Target(
            name="options",
            parse=read_options,
            seeds=seeds.options,
            mutate=mutate_text,
            words=(b"--kv-heads=", b"--require=", b"--device=", b"1e999", b"-1", b"0"),
        ),
        _of_json("answers", read_answers, seeds.answers),
        _of_json("records", read_records, seeds.records),
        _of_json("beside", read_beside, seeds.side_files),
    )
}
