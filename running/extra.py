"""Whether the extra `convert` is there, before anything of it is imported."""

import importlib.util

from headcount.model.errors import MissingExtraError

_NEEDED = ("torch", "transformers", "safetensors", "tqdm", "xxhash")


def need_extra(what: str = "this command") -> None:
    """Refuses what the heavy half does on a base install, in one line, and with settings at which
    its libraries fail when they are imported."""
    from headcount.sources.hub_settings import hub_constants

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{what} needs {', '.join(missing)}: install the extra `convert`, in a clone of"
            " headcount with: pip install '.[convert]'"
        )
    hub_constants()
