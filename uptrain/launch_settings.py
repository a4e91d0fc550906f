"""What `accelerate launch` asks of a training, by the variables that it sets; nothing of it that
changes what is computed, or where, is left out without a word."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from headcount.model.errors import HeadcountError

from .uptrain_request import ComputeDtype

_PRECISIONS: Mapping[str, ComputeDtype] = {"no": "float32", "bf16": "bfloat16"}
_REFUSED = {
    "ACCELERATE_USE_DEEPSPEED": "--use_deepspeed",
    "ACCELERATE_USE_MEGATRON_LM": "--use_megatron_lm",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "--use_parallelism_config",
}
_REFUSED_OF_FSDP = {
    "FSDP_OFFLOAD_PARAMS": "--fsdp_offload_params",
    "FSDP_ACTIVATION_CHECKPOINTING": "--fsdp_activation_checkpointing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSettings:
    """`dtype` None: none is asked for. `reshard`: weights are let go between forward and
    backward."""

    dtype: ComputeDtype | None
    cpu: bool
    shard: bool
    reshard: bool


def launch_settings() -> LaunchSettings:
    """Those of this process. Raises HeadcountError for what is not done here."""
    for variable, option in _REFUSED.items():
        _refuse(variable, option, "weights are shared by --use_fsdp --fsdp_version 2, or not")
    if os.environ.get("ACCELERATE_DYNAMO_BACKEND", "NO").upper() != "NO":
        raise HeadcountError("accelerate's --dynamo_backend: uptrain compiles nothing; use no")
    shard = _is_set("ACCELERATE_USE_FSDP")
    if shard:
        _check_fsdp()
    return LaunchSettings(
        dtype=_dtype(),
        cpu=_is_set("ACCELERATE_USE_CPU"),
        shard=shard,
        reshard=os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false",
    )


def _check_fsdp() -> None:
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise HeadcountError(
            f"accelerate's --fsdp_version {version}: uptrain shares weights with FSDP2:"
            " --fsdp_version 2"
        )
    for variable, option in _REFUSED_OF_FSDP.items():
        _refuse(variable, option, "weights stay on their devices, and layers are run once")


def _dtype() -> ComputeDtype | None:
    said = os.environ.get("ACCELERATE_MIXED_PRECISION")
    if said is None:
        return None
    if said not in _PRECISIONS:
        raise HeadcountError(
            f"accelerate's --mixed_precision {said}: uptrain computes in float32 or bfloat16: use"
            f" {' or '.join(_PRECISIONS)}"
        )
    return _PRECISIONS[said]


def _refuse(variable: str, option: str, instead: str) -> None:
    if _is_set(variable):
        raise HeadcountError(f"accelerate's {option}: not done by uptrain: {instead}")


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1", "yes")
