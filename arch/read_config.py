"""From a config.json to a ModelSpec, through the architecture of its model_type."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headcount.model.dtypes import resolve_dtype
from headcount.model.errors import HeadcountError, InvalidConfigError, UnsupportedModelError
from headcount.model.mixers import Mixer
from headcount.model.spec import Assumption, Layer, ModelSpec

from .architecture import Architecture
from .attention.drafts import draft_layers, refuse_heads
from .attention.layers import build_layers
from .built_classes import built_class, class_name, type_by_class
from .class_defaults import class_defaults
from .config_view import ConfigView, MissingValueError
from .foreign_classes import ForeignClass, foreign_class, foreign_parts
from .nested import (
    config_view,
    find_architecture,
    nested,
    of_named_class,
    own_type,
)
from .other_tools import places, standard_config
from .our_types import base_type, is_grouped
from .registry import is_known
from .tensors.names import TensorNames
from .unread.unread_sizes import unread_experts, unread_models

ASSUMED_ENCODING = 512  # tokens, where nothing limits what is encoded
ASSUMED_LENGTH = "assumed: the config does not say how long an encoding is"


class Reading(NamedTuple):
    """A config as read: the spec, the architecture that read it, and the views of it. `foreign` is
    a class that it names and that is none of its type.

    `view` is of the whole config, `text` of its language model, the same object where that is not
    nested. What only some audits need is counted when it is asked for.
    """

    spec: ModelSpec
    architecture: Architecture
    view: ConfigView
    text: ConfigView
    foreign: ForeignClass | None = None

    def parameters(self) -> int | None:
        """All parameters, as transformers builds the model; None where they cannot be known.

        Raises InvalidConfigError for an impossible size.
        """
        return self.total()[0]

    def total(self) -> tuple[int | None, str | None]:
        """All parameters, or None and a clause that says why they are not known.

        Raises InvalidConfigError for an impossible size.
        """
        from .body.uncounted import UncountedError
        from .parameters import other_parameters

        try:
            other = other_parameters(
                self.view,
                base_type(self.spec.model_type),
                self.spec.layers,
                self.text,
                tied=self.spec.tie_word_embeddings,
            )
        except (MissingValueError, UncountedError) as error:
            return None, str(error) if self.foreign is None else self.foreign.clause
        if self.foreign is not None:
            return None, self.foreign.clause
        if class_defaults(self.view.model_type) is None:  # else its class builds none of these
            unread = unread_models(self.view, self.text)
            if unread:
                return None, f"its {unread[0]} is not counted"
            experts = unread_experts(self.text)
            if experts is not None:
                return None, f"its experts ({experts}) are not counted"
        return other + self.spec.attention_parameters, None

    def names(self) -> dict[str, TensorNames]:
        """How tensors are called on disk, for each stack."""
        models = self.architecture.config.models
        if models:
            return {stack: nested(self.view, stack)[1].names for stack in models}
        stacks = (layer.stored_in for layer in self.spec.layers)
        return dict.fromkeys(stacks, self.architecture.names)

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
        """Parameters of experts that a token does not visit; None where no body counts them.

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
    """The layers that `config` describes, and the architecture that read it.

    A model_type that neither a lineage nor transformers knows is read by the standard names, and
    the spec names its `assumptions`. Raises InvalidConfigError for impossible values and
    UnsupportedModelError for a type that cannot be read so.
    """
    given, config = config, of_named_class(standard_config(config, where))
    model_type = _model_type(config, where)
    refuse_heads(class_name(config), model_type, where)
    foreign = foreign_class(config, model_type)
    if foreign is not None and foreign.other is not None:
        model_type = foreign.other  # what the class reads, and not the type beside it
    foreign = foreign or next(foreign_parts(config), None)
    whole = find_architecture(model_type, where, config)
    view = config_view(config, model_type, whole, where)
    view.told = {**view.told, **places(given, config, where)}
    view.note("model_type", model_type, _type_source(given, model_type, where))
    text, architecture = _language_model(view, whole)
    assumed = not (is_known(model_type) and is_known(text.model_type))
    named = built_class(view)
    try:
        layers = build_layers(architecture.attention, text)
        layers = layers if named is None else named.layers(layers)
        layers = draft_layers(class_name(config), text, layers, architecture.prediction)
    except MissingValueError as error:
        if assumed:
            raise UnsupportedModelError(
                f"{where}: nothing describes model_type {text.model_type!r}, and by the names that"
                f" configs share it cannot be read: {error}"
            ) from error
        raise
    models = whole.config.models  # the last of them writes the text
    writing = nested(view, models[-1])[0] if models else text
    spec = ModelSpec(
        model_type=model_type,
        layers=layers,
        hidden_size=_hidden_size(text, layers),
        vocab_size=writing.optional("vocab_size"),
        dtype=_dtype(view, text),
        max_position_embeddings=writing.optional("max_position_embeddings"),
        encoder_tokens=_encoder_tokens(whole, view, text, layers),
        tie_word_embeddings=whole.config.tied(view, text),
        assumptions=_assumptions(view, text, layers) if assumed else (),
        origins=view.origins,
    )
    return Reading(spec=spec, architecture=architecture, view=view, text=text, foreign=foreign)


def _assumptions(
    view: ConfigView, text: ConfigView, layers: tuple[Layer, ...]
) -> tuple[Assumption, ...]:
    from .assumptions import assumptions

    return assumptions(view, text, layers)


def _type_source(given: Mapping[str, Any], model_type: str, where: str) -> str:
    if given.get("model_type") == model_type:
        return where
    named = class_name(given)
    return f"derived: architectures ({named})" if named else "derived: other keys of the file"


def _model_type(config: Mapping[str, Any], where: str) -> str:
    found = own_type(config, where) or type_by_class(config)
    if found is not None:
        return found
    raise InvalidConfigError(
        f"{where}: no model_type, and architectures does not tell it: this is not the config.json"
        " of a transformers model"
    )


def _language_model(view: ConfigView, whole: Architecture) -> tuple[ConfigView, Architecture]:
    """The config of the language model, which a multimodal model nests, and its architecture with
    what the wrapper says of it."""
    key = whole.config.text
    if key is None:
        return view, whole
    text, inner = nested(view, key, fills=whole.config.fills_text)
    for name, source in whole.config.written.items():
        part, _, own = source.partition(".")
        value = view.child(part).integer(own)
        text = text.overridden({name: value})
        view.note(name, value, f"derived: {source}")
    if text is not view and whole.tensors is not None:
        inner = replace(inner, tensors=whole.tensors)
    if whole.stacks:
        inner = replace(inner, stacks=whole.stacks)
    if is_grouped(view.model_type):
        from .grouped import with_key_value_heads

        inner = with_key_value_heads(inner, view)
    return text, inner


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


def _encoder_tokens(
    whole: Architecture, view: ConfigView, inner: ConfigView, layers: tuple[Layer, ...]
) -> int:
    crosses = any(_keeps_encoder(mixer) for layer in layers for mixer in layer.mixers)
    if not crosses or _decodes_alone(view, inner, layers):
        return 0
    return _longest_encoding(whole, view, inner)


def _decodes_alone(view: ConfigView, inner: ConfigView, layers: tuple[Layer, ...]) -> bool:
    """Nothing encodes: a decoder of another model, whose cross-attention keeps something where a
    caller gives it the encoder's output."""
    encodes = inner is not view or view.config.get("vision_config") is not None
    return not encodes and all(layer.stack == "decoder" for layer in layers)


def _longest_encoding(whole: Architecture, view: ConfigView, inner: ConfigView) -> int:
    """How many tokens a cross-attention sees where nothing asks for a length: those of one image,
    or the longest text or sound that is encoded."""
    models = whole.config.models
    encoder, own = nested(view, models[0]) if models else (view, whole)
    if models:
        encoder.origins = {}  # what the decoder reads under the same names stands in the report
    if own.image is not None:
        try:
            tokens = own.image.tokens(encoder)
            return int(view.note("encoder_tokens", tokens, f"derived: {own.image.formula}"))
        except MissingValueError:
            pass  # a size of the image is not given
    for limit in ("max_source_positions", "max_position_embeddings"):
        length = (encoder if models else inner).optional(limit)
        if length is not None:
            return length
    return int(view.note("encoder_tokens", ASSUMED_ENCODING, ASSUMED_LENGTH))
