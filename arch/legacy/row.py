"""The type of a row of the family table: everything that tells one architecture from another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..attention import layers, shape
from ..attention.layer_kinds import KindRule
from ..config_view import ConfigView
from ..tensors.names import LLAMA, TensorNames
from ..tying import TyingRule, own_word


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One `model_type`. A field is a constant or the config key that decides it.

    `qkv_bias`, `k_bias`, `o_bias`: True, False or a key (`k_bias` None: as qkv_bias).
    `norm` is the size of the q/k norms, see `layers.NORM_SIZES`, and `norm_if` what turns them on.
    `key_value_heads`, `window` and `other` are callables for what no key says directly, and
    `v_head_dim` is the key of a head dim of the values only. `per_layer` gives the config values
    that one layer has to itself. `key_value_keys` are the config keys that the class takes its
    number of K/V heads from, and `per_layer_key` is an object with values of single layers.
    `cached`: decoding keeps a cache, as a BERT does only with `is_decoder`; `stack` is the name of
    the layers where that does not follow from it. `cross` says whether a cross-attention stands
    beside each self-attention, and `cross_width` names the width that its k and v read. `text`
    names the nested config of the language model, whose own row names its tensors unless `names`
    here does; `models` are nested configs that are whole models of their own types, one for each
    stack. `stacks` says of which stack or tower a list of layers is where the words in front of a
    layer's number do not say it, or say another; a base model may lack the first of them. `tied`
    says whether the head is the embedding; `aliases` and `defaults` serve types that transformers
    has no class for. `build` makes odd layers.
    """

    names: TensorNames = LLAMA
    build: Any = layers.decoder
    kinds: KindRule = None
    qkv_bias: bool | str = False
    k_bias: bool | str | None = None
    o_bias: bool | str = False
    norm: str | Callable[[ConfigView], str] = "none"
    norm_if: bool | str = True
    fixed_head_dim: bool = False
    key_value_heads: Callable[[ConfigView, int], int] = shape.standard_key_value_heads
    other: Callable[[ConfigView, int, int], int] = shape.nothing_else
    broadcasts_key_value: bool | str = False
    v_head_dim: str | None = None
    window: Callable[[ConfigView], int | None] = shape.plain_window
    per_layer: shape.PerLayer | None = None
    key_value_keys: tuple[str, ...] = ("num_key_value_heads",)
    per_layer_key: str | None = None
    cached: bool | str = True
    stack: str | None = None
    cross: bool | str = False
    cross_width: str | None = None
    text: str | None = None
    models: tuple[str, ...] = ()
    stacks: Mapping[str, str] = field(default_factory=dict)
    fills_text: bool = False  # what the file leaves out of `text` takes the wrapper's default
    tied: TyingRule = own_word
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    same_as: str | None = None  # a type whose class reads this one's configs
