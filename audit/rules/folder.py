"""H2xx, H3xx: what lies in the folder: other weights, code, pickles, links."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headcount.sources.side_files import SideFiles

from .config_facts import OWN_MODULE, ConfigFacts
from .rule import Rule, Seen

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_OTHER = (".gguf", ".h5", ".msgpack", ".onnx", ".tflite")
_CODE = (".py", ".pyc", ".so", ".dll", ".dylib", ".sh", ".exe", ".bat")
_SHARD = re.compile(r"(?:model|pytorch_model)-\d+-of-\d+\.safetensors")


class FolderFacts(NamedTuple):
    """A folder's entries and its config. `used` are the weight files that are read."""

    files: SideFiles
    config: ConfigFacts
    used: frozenset[str]


def other_shards(facts: FolderFacts) -> Iterator[Seen]:
    """Safetensors files of the model lie here that are not used."""
    names = sorted(
        name
        for name in facts.files.names - facts.used
        if _SHARD.fullmatch(name) or name in ("model.safetensors", "model.safetensors.index.json")
    )
    if facts.used and names:
        yield Seen(names[0], f"{len(names)} file(s) not used beside {min(facts.used)}")


def without_index(facts: FolderFacts) -> Iterator[Seen]:
    """Numbered shards lie here without their index: none of them is read."""
    names = sorted(name for name in facts.files.names if _SHARD.fullmatch(name))
    if names and not facts.used:
        yield Seen(names[0], f"{len(names)} shard(s) and no index: their headers were not read")


def other_formats(facts: FolderFacts) -> Iterator[Seen]:
    """The weights lie here in another format, too."""
    unused = facts.files.names - facts.used
    names = sorted(name for name in unused if name.lower().endswith(_OTHER))
    if facts.used and names:
        yield Seen(names[0], f"{len(names)} file(s) of another format beside {min(facts.used)}")


def adapter(facts: FolderFacts) -> Iterator[Seen]:
    """An adapter lies beside the whole model."""
    if facts.used and "adapter_config.json" in facts.files.names:
        yield Seen("adapter_config.json", "an adapter beside a whole model")


def code(facts: FolderFacts) -> Iterator[Seen]:
    """Code lies beside the model."""
    own = {OWN_MODULE} if facts.config.own_code else set()  # H301 speaks of it
    names = sorted(n for n in facts.files.names - own if n.lower().endswith(_CODE))
    found = [*names, *facts.files.code_folders]
    if found:
        yield Seen(found[0], f"{len(found)} file(s) of code")


def pickles(facts: FolderFacts) -> Iterator[Seen]:
    """Pickled files lie beside the model: loading one runs what it says."""
    names = sorted(n for n in facts.files.names if n.lower().endswith(_PICKLES))
    if names:
        yield Seen(names[0], f"{len(names)} pickled file(s)")


def leaving_links(facts: FolderFacts) -> Iterator[Seen]:
    """A link leads out of the folder."""
    for name in facts.files.leaving:
        yield Seen(name, "is a link out of the folder; it was not followed")


RULES: tuple[Rule[FolderFacts], ...] = (
    Rule(
        code="H206",
        name="unused-shards",
        severity="warning",
        hint="left from another save? tools that take *.safetensors load both: remove one set",
        check=other_shards,
    ),
    Rule(
        code="H215",
        name="shards-without-index",
        severity="error",
        hint="download model.safetensors.index.json: transformers does not find the weights either",
        check=without_index,
    ),
    Rule(
        code="H207",
        name="other-format",
        severity="note",
        hint="only one was audited; nothing says that the other holds the same weights",
        check=other_formats,
    ),
    Rule(
        code="H214",
        name="adapter-beside-model",
        severity="note",
        hint="transformers with peft loads it on top; it is not counted here",
        check=adapter,
    ),
    Rule(
        code="H302",
        name="code-beside-model",
        severity="warning",
        hint="it runs with trust_remote_code=True only: read it before you say so",
        check=code,
    ),
    Rule(
        code="H304",
        name="pickle",
        severity="warning",
        hint="use the safetensors files; load a pickle with weights_only=True or not at all",
        check=pickles,
    ),
    Rule(
        code="H306",
        name="link-out-of-folder",
        severity="warning",
        hint="copy the file in: a moved or shared folder would miss it, or serve another's data",
        check=leaving_links,
    ),
)
