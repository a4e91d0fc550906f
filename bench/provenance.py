"""What the figures of a table are figures of: model, text, tokens, seed, versions, command."""

import argparse
import datetime
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount import __version__


@dataclass(frozen=True, kw_only=True)
class Named:
    """A file or folder, and what it is called where it is published."""

    name: str
    path: Path


def named(text: str) -> Named:
    """NAME=PATH, so that no place of this machine gets into a table."""
    name, is_there, path = text.partition("=")
    if not (name and is_there and path):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=PATH")
    return Named(name=name, path=Path(path))


def parser_of(doc: str) -> argparse.ArgumentParser:
    """Of a script with that docstring, which measures one model on one text."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--model", type=named, required=True, metavar="NAME=FOLDER")
    parser.add_argument("--text", type=named, required=True, metavar="NAME=FILE")
    return parser


def halves(content: str) -> tuple[str, str]:
    """Of a text, cut behind the first line break in its second half."""
    middle = content.find("\n", len(content) // 2) + 1 or len(content) // 2
    return content[:middle], content[middle:]


def headcount(command: str, places: Mapping[str, Path]) -> dict[str, Any]:
    """What `headcount COMMAND` says, as data, with `places` for the words that are theirs. It ends
    the run if the command fails."""
    words = [str(places.get(word, word)) for word in command.split()]
    called = [sys.executable, "-m", "headcount", *words, "--format", "json"]
    done = subprocess.run(called, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"headcount {command}: status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def model_in_words(model: Named) -> str:
    """Its type, size and heads, as the audit reads them."""
    audit = headcount(f"audit {model.name}", {model.name: model.path})
    layers = [mixer for layer in audit["layers"] for mixer in layer["mixers"]]
    first, millions = layers[0], audit["totals"]["parameters"] / 1e6
    return (
        f"{model.name} ({audit['model']['model_type']}, {millions:.3g} M parameters,"
        f" {len(layers)} layers, {first['num_attention_heads']} query and"
        f" {first['num_key_value_heads']} K/V heads of {first['head_dim']})"
    )


def text_in_words(name: str, content: str) -> str:
    """Its name, and enough of its digest to know it by."""
    return f"{name} (sha256 {hashlib.sha256(content.encode()).hexdigest()[:12]})"


def windows_in_words(settings: Mapping[str, Any]) -> str:
    """How an evaluation of these `settings` cut its text."""
    begins = "each after BOS" if settings["bos"] else "without BOS"
    return f"windows of {settings['window']} by {settings['stride']}, {begins}"


def measured_in_words(settings: Mapping[str, Any]) -> str:
    """The day and the versions."""
    today = datetime.date.today().isoformat()
    return (
        f"{today}, headcount {__version__}, torch {settings['torch']}, transformers"
        f" {settings['transformers']}, {settings['device']}"
    )


def block(script: str, header: str, table: Iterable[str], commands: Iterable[str]) -> Iterator[str]:
    """The lines of a page: what is measured, the table, the commands, between two marks."""
    yield f"<!-- made by bench/{script} -->"
    yield header
    yield ""
    yield from table
    yield ""
    yield from (f"    headcount {command}" for command in commands)
    yield f"<!-- end of bench/{script} -->"
