"""What the page's worker asks: a request of JSON is answered by the function of the library that
the command of its name calls. Runs in Pyodide, and anywhere else."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import headcount
from headcount.library.result import Result
from headcount.model.errors import HeadcountError, short
from headcount.sources.catalogue import find_row

from .views import view_of

# What can be asked -> how many names it takes, and whether they are models'.
_NAMES = {"audit": (1, True), "plan": (1, True), "diff": (2, True), "reconcile": (1, False)}
_WANTED = {
    "diff": "Choose two models, or drop the files of one here.",
    "reconcile": "Drop a start-up log here, or a folder of them: what an engine printed when it"
    " started, or failed to.",
}
_WANTED_OF_MODELS = "Choose a model, or drop its files here."


def answer(request: str) -> str:
    """The answer to `{"ask": "plan", "names": ["gpt2"], "options": {"device": "h100"}}`: the
    command line that says the same, and either the JSON document (`document`, as text, as the
    command prints it) with what the page shows of it (`view`), or the `error`. Of what names
    nothing yet only what is `wanted`: there is no command.

    `options` are those of the command, by name; a number that was typed may be a text.
    """
    asked = json.loads(request)
    ask, names, options = asked["ask"], asked["names"], asked["options"]
    count, _ = _NAMES[ask]
    if len(names) != count or not all(names):
        return json.dumps({"wanted": _WANTED.get(ask, _WANTED_OF_MODELS)})
    said: dict[str, Any] = {"command": command_line(ask, names, options)}
    try:
        result = _call(ask, names, options)
    except HeadcountError as error:
        return json.dumps({**said, "error": str(error)})
    view = view_of(result.report)
    return json.dumps({**said, "document": result.to_json(), "view": view}, ensure_ascii=False)


def command_line(ask: str, names: Sequence[str], options: Mapping[str, Any]) -> str:
    """The call as a shell takes it."""
    flags = (part for name, value in options.items() for part in (f"--{_dashed(name)}", str(value)))
    return shlex.join(("headcount", ask, *names, *flags))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _call(ask: str, names: Sequence[str], options: Mapping[str, Any]) -> Result:
    _, are_models = _NAMES[ask]
    if are_models:
        for name in names:
            _check_is_here(name)
    result: Result = getattr(headcount, ask)(*names, **options)
    return result


def _check_is_here(name: str) -> None:
    """Raises HeadcountError for what only a network could give: the page has none."""
    if Path(name).exists() or find_row(name) is not None:
        return
    raise HeadcountError(
        f"{short(name)} is not in the catalogue, and no file of that name was dropped here: this"
        " page reads nothing from a network. Drop the model's config.json, its"
        " model.safetensors.index.json or its .gguf file, or ask on the command line"
    )
