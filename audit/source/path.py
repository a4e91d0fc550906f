"""Models on disk: a folder, a config.json, a safetensors file or an index."""

from pathlib import Path

from ..errors import HeadcountError
from .checkpoint import find_weights, read_checkpoint
from .found import Source
from .json_file import read_json


def read_path(path: Path) -> Source:
    """A folder, a config.json, a safetensors file or an index. Raises HeadcountError."""
    if not path.exists():
        raise HeadcountError(f"{path}: no such file or folder")
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".gguf":
        from .gguf_checkpoint import read_gguf_source

        return read_gguf_source(path)
    if path.name.endswith((".safetensors", ".safetensors.index.json")):
        return _read_weights(path)
    if path.name.endswith(".json"):
        return Source(kind="config", id=str(path), where=str(path), config=read_json(path))
    raise HeadcountError(
        f"{path}: a model is a folder, a config.json, a .safetensors file or its index.json, a"
        " .gguf, .bin or .pt file"
    )


def _read_folder(folder: Path) -> Source:
    config, weights = folder / "config.json", find_weights(folder)
    if not config.exists() and weights is None:
        raise HeadcountError(
            f"{folder}: holds neither a config.json nor safetensors weights{_instead(folder)}"
        )
    return Source(
        kind="folder",
        id=str(folder),
        where=str(config),
        config=read_json(config) if config.exists() else None,
        checkpoint=None if weights is None else read_checkpoint(weights),
    )


def _instead(folder: Path) -> str:
    others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".gguf"))
    return f", but {others[0]}: only safetensors are read" if others else ""


def _read_weights(path: Path) -> Source:
    """Lone weights; the config that lies beside them is read too, since it gives them a meaning."""
    config = path.parent / "config.json"
    return Source(
        kind="file",
        id=str(path),
        where=str(config),
        config=read_json(config) if config.exists() else None,
        checkpoint=read_checkpoint(path),
    )
