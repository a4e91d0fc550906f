"""Makes the index of the catalogue, which is read at every look-up, from its models.jsonl.

python tools/catalogue.py   # after an edit by hand: sorts the lines, and writes index.json
"""

import json
from pathlib import Path
from typing import Any

from headcount.arch.read_config import read_config
from headcount.model.errors import UnsupportedModelError

FOLDER = Path(__file__).parent.parent / "sources" / "catalogue"


def index_of(lines: list[bytes]) -> list[dict[str, Any]]:
    """What lists and look-ups need of each model, and where its line begins."""
    index, offset = [], 0
    for raw in lines:
        line = json.loads(raw)
        config = line["config"]
        index.append(
            {
                "id": line["id"],
                "aliases": line["aliases"],
                "checkpoints": list(line["checkpoints"]),
                "model_type": config.get("model_type"),
                "parameters": line["built_parameters"] or computed(line),
                "offset": offset,
            }
        )
        offset += len(raw)
    return index


def computed(line: dict[str, Any]) -> int | None:
    """By the config where transformers builds nothing; a published count may be of packed codes."""
    published: int | None = line["published_parameters"]
    try:
        count = read_config(line["config"], line["id"]).parameters()
    except UnsupportedModelError:
        return published
    return count or published


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def main() -> None:
    models = FOLDER / "models.jsonl"
    lines = sorted(map(json.loads, models.read_bytes().splitlines()), key=by_id)
    raw = [dump(line) for line in lines]
    models.write_bytes(b"".join(raw))
    rows = b",\n".join(dump(row).rstrip() for row in index_of(raw))
    (FOLDER / "index.json").write_bytes(b"[\n" + rows + b"\n]\n")


def by_id(line: dict[str, Any]) -> str:
    model: str = line["id"]
    return model.lower()


if __name__ == "__main__":
    main()
