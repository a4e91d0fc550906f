"""A model in the Hub's cache on this disk: what is audited when the Hub is out of reach."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint, find_weights, inside, read_checkpoint
from .found import FoundModel
from .hub_settings import hub_constants
from .json_file import read_json
from .quantisation_file import settings_file, with_settings


def read_cached(
    name: str, revision: str | None, target: str, file: str | None = None
) -> FoundModel | None:
    """The snapshot of `name` that is cached, or the GGUF model in `file` of it; None without its
    config.json or a .gguf file.

    Raises HeadcountError if a cached file is broken.
    """
    snapshot = _snapshot(name, revision or "main")
    if snapshot is None:
        return None
    if file is not None or not (snapshot / "config.json").exists():
        return _read_gguf(snapshot, name, file)
    return FoundModel(
        kind="hub",
        id=name,
        where=f"{target}: config.json (cached)",
        config=_config(snapshot),
        checkpoint=_read_weights(snapshot),
        revision=snapshot.name,
    )


def _config(snapshot: Path) -> dict[str, Any]:
    """config.json, with the settings of a quantisation that lie beside it."""
    names = frozenset(path.name for path in snapshot.iterdir())
    config = read_json(snapshot / "config.json")
    return with_settings(config, settings_file(names), lambda name: read_json(snapshot / name))


def _read_gguf(snapshot: Path, name: str, file: str | None) -> FoundModel | None:
    from .gguf_checkpoint import read_gguf_source
    from .hub_gguf import only_model

    found = [str(path.relative_to(snapshot)) for path in sorted(snapshot.rglob("*.gguf"))]
    if file is None and found:
        file = only_model(name, found)
    if file is None or file not in found:
        return None
    path = inside(snapshot, file)
    source = read_gguf_source(path)
    return replace(source, kind="hub", id=f"{name}/{file}", revision=snapshot.name)


def _snapshot(name: str, revision: str) -> Path | None:
    """The folder of one revision: models--org--name/snapshots/COMMIT, by way of refs/REVISION."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) is None:
        return None
    model = Path(hub_constants().HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    ref = ref_file(model, revision)
    if ref is None:
        return None
    try:
        commit = ref.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision
    snapshot = model / "snapshots" / commit
    return snapshot if re.fullmatch(r"\w+", commit) and snapshot.is_dir() else None


def ref_file(model: Path, revision: str) -> Path | None:
    """Where the cached `model` holds the commit that `revision` is; None for a name that leads out
    of that folder."""
    if {"", ".", ".."} & set(re.split(r"[/\\]", revision)) or ":" in revision:
        return None
    return model / "refs" / revision


def _read_weights(snapshot: Path) -> Checkpoint | None:
    """Headers of the cached files; None where there are none, or not all of them."""
    weights = find_weights(snapshot)
    if weights is None:
        return None
    checkpoint = read_checkpoint(weights)
    if checkpoint.missing or checkpoint.partial:
        lost = len(checkpoint.missing) or "some"
        print(f"{lost} shard(s) are not cached: only the config is read.", file=sys.stderr)
        return None
    return checkpoint
