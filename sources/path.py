"""Models on disk: a folder, a config.json, a file of weights or an index."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError

from .adapter import find_adapter
from .catalogue import quantised_hint
from .checkpoint import Checkpoint, find_weights, inside, read_checkpoint
from .found import FoundModel
from .json_file import read_json, read_json_file
from .presence import is_there
from .quantisation_file import SETTINGS_FILES, settings_file, with_settings

# Files that say what a model is, for other tools than transformers.
_OF_OTHER_TOOLS = (
    *("model_index.json", "params.json", "mlc-chat-config.json", "genai_config.json"),
    "bert_config.json",
)


def check_name(name: str) -> None:
    """Raises HeadcountError for what the system takes for no name at all."""
    try:
        Path(name).stat()
    except (FileNotFoundError, NotADirectoryError):
        return  # a repository, or a mistake that is told later
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HeadcountError(f"{name}: cannot be read: {reason}") from error


def refuse_gguf(path: Path) -> None:
    """Raises HeadcountError for GGUF, as a file or a folder of nothing else, where a model has to
    be safetensors."""
    if path.is_dir():
        files = sorted(file.name for file in path.glob("*.gguf"))
        found = f"holds {files[0]} and no config.json" if files else ""
        if is_there(path / "config.json", or_its_link=True):
            return
    else:
        found = "is a GGUF file" if path.suffix == ".gguf" and path.is_file() else ""
    if found:
        raise HeadcountError(
            f"{path}: {found}: GGUF is for llama.cpp, and what is wanted here is a folder with"
            " config.json and safetensors weights: name the one that the GGUF was made from, or"
            " repeat the conversion without --format gguf and name its result"
        )


def read_path(path: Path) -> FoundModel:
    """A folder, a config.json, a file of weights or an index. Raises HeadcountError."""
    if not _is_there(path):
        raise HeadcountError(f"{path}: no such file or folder{quantised_hint(path.name)}")
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".gguf":
        from .gguf_checkpoint import read_gguf_source

        return read_gguf_source(path)
    if path.name.endswith((".bin", ".pt", ".pth", ".bin.index.json")):
        from .pickles.pickle_checkpoint import read_pickles

        return _beside_config(path, read_pickles(path))
    if path.name.endswith((".safetensors", ".safetensors.index.json")):
        return _beside_config(path, read_checkpoint(path))
    if path.name.endswith(".json"):
        config, file = read_json_file(path)
        if path.name == "config.json":
            config = _with_settings(config, path.parent)
        where = str(path)
        return FoundModel(kind="config", id=where, where=where, config=config, config_file=file)
    raise HeadcountError(
        f"{path}: a model is a folder, a config.json, a .safetensors file or its index.json, a"
        " .gguf, .bin or .pt file"
    )


def _read_folder(folder: Path) -> FoundModel:
    config = folder / "config.json"
    weights = _folder_weights(folder)
    has_config = _is_there(config)
    if not has_config and weights is None:
        if (adapter := find_adapter(folder)) is not None:
            raise HeadcountError(
                f"{folder}: holds {adapter.words} and no model: {adapter.where_to_go}"
            )
        return _only_gguf(folder)
    found = FoundModel(
        kind="folder", id=str(folder), where=str(config), config=None, checkpoint=weights
    )
    if not has_config:
        return found
    value, file = read_json_file(inside(folder, config.name))
    return replace(found, config=_with_settings(value, folder), config_file=file)


def _with_settings(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With the settings of a quantisation that lie beside the config."""
    there = frozenset(name for name in SETTINGS_FILES if (folder / name).is_file())
    name = settings_file(there)
    return with_settings(config, name, lambda name: read_json(inside(folder, name)))


def _only_gguf(folder: Path) -> FoundModel:
    """The GGUF model of a folder that holds no other. Raises HeadcountError."""
    from .gguf_checkpoint import models_of

    models = models_of(path.name for path in folder.glob("*.gguf"))
    if len(models) == 1:
        return replace(read_path(folder / models[0]), kind="folder", id=str(folder))
    other = next((name for name in _OF_OTHER_TOOLS if (folder / name).is_file()), None)
    raise HeadcountError(
        f"{folder}: holds neither a config.json nor weights that are told apart by their name"
        + (f", but {len(models)} models in .gguf files: name one" if models else "")
        + (f", but {other}, which another tool wrote: name that file" if other else "")
    )


def _is_there(path: Path) -> bool:
    """Raises HeadcountError for a link to nothing: it was meant to be there."""
    if is_there(path):
        return True
    if is_there(path, or_its_link=True):
        raise HeadcountError(f"{path}: is a link to {path.readlink()}, which is not there")
    return False


def _folder_weights(folder: Path) -> Checkpoint | None:
    """Safetensors where there are any, as transformers prefers them; else torch's pickles."""
    path = find_weights(folder)
    if path is not None:
        return read_checkpoint(inside(folder, path.name))
    from .pickles.pickle_checkpoint import find_pickles, read_pickles

    path = find_pickles(folder)
    return None if path is None else read_pickles(inside(folder, path.name))


def _beside_config(path: Path, checkpoint: Checkpoint) -> FoundModel:
    """Lone weights; the config that lies beside them is read too, since it gives them a meaning."""
    config = path.parent / "config.json"
    found = FoundModel(
        kind="file", id=str(path), where=str(config), config=None, checkpoint=checkpoint
    )
    if not _is_there(config):
        return found
    value, file = read_json_file(inside(path.parent, config.name))
    return replace(found, config=value, config_file=file)
