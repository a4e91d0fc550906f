"""From a config.json to a ModelSpec, through the row of its model_type."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headcount.model.dtypes import resolve_dtype
from headcount.model.errors import HeadcountError, InvalidConfigError, UnsupportedModelError
from headcount.model.mixers import Mixer
from headcount.model.spec import Layer, ModelSpec

from .class_defaults import class_defaults
from .names import LLAMA, TensorNames
from .row import Family
from .table import FAMILIES, SPELLINGS
from .view import ConfigView, MissingValueError

# What the types of our own modelling file begin with (grouped.py).
GROUPED = "headcount_"
# The standard name of the context length, and what older configs call it.
_ALIASES: dict[str, tuple[str, ...]] = {
    "max_position_embeddings": (
        *("n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
        *("max_target_positions", "model_max_length"),
    ),
    "dtype": ("torch_dtype",),
}


class Reading(NamedTuple):
    """A config as read: the spec, the row that read it, and the views of it.

    `view` is of the whole config, `text` of its language model, the same object where that is not
    nested. What only some audits need is counted when it is asked for.
    """

    spec: ModelSpec
    family: Family
    view: ConfigView
    text: ConfigView

    def parameters(self) -> int | None:
        """All parameters, as transformers builds the model; None where they cannot be known.

        Raises InvalidConfigError for an impossible size.
        """
        return self.total()[0]

    def total(self) -> tuple[int | None, str | None]:
        """All parameters, or None and a clause that says why they are not known.

        Raises InvalidConfigError for an impossible size.
        """
        from .parameters import other_parameters
        from .uncounted import UncountedError

        try:
            other = other_parameters(
                self.view,
                base_type(self.spec.model_type),
                self.spec.layers,
                self.text,
                tied=self.spec.tie_word_embeddings,
            )
        except (MissingValueError, UncountedError) as error:
            return None, str(error)
        return other + self.spec.attention_parameters, None

    def names(self) -> dict[str, TensorNames]:
        """How tensors are called on disk, for each stack."""
        if self.family.models:
            return {stack: nested(self.view, stack)[1].names for stack in self.family.models}
        return dict.fromkeys((layer.stored_in for layer in self.spec.layers), self.family.names)

    @property
    def nests(self) -> bool:
        """Whether the language model is one of several that the config describes."""
        return self.text is not self.view

    @property
    def towers(self) -> str:
        """What the other models are, for lists of layers whose names do not say it."""
        keys = self.view.config.keys() | self.view.defaults.keys()
        kinds = ("vision", "audio")
        return next((kind for kind in kinds if any(kind in key for key in keys)), "other")

    def idle_parameters(self) -> int | None:
        """Parameters of experts that a token does not visit; None where no row describes them.

        Raises InvalidConfigError for an impossible size.
        """
        if not any("expert" in key or "moe" in key or key == "ffn_config" for key in self._keys()):
            return 0
        from .parameters import idle_parameters

        try:
            model_type = base_type(self.spec.model_type)
            return idle_parameters(self.view, model_type, self.spec.layers, self.text)
        except MissingValueError:
            return None

    def _keys(self) -> set[str]:
        return {*self.text.config, *self.text.defaults, *self.view.config}


def read_config(config: Mapping[str, Any], where: str) -> Reading:
    """The layers that `config` describes, and the row that read it.

    A model_type that neither the table nor transformers knows is read by the standard names, and
    the spec is marked `assumed`. Raises InvalidConfigError for impossible values and
    UnsupportedModelError for a type that cannot be read so.
    """
    model_type, source = _model_type(config, where)
    family = find_family(model_type, where, config)
    view = _view(config, model_type, family, where)
    view.note("model_type", model_type, source)
    text, text_family = _language_model(view, family, where)
    if text is not view and family.names is not LLAMA:
        text_family = replace(text_family, names=family.names)
    if family.stacks:
        text_family = replace(text_family, stacks=family.stacks)
    if text is not view and model_type.startswith(GROUPED):
        from .grouped import with_key_value_heads

        text_family = with_key_value_heads(text_family, view)
    assumed = not (is_known(model_type) and is_known(text.model_type))
    try:
        layers = text_family.build(text_family, text)
    except MissingValueError as error:
        if assumed:
            raise _unsupported(text.model_type, where) from error
        raise
    spec = ModelSpec(
        model_type=model_type,
        layers=layers,
        hidden_size=_hidden_size(text, layers),
        vocab_size=text.optional("vocab_size"),
        dtype=_dtype(view, text),
        max_position_embeddings=text.optional("max_position_embeddings"),
        encoder_tokens=_encoder_tokens(view, text, layers),
        tie_word_embeddings=family.tied(view, text),
        assumed=assumed,
        origins=view.origins,
    )
    return Reading(spec=spec, family=text_family, view=view, text=text)


def read_spec(config: Mapping[str, Any], where: str) -> tuple[ModelSpec, Family]:
    """The spec of `config` with its parameters counted, and the row that read it."""
    reading = read_config(config, where)
    count, unknown = reading.total()
    source = None if count is None else "config"
    spec = replace(
        reading.spec,
        parameters=count,
        parameters_source=source,
        parameters_unknown=unknown,
    )
    return spec, reading.family


def is_known(model_type: str) -> bool:
    """Whether the family table has a row for `model_type`."""
    base = base_type(model_type)
    return SPELLINGS.get(base, base) in FAMILIES


def base_type(model_type: str) -> str:
    """The type that a model of our own modelling file groups; any other is its own base."""
    return model_type.removeprefix(GROUPED)


def find_family(model_type: str, where: str, config: Mapping[str, Any]) -> Family:
    """The row of `model_type`, or one that is assumed by the keys of `config`.

    Raises UnsupportedModelError naming the type."""
    base = base_type(model_type)
    family = FAMILIES.get(SPELLINGS.get(base, base))
    if family is not None and base != model_type:
        from .grouped import grouped

        family = grouped(family, base)
    if family is None:
        from .assumed import assumed_family

        family = assumed_family(model_type, config)
    if family is None:
        raise _unsupported(model_type, where)
    return family


def _unsupported(model_type: str, where: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where}: model_type {model_type!r} has no row in the family table: its layers are"
        " recurrent, hybrid or of another kind that is not counted yet."
        " `headcount families` lists what can be audited"
    )


def _model_type(config: Mapping[str, Any], where: str) -> tuple[str, str]:
    given = config.get("model_type")
    if isinstance(given, str) and given:
        return given, where
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        wanted = architectures[0].lower()
        fitting = [t for t in FAMILIES if wanted.startswith(t.replace("_", "").replace("-", ""))]
        if fitting:
            return max(fitting, key=len), f"derived: architectures ({architectures[0]})"
    raise InvalidConfigError(
        f"{where}: no model_type, and architectures does not tell it: this is not the config.json"
        " of a transformers model"
    )


def _view(config: Mapping[str, Any], model_type: str, family: Family, where: str) -> ConfigView:
    known = class_defaults(family.same_as or SPELLINGS.get(model_type, model_type))
    return ConfigView(
        config,
        where=where,
        class_name=known.class_name if known else f"{model_type} (remote code)",
        defaults={**(known.defaults if known else {}), **family.defaults},
        attribute_map=_attribute_map(known.attribute_map if known else {}, model_type),
        aliases={**_ALIASES, **family.aliases},
        model_type=model_type,
    )


def _attribute_map(known: Mapping[str, str], model_type: str) -> Mapping[str, str]:
    """The class's other names, but for a count of K/V heads that our own modelling file reads."""
    if not model_type.startswith(GROUPED):
        return known
    return {name: key for name, key in known.items() if name != "num_key_value_heads"}


def _language_model(view: ConfigView, family: Family, where: str) -> tuple[ConfigView, Family]:
    """The config of the language model, which a multimodal model nests."""
    if family.text is None:
        return view, family
    return nested(view, family.text, fills=family.fills_text)


def nested(view: ConfigView, key: str, *, fills: bool = False) -> tuple[ConfigView, Family]:
    """The nested config `key` of `view`, read with the row of its own model_type.

    Older files keep the text model's keys at the top (Qwen2-VL). A config that is there takes its
    own class's defaults; one that is missing takes those of the wrapper, and so does what one
    leaves out where the wrapper `fills` it (Voxtral).
    """
    nested_defaults = view.defaults.get(key) or {}
    given = view.config.get(key)
    if given is not None and not isinstance(given, dict):
        raise InvalidConfigError(f"{view.where}: {key} must be an object, not {given!r}")
    own = "hidden_size" in view.defaults  # PaliGemma's own is that of its projector
    flat = given is None and view.config.get("hidden_size") is not None and not own
    config = view.config if flat else (given or {})
    inner_type = (given or {}).get("model_type") or nested_defaults.get("model_type")
    if not isinstance(inner_type, str):
        raise InvalidConfigError(f"{view.where}: {key} has no model_type")
    place = view.where if flat else f"{view.where}: {key}"
    inner_family = find_family(inner_type, place, config)
    inner = _view(config, inner_type, inner_family, place)
    if given is None and not flat:
        inner.defaults = {**nested_defaults, **inner_family.defaults}
    elif fills:
        inner.defaults = {**inner.defaults, **nested_defaults}
    inner.origins = view.origins
    if inner_family.text is not None:
        return nested(inner, inner_family.text, fills=inner_family.fills_text)
    return inner, inner_family


def _hidden_size(view: ConfigView, layers: tuple[Layer, ...]) -> int:
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    return mixers[0].hidden_size if mixers else view.integer("hidden_size")


def _dtype(view: ConfigView, inner: ConfigView) -> str | None:
    for holder in (view, inner):  # loading casts all parts to what the whole says
        value = holder.get("dtype")
        if value is None:
            continue
        if not isinstance(value, str):
            raise InvalidConfigError(f"{holder.where}: dtype is {value!r}; a name is expected")
        try:
            return resolve_dtype(value)
        except HeadcountError as error:
            raise InvalidConfigError(f"{holder.where}: {error}") from error
    return None


def _keeps_encoder(mixer: Mixer) -> bool:
    return mixer.state_elements(0, 2) != mixer.state_elements(0, 0)


def _encoder_tokens(view: ConfigView, inner: ConfigView, layers: tuple[Layer, ...]) -> int:
    if not any(_keeps_encoder(mixer) for layer in layers for mixer in layer.mixers):
        return 0
    from .encoder_tokens import encoder_tokens

    return encoder_tokens(view, inner)
