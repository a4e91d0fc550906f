"""Runs the notebooks of docs/notebooks, and writes or checks what their cells show.

    python tools/notebooks.py --write [NAME...]
    python tools/notebooks.py --check [NAME...]

The code cells of a notebook run in order in one namespace, in a folder of their own. What a cell
shows is what it printed and, of its last line, the value. --check compares the text with what is
stored, but of a notebook with `"compared": false` in its metadata only runs it: there the last
digits are the machine's.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def shown(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs a cell; what it shows, as nbformat 4 has it."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed)})
    if value is not None:
        data = {"text/plain": lines(io.StringIO(repr(value)))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(io.StringIO(value._repr_html_()))
        outputs.append({"data": data, "metadata": {}, "output_type": "execute_result"})
    return outputs


def lines(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines(keepends=True)


@contextlib.contextmanager
def folder_of_its_own() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells show now."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    with folder_of_its_own():
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                outputs = shown("".join(cell["source"]), names)
                for output in outputs:
                    if output["output_type"] == "execute_result":
                        output["execution_count"] = number
                cell = {**cell, "execution_count": number, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}


def written(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def stale(path: Path) -> bool:
    """Whether a notebook shows something else than it would now. Runs it."""
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    now = written(run(notebook))
    return notebook["metadata"].get("compared", True) and now != text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", action="store_true")
    group.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    paths = [FOLDER / f"{name}.ipynb" for name in given.names] or sorted(FOLDER.glob("*.ipynb"))
    if given.write:
        for path in paths:
            notebook = run(json.loads(path.read_text(encoding="utf-8")))
            path.write_text(written(notebook), encoding="utf-8")
        return
    old = [path.name for path in paths if stale(path)]
    if old:
        sys.exit(f"not what they show now: {', '.join(old)}: tools/notebooks.py --write")


if __name__ == "__main__":
    main()
