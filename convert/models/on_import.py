"""Makes transformers know our classes as soon as it is imported, without importing it.

A type such as `headcount_bart` is registered when transformers first asks for it: the classes of
all types would take seconds to import.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from headcount.arch.our_types import is_ours

_AUTO = "transformers.models.auto.configuration_auto"


class _OnDemand(dict[str, Any]):
    """The config classes that were registered; a type of ours registers itself when looked for."""

    def __contains__(self, key: object) -> bool:
        if not super().__contains__(key) and isinstance(key, str) and is_ours(key):
            from .registry import register

            register(key)
        return super().__contains__(key)


class _AfterImport(Loader):
    """Loads the module as ever, then lets it know our types."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _install(module)


class _Finder(MetaPathFinder):
    """Waits for one module, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _AUTO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImport(spec.loader)
        return spec


def know_our_types() -> None:
    """Installs the hook, or does at once what it would do. A second call changes nothing."""
    loaded = sys.modules.get(_AUTO)
    if loaded is not None:
        _install(loaded)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _install(module: Any) -> None:
    mapping = module.CONFIG_MAPPING
    if not isinstance(mapping._extra_content, _OnDemand):
        mapping._extra_content = _OnDemand(mapping._extra_content)
