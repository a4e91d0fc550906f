"""H2xx, H3xx: what lies in the folder: other weights, code, pickles, links."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headcount.sources.checkpoint import ADAPTER_CONFIG
from headcount.sources.side_files import SideFiles

from .alike import such
from .config_facts import OWN_MODULES, ConfigFacts
from .rule import Sighting, rule

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_OTHER = (".gguf", ".h5", ".msgpack", ".onnx", ".tflite")
_CODE = (".py", ".pyc", ".so", ".dll", ".dylib", ".sh", ".exe", ".bat")
# What transformers calls modules of models: here they may have been named by an auto_map once.
_LOADED = re.compile(
    r"(?:modeling|configuration|tokenization|processing|(?:image|video)_processing|"
    r"feature_extraction|generation|modular)_"
)
_SHARD = re.compile(r"(?:model|pytorch_model)-\d+-of-\d+\.safetensors")
_NUMBERED = re.compile(r".+-\d+-of-(\d+)\.(?:safetensors|bin)")


class FolderFacts(NamedTuple):
    """A folder's entries and its config. `used` are the weight files that are read."""

    files: SideFiles
    config: ConfigFacts
    used: frozenset[str]


@rule(
    "H206",
    "unused-shards",
    "warning",
    "left from another save? tools that take *.safetensors load both: remove one set",
)
def other_shards(facts: FolderFacts) -> Iterator[Sighting]:
    """Safetensors files of the model lie here that are not used."""
    names = sorted(
        name
        for name in facts.files.names - facts.used
        if _SHARD.fullmatch(name) or name in ("model.safetensors", "model.safetensors.index.json")
    )
    if facts.used and names:
        yield Sighting(names[0], f"{len(names)} file(s) not used beside {min(facts.used)}")


@rule(
    "H215",
    "shards-without-index",
    "error",
    "download the index (model.safetensors.index.json) and all that it names: transformers does not"
    " find the weights either",
)
def without_index(facts: FolderFacts) -> Iterator[Sighting]:
    """Numbered shards lie here without their index: what they hold together is not known."""
    names = sorted(name for name in facts.files.names if _NUMBERED.fullmatch(name))
    if not names or not facts.used <= {*names}:
        return
    (count,) = {_NUMBERED.sub(r"\1", name) for name in names[:1]}
    read = "its header alone was" if facts.used else "their headers were not"
    yield Sighting(names[0], f"{len(names)} of {int(count)} shard(s) and no index: {read} read")


@rule(
    "H207",
    "other-format",
    "note",
    "only one was audited; nothing says that the other holds the same weights",
)
def other_formats(facts: FolderFacts) -> Iterator[Sighting]:
    """The weights lie here in another format, too."""
    unused = facts.files.names - facts.used
    names = sorted(name for name in unused if name.lower().endswith(_OTHER))
    if facts.used and names:
        yield Sighting(names[0], f"{len(names)} file(s) of another format beside {min(facts.used)}")


@rule(
    "H214",
    "adapter-beside-model",
    "note",
    "transformers with peft loads it on top; it is not counted here",
)
def adapter(facts: FolderFacts) -> Iterator[Sighting]:
    """An adapter lies beside the model, or in its place."""
    found = facts.files.adapter
    if found is None:
        return
    if facts.used:
        yield Sighting(ADAPTER_CONFIG, f"{found.words} beside a whole model")
    else:
        yield Sighting(
            ADAPTER_CONFIG,
            f"{found.words}, and no weights of the model",
            hint=f"the config alone was audited; for the weights {found.where_to_go}",
        )


@rule(
    "H302",
    "code-beside-model",
    "warning",
    "it runs with trust_remote_code=True only: read it before you say so",
)
def code(facts: FolderFacts) -> Iterator[Sighting]:
    """Code lies beside the model."""
    own = OWN_MODULES if facts.config.own_code else frozenset()  # H301 speaks of it
    names = sorted(n for n in facts.files.names - own if n.lower().endswith(_CODE))
    tokenizer = facts.files.tokenizer
    by_tokenizer = tokenizer is not None and bool(tokenizer.remote_code)
    named = by_tokenizer or facts.config.remote_code
    loaded = [n for n in names if named or _LOADED.match(n)]
    found = [*loaded, *facts.files.code_folders]
    if found and facts.config.in_transformers and not (by_tokenizer or facts.files.code_folders):
        yield Sighting(
            found[0],
            f"{len(found)} file(s) of code, which transformers has classes of its own for",
            severity="note",
            hint="load it without trust_remote_code, and none of them runs",
        )
    elif found:
        yield Sighting(found[0], f"{len(found)} file(s) of code")
    elif names:
        yield Sighting(
            names[0],
            f"{len(names)} file(s) of code that no auto_map names",
            severity="note",
            hint="transformers runs none of them; they are for whoever starts them",
        )


@rule(
    "H304",
    "pickle",
    "note",
    "use the safetensors files; load a pickle with weights_only=True or not at all",
)
def pickles(facts: FolderFacts) -> Iterator[Sighting]:
    """Pickled files lie beside the model: loading one runs what it says."""
    names = sorted(n for n in facts.files.names if n.lower().endswith(_PICKLES))
    if names:
        yield Sighting(names[0], f"{len(names)} pickled file(s)")


@rule(
    "H306",
    "link-out-of-folder",
    "warning",
    "copy the file in: a moved or shared folder would miss it, or serve another's data",
)
def leaving_links(facts: FolderFacts) -> Iterator[Sighting]:
    """A link leads out of the folder."""
    links = facts.files.leaving
    if links:
        said = "is a link out of the folder; it was not followed"
        yield Sighting(links[0], f"{said}{such(links, 'file')}")


RULES = (
    other_shards,
    without_index,
    other_formats,
    adapter,
    code,
    pickles,
    leaving_links,
)
