"""The attention of one architecture as data: constants, and the keys that decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headcount.model.spec import Layer

from ..config_view import ConfigView, MissingValueError
from .layer_kinds import KindRule

# Config values that hold in one layer only, for each layer, by the kinds of all layers.
PerLayer = Callable[[ConfigView, tuple[str, ...]], Sequence[Mapping[str, Any]]]
Builder = Callable[["AttentionShape", ConfigView], tuple[Layer, ...]]
# Where the number of K/V heads comes from: a count of the config, a flag of it (multi_query), or
# the query heads, of which a class without GQA has as many whatever the config says.
KeyValueHeadsFrom = Literal["config", "flag", "query heads"]


def no_parameters(view: ConfigView, heads: int, head_dim: int) -> int:
    return 0


def plain_window(view: ConfigView) -> int:
    """The window of sliding layers, themselves among it."""
    return needed_window(view, "sliding_window")


def needed_window(view: ConfigView, key: str) -> int:
    """The window that some layers have by `key`. Raises MissingValueError: transformers builds a
    model without one, and its masks and cache fail in the first forward."""
    window = view.optional(key)
    if window is None:
        said = "null" if key in view.config else "not given"
        raise MissingValueError(
            f"{view.where}: {key} is {said}, and some layers have one: transformers may"
            " build the model, but its first forward fails. Give the window, or layer_types"
            " that are all full_attention"
        )
    return window


def standard_key_value_heads(view: ConfigView, heads: int) -> int:
    """num_key_value_heads; absent or null means one per query head."""
    count = view.optional("num_key_value_heads")
    if count is None:
        return int(view.note("num_key_value_heads", heads, "derived: num_attention_heads"))
    return count


def as_query_heads(view: ConfigView, heads: int) -> int:
    """One K/V head per query head: a class without GQA ignores num_key_value_heads."""
    return int(
        view.note(
            "num_key_value_heads", heads, "derived: num_attention_heads (the class has no GQA)"
        )
    )


def multi_query_heads(view: ConfigView, heads: int) -> int:
    """One K/V head if `multi_query`, else one per query head (BigCode, old Falcon)."""
    count = 1 if view.flag("multi_query") else heads
    return int(view.note("num_key_value_heads", count, "derived: multi_query"))


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionShape:
    """How the layers of a config attend.

    `qkv_bias`, `k_bias`, `o_bias`: True, False or a key (`k_bias` None: as qkv_bias). `norm` is the
    size of the q/k norms, see `layers.NORM_SIZES`, and `norm_if` what turns them on.
    `key_value_heads`, `window` and `other` are callables for what no key says directly (parameters
    beside the projections and q/k norms: `other`), and `v_head_dim` is the key of a head dim of the
    values only. `per_layer` gives the config values that one layer has to itself.
    `key_value_keys` are the config keys that the class takes its number of K/V heads from, and
    `per_layer_key` is an object with values of single layers. `cached`: decoding keeps a cache, as
    a BERT does only with `is_decoder`; `caches` says what. `stack` is the name of the layers where
    that does not follow from it. `cross` says whether a cross-attention stands beside each
    self-attention, and `cross_width` names the width that its k and v read. `build` makes layers
    that are not those of a common decoder.
    """

    build: Builder | None = None
    kinds: KindRule = None
    qkv_bias: bool | str = False
    k_bias: bool | str | None = None
    o_bias: bool | str = False
    norm: str | Callable[[ConfigView], str] = "none"
    norm_if: bool | str = True
    fixed_head_dim: bool = False
    kv_heads_from: KeyValueHeadsFrom = "config"
    key_value_heads: Callable[[ConfigView, int], int] | None = None
    other: Callable[[ConfigView, int, int], int] = no_parameters
    broadcasts_key_value: bool | str = False
    v_head_dim: str | None = None
    window: Callable[[ConfigView], int | None] = plain_window
    per_layer: PerLayer | None = None
    key_value_keys: tuple[str, ...] = ("num_key_value_heads",)
    per_layer_key: str | None = None
    cached: bool | str = True
    caches: Literal["keys and values", "hidden states"] = "keys and values"
    stack: str | None = None
    cross: bool | str = False
    cross_width: str | None = None

    def count_key_value_heads(self, view: ConfigView, heads: int) -> int:
        """K/V heads beside `heads` query heads. Raises InvalidConfigError."""
        if self.key_value_heads is not None:
            return self.key_value_heads(view, heads)
        if self.kv_heads_from == "query heads":
            return as_query_heads(view, heads)
        return standard_key_value_heads(view, heads)
