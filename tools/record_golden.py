"""Records what the command line says of fixed models in tests/golden, to be read and compared.

python tools/record_golden.py --write [FILE...]   # catalogue, types, plans, conversions, lists
python tools/record_golden.py --check [FILE...]   # prints what differs, exit status 1 if anything
python tools/record_golden.py --add FOLDER...     # takes the headers of tiny checkpoints up

A change of a line is a change of the program: say in the commit why it is right. Conversions need
the extra `convert`. A new plan is a line in plans.txt with its command alone.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import golden_files  # noqa: E402
from golden_lines import ranges  # noqa: E402

FILES = (*golden_files.KINDS, "lists")
# Keys of a config that say how a model is trained or printed: nothing here reads them.
_IDLE = re.compile(
    r"(dropout|drop|pdrop|initializer|_version$|return_dict|output_|_name_or_path|id2label|"
    r"label2id|problem_type|chunk_size_feed|_token_id$|_token_index$|init_std|std$|use_cache|"
    r"router_aux_loss_coef|image_grid_pinpoints|torchscript|norm_topk_prob)"
)


def contents(name: str) -> dict[Path, str]:
    """What the golden files of `name` would hold now."""
    if name == "lists":
        lists = golden_files.GOLDEN / "lists"
        return {lists / each: golden_files.text(each) for each in golden_files.LISTS}
    with TemporaryDirectory() as folder:
        lines = golden_files.made(name, Path(folder)).values()
    return {golden_files.GOLDEN / f"{name}.txt": "".join(f"{line}\n" for line in lines)}


def differing(path: Path, wanted: str) -> Iterator[str]:
    """Lines that went and came."""
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    before, after = Counter(old), Counter(wanted.splitlines())
    yield from (f"- {line}" for line in before - after)
    yield from (f"+ {line}" for line in after - before)


def row_of(folder: Path) -> dict[str, Any]:
    """A checkpoint of one file as a line of checkpoints.jsonl."""
    raw = (folder / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    dtypes = Counter(tensor["dtype"] for tensor in header.values())
    usual = dtypes.most_common(1)[0][0]
    shapes = {
        name: ("" if tensor["dtype"] == usual else f"{tensor['dtype']} ")
        + "x".join(map(str, tensor["shape"]))
        for name, tensor in header.items()
    }
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {
        "name": folder.name,
        "dtype": usual,
        "config": plain(config),
        "tensors": nested(joined(joined(shapes))),
    }


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without nulls and idle keys."""
    return {
        key: plain(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if value is not None and not _IDLE.search(key)
    }


def joined(shapes: Mapping[str, str]) -> dict[str, str]:
    """Tensors of one shape whose names differ in their first number only, as one."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for name, shape in shapes.items():
        number = re.search(r"(?<=\.)\d+(?=\.|$)", name)
        start, end = number.span() if number else (len(name), len(name))
        place = f"{name[:start]}\0{name[end:]}" if number else name
        found[place, shape].extend([int(number[0])] if number else [])
    return {
        place.replace("\0", f"{{{ranges(sorted(numbers))}}}"): shape
        for (place, shape), numbers in found.items()
    }


def nested(shapes: Mapping[str, str]) -> dict[str, Any]:
    """Names as a tree, one word a level; a branch without forks is one key."""
    tree: dict[str, Any] = {}
    for name, shape in shapes.items():
        *outer, last = name.split(".")
        holder = tree
        for word in outer:
            holder = holder.setdefault(word, {})
        holder[last] = shape
    return _without_single_branches(tree)


def _without_single_branches(tree: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _without_single_branches(value) if isinstance(value, dict) else value
        if isinstance(inner, dict) and len(inner) == 1:
            ((more, inner),) = inner.items()
            key = f"{key}.{more}"
        found[key] = inner
    return found


def add(folders: list[str]) -> None:
    """Puts the rows of `folders` into checkpoints.jsonl, in the order of their names."""
    path = golden_files.GOLDEN / "checkpoints.jsonl"
    rows = dict(golden_files.checkpoints()) if path.exists() else {}
    rows |= {Path(name).name: row_of(Path(name)) for name in folders}
    lines = (json.dumps(rows[name], separators=(",", ":")) for name in sorted(rows))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    what, *names = sys.argv[1:] or ["--help"]
    if what == "--add" and names:
        add(names)
        return
    if what not in ("--write", "--check") or not set(names) <= set(FILES):
        sys.exit(__doc__)
    differences: list[str] = []
    for name in names or FILES:
        for path, wanted in contents(name).items():
            found = list(differing(path, wanted))
            differences += [f"{path.relative_to(ROOT)}:", *found] if found else []
            if what == "--write":
                path.write_text(wanted, encoding="utf-8")
    print("\n".join(differences))
    sys.exit(what == "--check" and bool(differences))


if __name__ == "__main__":
    main()
