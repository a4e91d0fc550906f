"""The type of an architecture: all that tells one `model_type` from another, in one value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headcount.model.spec import Layer

from .attention.shape import AttentionShape
from .config_view import ConfigView
from .modules.names import STANDARD, FeedForwardNames, Prediction
from .tensors.names import LLAMA_NAMES, TensorNames
from .tying import TyingRule, config_says

if TYPE_CHECKING:  # few types need them, and each takes time to start
    from .body.body import Head
    from .body.encoded_images import EncodedImage
    from .body.towers import Wrapper
    from .gguf.form import Gguf

# Which rows of a q or k head rotate together: i and i + half, or 2 i and 2 i + 1; "none": nothing
# turns. None: it is not known.
Rotary = Literal["halves", "pairs", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigKeys:
    """How a config.json of the type is read.

    `aliases` are other names of standard keys and `defaults` what a key that is not there means,
    for types that transformers has no class for (generated/class_defaults.jsonl has the others).
    `overriding`: other names that the class takes where the standard one stands, too.
    `unused` are names of sizes that its published files have, and that are no other name of a size:
    nothing reads them, or the architecture does for what they are.
    `read_as`: a type whose class reads this one's configs. `text` names the nested config of the
    language model, whose own architecture describes it; `fills_text`: what the file leaves out of
    it takes the wrapper's default. `written` are keys of it that the wrapper overwrites, each with
    the nested key whose value it gets. `replaced` are nested configs for which the class takes what
    the file has under the same name and `_dict`: all of it, over the class's defaults and nothing
    of the config of the plain name. `models` are nested configs that are whole models of their own
    types, one for each stack. `tied` says whether the output head is the embedding.
    """

    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    overriding: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    read_as: str | None = None
    text: str | None = None
    fills_text: bool = False
    written: Mapping[str, str] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tied: TyingRule = config_says


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """What holds a model of the type with fewer K/V heads, and what stands in the way.

    `refused`: why heads cannot be merged exactly at all. `by_layer`: the modelling file of our own
    can give each layer a number of its own, although the class reads one for all. `even_only`: half
    of the V heads are subtracted from the other half (DIFF Transformer). `width_checked`: the
    config refuses a hidden_size that is no multiple of the query heads, though head_dim is free.
    `whole_width`: the class runs only where the query heads are as wide as hidden_size together.
    `eager`: eager attention in transformers takes fewer K/V heads than query heads.
    `only`: the one number of K/V heads that the class can hold. `variant`: keys of a config with
    K/V heads to merge, where that of the class's defaults has none. `not_in`: engines that list the
    class and do not read its number of K/V heads. `codebooks`: its decoder reads codes of several
    codebooks at a time, not one token. `uncompared`: why no model of the type was ever converted
    and compared as a whole, though its language model's type was.

    The others say what the type does by no tensor of its own, True or the key that turns it on:
    `norms_keys`, `alibi`, `changes_values` (values are not only mixed) and `numbers_heads` (heads
    are told apart by their number, in a table beside the layers).
    """

    refused: str | None = None
    by_layer: bool = False
    even_only: bool = False
    width_checked: bool = False
    whole_width: bool = False
    eager: bool = True
    only: int | None = None
    variant: Mapping[str, Any] = field(default_factory=dict)
    not_in: tuple[str, ...] = ()
    codebooks: bool = False
    uncompared: str | None = None
    norms_keys: bool | str = False
    alibi: bool | str = False
    changes_values: bool | str = False
    numbers_heads: bool | str = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What files of the type hold otherwise than their config says.

    `more_rows` of the embedding that the class adds to vocab_size (image tokens, a start token).
    `several_vocabularies`: the one embedding holds more than that of the text, or ids of tokens are
    of another vocabulary than the decoder's (codes of sound). `other_head`: the
    head is over another vocabulary than that of the text. `computes_positions`: the class counts
    tables of positions that it computes, and never stores. `kept_wide`: names of matrices that
    libraries which quantise as they load leave alone, and bitsandbytes keeps in float32, since the
    class asks for that (`_keep_in_fp32_modules`).
    """

    more_rows: int = 0
    several_vocabularies: bool = False
    other_head: bool = False
    computes_positions: bool = False
    kept_wide: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """How what transformers builds of the type is held against an audit.

    `scattered`: its attention modules do not stand in one list of layers. `refused`: why modules
    are not matched with the layers of an audit; a difference would say nothing of the config.
    """

    scattered: bool = False
    refused: str | None = None


LATENT = Conversion(uncompared="its config wants a K/V head per query head: latent attention")
JOINED = Verification(refused="its modules join parts that the audit counts one by one")
OTHER_STACKS = Verification(refused="its attention stands in stacks that are not told apart here")


class CountsBody(Protocol):
    """What a model holds outside attention, as `body.Body` and its siblings count it, for the
    `classes` that have a head which it describes."""

    @property
    def classes(self) -> "Mapping[str, Head | None]": ...

    def parameters(self, view: ConfigView, layers: tuple[Layer, ...], *, tied: bool) -> int:
        """All but attention. Raises UncountedError."""

    def idle(self, view: ConfigView, layers: tuple[Layer, ...]) -> int:
        """Parameters of the experts that one token does not visit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One lineage's value for `types`, which differ in nothing but their name.

    `spellings`     other names that older files give the first of `types`
    `config`        how a config.json of the type is read
    `attention`     how each layer attends, and what it keeps
    `body`          the parameters outside attention; None: the total does not follow from the
                    config, and `uncounted` says why
    `tensors`       how attention tensors are called; None: as Llama's, or as the language model's
                    where that is nested
    `feed_forward`  how the matrices of MLPs and experts are called
    `prediction`    the layers that predict further tokens, in files alone
    `built_prediction`  parameters of such layers that the class builds, and `body` counts
    `stacks`        beginnings of names -> the stack or tower whose layers they are, where the words
                    in front of a layer's number do not say it, or say another; a base model may
                    lack the first of them
    `gguf`          the architectures of GGUF files that llama.cpp has for it
    `rotary`        which rows of a head rotate together
    `conversion`    what holds it with fewer K/V heads, and what stands in the way
    `stored`        what files hold otherwise than their config says
    `rehomes`       what else computes the function of the class with fewer K/V heads, as names for
                    `rehoming.rehome_of`, the first that fits a config first
    `verification`  how a built model is held against an audit
    `image`         how many tokens it makes of one image, for a cross-attention over them; None: it
                    makes none, or the config does not say how many
    """

    types: tuple[str, ...]
    config: ConfigKeys = field(default_factory=ConfigKeys)
    attention: AttentionShape = field(default_factory=AttentionShape)
    spellings: tuple[str, ...] = ()
    body: "CountsBody | Wrapper | None" = None
    uncounted: str | None = None
    tensors: TensorNames | None = None
    feed_forward: FeedForwardNames = STANDARD
    prediction: Prediction | None = None
    built_prediction: "Callable[[ConfigView, tuple[Layer, ...]], int] | None" = None
    stacks: Mapping[str, str] = field(default_factory=dict)
    gguf: "tuple[Gguf, ...]" = ()
    rotary: Rotary | None = None
    conversion: Conversion = field(default_factory=Conversion)
    stored: Stored = field(default_factory=Stored)
    verification: Verification = field(default_factory=Verification)
    rehomes: tuple[str, ...] = ()
    image: "EncodedImage | None" = None

    @property
    def names(self) -> TensorNames:
        """How its attention tensors are called on disk."""
        return LLAMA_NAMES if self.tensors is None else self.tensors

    def relative(self, *types: str, **changes: Any) -> "Architecture":
        """The value of `types`, equal to this one but for `changes`: whole fields, or for a nested
        value a dict of its own fields, as in `LLAMA.relative("x", attention={"norm": "head"})`.

        What is found out class by class is not inherited, so that nothing is claimed of a type by
        accident: its GGUF architectures, spellings, `stacks`, `uncounted`, `conversion`, `stored`,
        `prediction`, `verification`, `rehomes` and `image`. Where a relative shares one of these,
        it says so."""
        parts = {
            name: replace(getattr(self, name), **change)
            if isinstance(change, dict) and name in _NESTED
            else change
            for name, change in changes.items()
        }
        inherited = {name: getattr(self, name) for name in _INHERITED}
        return Architecture(types=types, **{**inherited, **parts})


_INHERITED = ("config", "attention", "body", "tensors", "feed_forward", "rotary")
_NESTED = frozenset({"config", "attention", "body", "tensors"})

# Models around a language model, which they nest as nearly all do.
MULTIMODAL = Architecture(types=(), config=ConfigKeys(text="text_config"))
