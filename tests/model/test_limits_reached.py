"""Each limit reached by a small input, or a value beyond it: what is said names the limit."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import pytest
from click.testing import CliRunner

import gguf_files
import pickles
from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from gguf_files import LLAMA, gguf_bytes
from headcount.arch.formats.patterns import expression
from headcount.audit.rules.rule import Rule, Sighting
from headcount.audit.rules.rule import run as run_rules
from headcount.cli import main
from headcount.convert.plan.existing import read_existing
from headcount.convert.plan.side_files import sort_side_files
from headcount.model import limits
from headcount.model.divisors import listed
from headcount.model.errors import HeadcountError, short
from headcount.model.units import parse_tokens
from headcount.plan.hardware.prices import read_prices
from headcount.plan.reconcile.reading import read_lines
from headcount.report.report import Finding, shown
from headcount.running.text import read_text
from headcount.sources.at_once import at_once, patiently
from headcount.sources.connection.http_client import UnreachableError
from headcount.sources.gguf import Skipped, read_gguf
from lowered_limits import Lower

# Reached over a network, in tests/sources/; or by a conversion, in tests/convert/.
ELSEWHERE = frozenset(
    {
        *("CONNECT_SECONDS", "READ_SECONDS", "SLOW_SECONDS", "SLOWEST", "ANSWER_SECONDS"),
        *("ANSWER_HEAD_BYTES", "FIRST_SECONDS", "REDIRECTS", "REMOTE_GGUF_BYTES"),
        *("FILES_SHOWN", "JOURNAL_BYTES", "LOCK_BYTES", "TOOL_CHARACTERS"),
    }
)
Case = Callable[[Path], str]
CASES: dict[str, tuple[float | None, Case]] = {}


def reaches(name: str, lowered: float | None = None) -> Callable[[Case], Case]:
    """What a case returns is what was said where the limit, lowered or not, was reached."""

    def add(case: Case) -> Case:
        CASES[name] = (lowered, case)
        return case

    return add


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_names_the_limit(name: str, tmp_path: Path, lower: Lower) -> None:
    lowered, case = CASES[name]
    if lowered is not None:
        lower(name, lowered)
    said = case(tmp_path)
    assert f"{limits.table()[name].most:,}" in said, said
    assert "Traceback" not in said


def test_every_limit_is_reached() -> None:
    assert CASES.keys() | ELSEWHERE == limits.table().keys()


def audit(path: Path, *options: str) -> str:
    done = CliRunner().invoke(main, ["audit", str(path), *options])
    assert done.exit_code in (0, 1, 2)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


def config(folder: Path, **values: object) -> str:
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG | values))
    return audit(folder / "config.json")


def model(folder: Path) -> Path:
    return write_model(folder / "model", LLAMA_CONFIG, llama_shapes())


def gguf(
    folder: Path, metadata: dict[str, object], tensors: gguf_files.Tensors | None = None
) -> str:
    (folder / "m.gguf").write_bytes(gguf_bytes(LLAMA | metadata, tensors or {}))
    return audit(folder / "m.gguf")


def kept(folder: Path, value: object, most: int) -> str:
    """A value of a GGUF file that is counted only, and the longest that is not."""
    (folder / "m.gguf").write_bytes(gguf_bytes({"long": value, "short": value[:most]}, {}))
    found = read_gguf(folder / "m.gguf").metadata
    assert found["long"] == Skipped(len(value))
    return str(len(found["short"]))


def pickled(folder: Path, data: bytes | None = None) -> str:
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    pickles.write_bin(folder / "pytorch_model.bin", {"a.b": (2, 3)}, data=data)
    return audit(folder)


@reaches("JSON_BYTES", 100)
def _(folder: Path) -> str:
    return config(folder)


@reaches("JSON_VALUES", 50)
def _(folder: Path) -> str:
    return config(folder, x=[1] * 500)


@reaches("TOKENIZER_BYTES", 10)
def _(folder: Path) -> str:
    (model(folder) / "tokenizer.json").write_text('{"model": {}}')
    said = audit(folder / "model")
    assert said.count("was not checked") <= 1  # the rule says it, so the limit need not
    return said


@reaches("INDEX_BYTES", 10)
def _(folder: Path) -> str:
    return audit(write_sharded(folder, LLAMA_CONFIG, llama_shapes()))


@reaches("RECORD_BYTES", 10)
def _(folder: Path) -> str:
    (folder / "conversion.json").write_text(json.dumps({"job": "x", "manifest": {}}))
    with pytest.raises(HeadcountError) as error:
        read_existing(folder)
    return str(error.value)


@reaches("HEADER_BYTES", 10)
def _(folder: Path) -> str:
    return audit(model(folder))


@reaches("TENSORS", 5)
def _(folder: Path) -> str:
    return audit(model(folder))


@reaches("NAME_CHARACTERS", 5)
def _(folder: Path) -> str:
    return audit(model(folder))


@reaches("SHARDS", 1)
def _(folder: Path) -> str:
    return audit(write_sharded(folder, LLAMA_CONFIG, llama_shapes()))


@reaches("GGUF_KEYS", 6)
def _(folder: Path) -> str:
    return gguf(folder, {})


@reaches("GGUF_TENSORS", 1)
def _(folder: Path) -> str:
    return gguf(folder, {}, {"a": ("F32", (1,)), "b": ("F32", (1,))})


@reaches("GGUF_STRINGS", 20)
def _(folder: Path) -> str:
    return gguf(folder, {})


@reaches("GGUF_DEPTH", 1)
def _(folder: Path) -> str:
    return gguf(folder, {"a": [[1]]})


@reaches("GGUF_ALIGNMENT", 16)
def _(folder: Path) -> str:
    return gguf(folder, {"general.alignment": 32})


@reaches("GGUF_DIMENSIONS", 1)
def _(folder: Path) -> str:
    return gguf(folder, {}, {"a": ("F32", (1, 1))})


@reaches("GGUF_NAME_BYTES", 3)
def _(folder: Path) -> str:
    return gguf(folder, {}, {"abcd": ("F32", (1,))})


@reaches("GGUF_KEY_BYTES", 5)
def _(folder: Path) -> str:
    return gguf(folder, {})


@reaches("GGUF_LIST_ITEMS", 3)
def _(folder: Path) -> str:
    return kept(folder, [1, 2, 3, 4], 3)


@reaches("GGUF_STRING_BYTES", 3)
def _(folder: Path) -> str:
    return kept(folder, "abcd", 3)


@reaches("GGUF_KEPT_BYTES", 4)
def _(folder: Path) -> str:
    (folder / "m.gguf").write_bytes(gguf_bytes({"a": "abcd", "b": "e"}, {}))
    found = read_gguf(folder / "m.gguf").metadata
    assert found["b"] == Skipped(1)
    return str(len(found["a"]))


@reaches("GGUF_MISSING_FILES", 2)
def _(folder: Path) -> str:
    path = folder / "m-00001-of-00005.gguf"
    path.write_bytes(gguf_bytes(LLAMA | {"split.count": 5}, {}))
    return audit(path)


@reaches("PICKLE_BYTES", 8000)
def _(folder: Path) -> str:
    return pickled(folder, b"\x80\x02" + b"N0" * 5000 + b"N.")


@reaches("PICKLE_OPCODES", 10)
def _(folder: Path) -> str:
    return pickled(folder)


@reaches("PICKLE_RATIO")
def _(folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    return audit(folder)


@reaches("PICKLE_DIMENSIONS", 1)
def _(folder: Path) -> str:
    return pickled(folder)


@reaches("FOLDER_ENTRIES", 1)
def _(folder: Path) -> str:
    return audit(model(folder))


@reaches("SIDE_FILE_BYTES", 3)
def _(folder: Path) -> str:
    (folder / "tokenizer.json").write_text("{    }")
    copied, left = sort_side_files(folder, frozenset())
    assert not copied
    return left[0].reason


@reaches("TEXT_BYTES", 3)
def _(folder: Path) -> str:
    (folder / "a.txt").write_text("prose")
    with pytest.raises(HeadcountError) as error:
        read_text(folder / "a.txt")
    return str(error.value)


@reaches("LAYERS", 2)
def _(folder: Path) -> str:
    return config(folder)


@reaches("HEADS", 7)
def _(folder: Path) -> str:
    return config(folder)


@reaches("SIZE")
def _(folder: Path) -> str:
    return config(folder, hidden_size=10**9 + 1)


@reaches("LIST_ITEMS", 2)
def _(folder: Path) -> str:
    kinds = ["full_attention"] * 3
    return config(folder, model_type="qwen3", layer_types=kinds)


def pattern(text: str) -> str:
    with pytest.raises(HeadcountError) as error:
        expression(text)
    return str(error.value)


@reaches("PATTERN_CHARACTERS", 4)
def _(folder: Path) -> str:
    return pattern("layer")


@reaches("PATTERN_WAYS", 3)
def _(folder: Path) -> str:
    return pattern("(a|b)(c|d)")


@reaches("PATTERN_DEPTH", 2)
def _(folder: Path) -> str:
    return pattern("(a(b(c)))")


@reaches("GGUF_SIZE")
def _(folder: Path) -> str:
    return gguf(folder, {"llama.embedding_length": 10**7 + 1})


@reaches("LOG_BYTES", 30)
def _(folder: Path) -> str:
    (folder / "a.log").write_text("GPU KV cache size: 5 tokens\n" * 9)
    return CliRunner().invoke(main, ["reconcile", str(folder / "a.log")]).output


@reaches("LOG_LINE_BYTES", 7)
def _(folder: Path) -> str:
    (folder / "a.log").write_text("0123456789\nend\n")
    lines = list(read_lines(str(folder / "a.log")))
    assert lines == ["0123456", "end\n"]
    return str(len(lines[0]))


@reaches("REQUESTS_AT_ONCE", 2)
def _(folder: Path) -> str:
    lock, counts = Lock(), [0, 0]  # under way now, and at most

    def work(_: int) -> None:
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        with lock:
            counts[0] -= 1

    at_once(work, range(200))
    assert counts[1] <= 2
    return str(limits.REQUESTS_AT_ONCE.most)


@reaches("ATTEMPTS")
def _(folder: Path) -> str:
    tried = []

    def fetch() -> None:
        tried.append(1)
        raise UnreachableError("no answer")

    with pytest.raises(UnreachableError):
        patiently(fetch)
    return str(len(tried))


@reaches("NUMBER")
def _(folder: Path) -> str:
    with pytest.raises(HeadcountError) as error:
        parse_tokens(str(2**63))
    return str(error.value)


@reaches("NUMBER_CHARACTERS")
def _(folder: Path) -> str:
    assert parse_tokens("0" * 59 + "7") == 7
    with pytest.raises(HeadcountError, match="is not a number"):
        parse_tokens("0" * 60 + "7")
    return "60"


@reaches("PRICES_BYTES")
def _(folder: Path) -> str:
    prices = folder / "prices.csv"
    row = "h100,2.5\n"
    prices.write_text(row + "\n" * (2**20 - len(row)))
    assert read_prices(prices) == {"h100": 2.5}
    prices.write_text(row + "\n" * (2**20 - len(row) + 1))
    with pytest.raises(HeadcountError) as refused:
        read_prices(prices)
    return str(refused.value)


@reaches("BATCH_SIZE")
def _(folder: Path) -> str:
    done = CliRunner().invoke(main, ["audit", "gpt2", "--batch-size", "1000001"])
    assert done.exit_code == 2
    return done.output.replace("1000000", "1,000,000")


@reaches("VALUE_CHARACTERS", 5)
def _(folder: Path) -> str:
    return str(short("x" * 10).index("…"))


@reaches("LINE_CHARACTERS", 5)
def _(folder: Path) -> str:
    return str(str(HeadcountError("x" * 10)).index("…"))


@reaches("LISTED", 5)
def _(folder: Path) -> str:
    said = listed(tuple(range(8)))
    assert said.endswith("and 3 more")
    return str(len(said.split(", ")))


def findings(count: int) -> tuple[Finding, ...]:
    def check(_: object) -> list[Sighting]:
        return [Sighting(f"{i:05}", "m", "note" if i % 2 else "error") for i in range(count)]

    rule = Rule(code="H999", name="n", severity="note", hint="h", check=check)
    return run_rules((rule,), None)


@reaches("FINDINGS_OF_A_RULE", 3)
def _(folder: Path) -> str:
    """One finding counts the others, as severe as the worst of them."""
    assert [f.where for f in findings(3)] == ["00000", "00001", "00002"]
    *first, last = findings(10)
    assert last == Finding("H999", "error", "…", "7 more places that are not listed", "h", 7)
    return str(len(first))


@reaches("FINDINGS_SHOWN", 3)
def _(folder: Path) -> str:
    """All of a rule are counted, those too that one finding stood for already."""
    (made,) = findings(1)
    several = (made,) * 5 + (made._replace(places=90),)
    *first, last = shown((*several, made._replace(code="H998")))
    assert last.code == "H998"
    assert first[-1].message == "92 more places that are not listed"
    return str(len(first) - 1)
