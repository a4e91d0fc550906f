"""What the user asks for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from headcount.audit.errors import HeadcountError

from .cast import CAST_NAMES, CastName

# How several K/V heads become one; docs/methods.md has the formulas and sources.
Method = Literal["mean", "first", "medoid", "random"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionRequest:
    """Convert the model in the folder `source` to `num_key_value_heads` K/V heads, into `target`.

    `seed` matters to the method `random` only. Floats become `dtype`, and files hold at most
    `max_shard_size` bytes, where these are given. `source_name` is what the record calls the
    source; its folder's name if not given. `workers` threads merge heads while others are
    written. `overwrite` replaces an earlier output of ours.
    """

    source: Path
    target: Path
    num_key_value_heads: int
    method: Method = "mean"
    seed: int = 0
    dtype: CastName | None = None
    max_shard_size: int | None = None
    source_name: str | None = None
    workers: int = 2
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise HeadcountError(f"method {self.method!r} is not one of {', '.join(METHODS)}")
        if self.dtype is not None and self.dtype not in CAST_NAMES:
            raise HeadcountError(f"dtype {self.dtype!r} is not one of {', '.join(CAST_NAMES)}")
        if self.max_shard_size is not None and self.max_shard_size < 1:
            raise HeadcountError(f"{self.max_shard_size} bytes: a file has to hold at least one")
        if self.workers < 1:
            raise HeadcountError(f"{self.workers} workers: at least one has to do the work")
        if self.num_key_value_heads < 1:
            raise HeadcountError(
                f"{self.num_key_value_heads} K/V heads: a model needs at least one"
            )
