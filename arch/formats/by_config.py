"""What a config says of the bytes of its model's weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headcount.model.errors import InvalidConfigError, UnsupportedModelError
from headcount.model.spec import ModelSpec

from ..modules.module import Inventory
from ..modules.of_models import inventory_of, inventory_of_spec
from ..read_config import read_config
from .of_configs import scheme_of
from .weight_bytes import StoredWeights, stored_weights


class Quantised(NamedTuple):
    """`name` is the scheme's, `weights` what it makes of the model."""

    name: str
    weights: StoredWeights


def weights_by_config(
    config: Mapping[str, Any], spec: ModelSpec, *, wide_bits: int
) -> Quantised | None:
    """The weights as `config` quantises them; None where it does not, or where their number is not
    known. `wide_bits` are those of what stays as it is. Raises UnknownFormatError."""
    scheme = scheme_of(config)
    if scheme is None or spec.parameters is None:
        return None
    inventory = inventory_by(config, spec, spec.parameters)
    return Quantised(scheme.name, stored_weights(inventory, scheme, wide_bits=wide_bits))


def inventory_by(config: Mapping[str, Any], spec: ModelSpec, parameters: int) -> Inventory:
    """By the config where that describes as many parameters, else by the layers."""
    return described_inventory(config, parameters) or inventory_of_spec(spec, parameters)


def described_inventory(config: Mapping[str, Any], parameters: int) -> Inventory | None:
    """Every matrix by the config; None where that does not describe as many parameters."""
    try:
        found = inventory_of(read_config(config, "config.json"))
    except (InvalidConfigError, UnsupportedModelError):
        return None
    return found if found is not None and found.parameters == parameters else None
