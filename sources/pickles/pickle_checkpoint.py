"""A checkpoint of .bin or .pt files: one, an index and its shards, or what a folder holds."""

from dataclasses import replace
from pathlib import Path

from ..checkpoint import Checkpoint, inside, join_shards, read_index
from ..presence import is_there
from .pickle_file import PickleFile, read_pickle

_SINGLE = "pytorch_model.bin"
_INDEX = "pytorch_model.bin.index.json"
_SUFFIXES = (".bin", ".pt", ".pth")
# What trainers leave beside the weights.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler", "tokenizer")


def find_pickles(folder: Path) -> Path | None:
    """The file or index that holds the weights of a folder without safetensors; None if none."""
    for name in (_SINGLE, _INDEX):
        if is_there(folder / name, or_its_link=True):
            return folder / name
    others = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in _SUFFIXES and not path.name.startswith(_NO_WEIGHTS)
    )
    return others[0] if len(others) == 1 else None


def read_pickles(path: Path) -> Checkpoint:
    """The checkpoint at `path`, a file or an index. Raises HeadcountError; executes nothing."""
    if not path.name.endswith(".json"):
        file = read_pickle(path)
        return _checkpoint(
            Checkpoint(
                folder=path.parent,
                files=(file.header,),
                tensors={tensor.name: tensor for tensor in file.header.tensors},
                missing={},
                unlisted=(),
                index=None,
                total_size=None,
                # a file whose tensors are not seen says nothing of what is missing
                partial=not file.header.tensors,
            ),
            (file,),
        )
    index, index_file = read_index(path, _SUFFIXES)
    shards = set(index.weight_map.values())
    present = {s for s in shards if is_there(path.parent / s, or_its_link=True)}
    files = tuple(read_pickle(inside(path.parent, shard)) for shard in sorted(present))
    headers = [file.header for file in files]
    joined = join_shards(path, index, headers)
    return _checkpoint(replace(joined, index_file=index_file), files)


def _checkpoint(checkpoint: Checkpoint, files: tuple[PickleFile, ...]) -> Checkpoint:
    suspects = {file.header.path.name: file.suspects for file in files if file.suspects}
    return replace(checkpoint, format="pickle", suspects=suspects)
