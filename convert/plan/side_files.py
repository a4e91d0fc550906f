"""Which files beside the weights go along: what transformers and engines read of a model, its
licence and its card. No code, no links that lead elsewhere, no other weights, no logs or data."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from headcount.model import limits
from headcount.model.units import format_bytes
from headcount.sources.checkpoint import ADAPTER_CONFIG
from headcount.sources.identity import FileIdentity, identity_of

_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".h5", ".msgpack"),
    *(".onnx", ".npz", ".npy", ".pkl", ".pickle", ".tflite", ".index.json"),
)
_CODE = (".py", ".pyc", ".so", ".dll", ".dylib", ".sh", ".exe")
# What a model is made of beside its weights, and what must go with it: by the end of the name, and,
# of texts and files without an ending, by its beginning.
_PARTS = (
    *(".json", ".jinja", ".model", ".tiktoken", ".spm", ".bpe", ".codes", ".vocab"),
    *(".md", ".yaml", ".yml"),
)
_ABOUT = (
    *("license", "licence", "notice", "copying", "copyright", "use_policy", "acceptable_use"),
    *("third", "citation", "readme"),
)
_TEXTS = (
    *("vocab", "merges", "bpe", "dict", "tokenizer", "spiece", "chat_template"),
    *_ABOUT,
)
_OF_TRAINING = ("trainer_state.json", "_results.json", "train_log.json")
RECORD = "conversion.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFile:
    """A file beside the weights that is copied: `path` is where its content is read."""

    name: str
    path: Path
    identity: FileIdentity

    @property
    def nbytes(self) -> int:
        return self.identity.size


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftFile:
    """An entry of the source folder that is not copied, and why. `is_part`: by its name the model
    needs it, so that its absence must be said."""

    name: str
    reason: str
    is_part: bool


def sort_side_files(
    folder: Path, written: frozenset[str]
) -> tuple[tuple[SideFile, ...], tuple[LeftFile, ...]]:
    """Every entry of `folder` but those the plan writes itself: copied, or left with a reason."""
    copied: list[SideFile] = []
    left: list[LeftFile] = []
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if path.name in written:
            continue
        reason = _reason_to_leave(folder, path)
        if reason is None:
            identity = identity_of(path.stat())
            copied.append(SideFile(name=path.name, path=path, identity=identity))
        else:
            is_part = reason_by_name(path.name) is None and _is_part(path.name)
            left.append(LeftFile(name=shown_name(path.name), reason=reason, is_part=is_part))
    return tuple(copied), tuple(left)


def is_about(name: str) -> bool:
    """Whether a file of this name is read by people: a licence, a card, a notice. A GGUF file holds
    what programs read."""
    name = name.lower()
    return name.startswith(_ABOUT) and not name.endswith((".json", ".model"))


def shown_name(name: str) -> str:
    """`name` as text that can be written, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _reason_to_leave(folder: Path, path: Path) -> str | None:
    if shown_name(path.name) != path.name:
        return "name is not UTF-8"
    reason = reason_by_name(path.name) or _reason_by_kind(folder, path)
    return reason or (None if _is_part(path.name) else "not part of a model by its name")


def _is_part(name: str) -> bool:
    """Whether a file of this name is read with a model, or must go with it."""
    name = name.lower()
    if name.endswith(_PARTS):
        return not name.endswith(_OF_TRAINING)
    return name.startswith(_TEXTS) and (name.endswith((".txt", ".pdf", ".rst")) or "." not in name)


def reason_by_name(name: str) -> str | None:
    """Why a file of this name is not copied; None if its kind decides."""
    name = name.lower()
    if name.startswith("."):
        return "hidden"
    if name == ADAPTER_CONFIG:
        return "an adapter's, whose weights are not copied"
    if name == RECORD:
        return "the record of an earlier conversion"
    if name.endswith(_WEIGHTS):
        return "other weights"
    if name.endswith(_CODE):
        return "code"
    return None


def _reason_by_kind(folder: Path, path: Path) -> str | None:
    if path.is_symlink():
        if not path.exists():
            return "a link to nothing"
        if not _stays_inside(folder, path):
            return "a link that leads out of the folder"
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return "a folder"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_size > limits.SIDE_FILE_BYTES.most:
        most = format_bytes(limits.SIDE_FILE_BYTES.most)
        return f"{format_bytes(status.st_size)}; at most {most} are copied"
    return None


def _stays_inside(folder: Path, path: Path) -> bool:
    """Whether the link ends in the folder or in the blobs of its own Hub cache entry."""
    real, home = path.resolve(), folder.resolve()
    return real.is_relative_to(home) or real.is_relative_to(home.parent.parent / "blobs")
