"""An adapter as peft saves one: adapter_config.json and its weights, alone or beside the model that
it is for. transformers with peft loads it on top of the model without being asked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError

from .checkpoint import ADAPTER_CONFIG, find_weights
from .json_file import read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """Its config: empty where that cannot be read. `is_alone`: no weights of a model lie there."""

    folder: Path
    config: Mapping[str, Any]
    is_alone: bool

    @property
    def base(self) -> str | None:
        """The model that it says it is for."""
        name = self.config.get("base_model_name_or_path")
        return name if isinstance(name, str) and name else None

    @property
    def words(self) -> str:
        """`an adapter (LORA, for 'org/name')`."""
        kind = self.config.get("peft_type")
        parts = [kind] if isinstance(kind, str) else []
        parts += [f"for {self.base!r}"] if self.base else []
        return f"an adapter ({', '.join(parts)})" if parts else "an adapter"

    @property
    def where_to_go(self) -> str:
        """What to do with one that is alone."""
        return f"name its base model ({self.base})" if self.base else "name its base model"


def find_adapter(folder: Path) -> Adapter | None:
    """The adapter in `folder`, which need be no folder."""
    if not os.path.lexists(folder / ADAPTER_CONFIG):
        return None
    try:
        config = read_json(folder / ADAPTER_CONFIG)
    except HeadcountError:
        config = {}  # it is there all the same
    return Adapter(folder=folder, config=config, is_alone=find_weights(folder) is None)
