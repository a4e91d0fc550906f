"""Makes the catalogue: one JSON line per model, and an index that is read at every look-up.

python tools/catalogue.py --from FOLDER   # entries and NOTES.jsonl -> both files
python tools/catalogue.py                 # models.jsonl -> index.json, after an edit by hand
"""

import argparse
import json
from pathlib import Path
from typing import Any

from headcount.arch.read_config import read_config
from headcount.model.errors import UnsupportedModelError

FOLDER = Path(__file__).parent.parent / "sources" / "catalogue"


def line_of(entry: dict[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """One model as it is stored: counts, their sources, and the config as published."""
    return {
        "id": entry["id"],
        "aliases": entry["aliases"],
        "built_parameters": entry.get("meta_parameters"),
        "built_as": notes.get("meta_via"),
        "published_parameters": entry.get("total_parameters"),
        "published_source": notes.get("total_parameters_source"),
        "remote_code": bool(entry.get("needs_remote_code")),
        "confidence": entry["confidence"],
        "notes": notes.get("notes", []),
        "sources": entry["source"],
        "config": entry["config"],
    }


def read_folder(folder: Path) -> list[dict[str, Any]]:
    with (folder / "NOTES.jsonl").open(encoding="utf-8") as file:
        notes = {line["id"]: line for line in map(json.loads, file)}
    entries = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    lines = [line_of(entry, notes.get(entry["id"], {})) for entry in entries]
    return sorted(lines, key=lambda line: line["id"].lower())


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    source = parser.parse_args().source
    models = FOLDER / "models.jsonl"
    if source:
        models.write_bytes(b"".join(dump(line) for line in read_folder(source)))
    with models.open("rb") as file:
        index = index_of(file.readlines())
    rows = b",\n".join(dump(row).rstrip() for row in index)
    (FOLDER / "index.json").write_bytes(b"[\n" + rows + b"\n]\n")


if __name__ == "__main__":
    main()
