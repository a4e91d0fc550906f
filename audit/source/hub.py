"""Models of the Hugging Face Hub: config.json and the headers of the weights, nothing else."""

import sys
from pathlib import Path
from typing import Any

from ..errors import HeadcountError
from .checkpoint import Checkpoint
from .found import Source
from .json_file import read_json
from .safetensors import FileHeader, TensorInfo


def read_hub(target: str) -> Source:
    """`org/name[@revision]`: config.json through the Hub cache, headers by range requests.

    Raises HeadcountError when the Hub cannot be reached, or has no such model or file.
    """
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    huggingface_hub.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    print(f"Asking the Hugging Face Hub for {target} …", file=sys.stderr)
    repo, _, revision = target.partition("@")
    try:
        config = huggingface_hub.hf_hub_download(repo, "config.json", revision=revision or None)
    except LocalEntryNotFoundError as error:
        raise HeadcountError(
            f"{target}: not in the catalogue, not in the Hub cache, and the Hub cannot be reached;"
            " give a local folder or a config.json instead"
        ) from error
    except EntryNotFoundError as error:
        raise HeadcountError(f"{target}: this Hub repository has no config.json") from error
    except (HfHubHTTPError, ValueError, OSError) as error:
        raise HeadcountError(f"{target}: {_first_line(error)}") from error
    return Source(
        kind="hub",
        id=repo,
        where=f"{target}: config.json",
        config=read_json(Path(config)),
        checkpoint=_read_headers(repo, revision or None),
        revision=Path(config).parent.name,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _read_headers(repo: str, revision: str | None) -> Checkpoint | None:
    """The headers of all shards, or None where the repository has no safetensors or is offline."""
    import huggingface_hub
    from huggingface_hub.errors import (
        HfHubHTTPError,
        NotASafetensorsRepoError,
        OfflineModeIsEnabled,
        SafetensorsParsingError,
    )

    try:
        metadata = huggingface_hub.get_safetensors_metadata(repo, revision=revision)
    except (NotASafetensorsRepoError, OfflineModeIsEnabled):
        return None
    except (HfHubHTTPError, SafetensorsParsingError, OSError) as error:
        raise HeadcountError(f"{repo}: headers: {_first_line(error)}") from error
    files = tuple(_header(name, file) for name, file in metadata.files_metadata.items())
    total = (metadata.metadata or {}).get("total_size")
    return Checkpoint(
        folder=Path(repo),
        files=files,
        tensors={tensor.name: tensor for file in files for tensor in file.tensors},
        missing={},
        unlisted=(),
        index=Path(repo, "model.safetensors.index.json") if metadata.sharded else None,
        total_size=int(total) if isinstance(total, int | float) else None,
    )


def _header(name: str, file: Any) -> FileHeader:
    """The library's metadata of one file as ours; offsets count from the start of the data."""
    tensors = tuple(
        TensorInfo(
            name=tensor_name,
            dtype=tensor.dtype,
            shape=tuple(tensor.shape),
            file=name,
            offsets=(tensor.data_offsets[0], tensor.data_offsets[1]),
        )
        for tensor_name, tensor in file.tensors.items()
    )
    size = max((tensor.offsets[1] for tensor in tensors), default=0)
    return FileHeader(
        path=Path(name),
        tensors=tensors,
        metadata=dict(file.metadata or {}),
        data_start=0,
        size=size,
    )
