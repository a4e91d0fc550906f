"""The matrices of a whole model, by its config or, where that is not described, by its layers."""

from collections.abc import Iterator

from headcount.model.spec import ModelSpec

from ..body.body import Body, find_head
from ..body.towers import Part, Wrapper
from ..body.uncounted import UncountedError
from ..config_view import ConfigView
from ..our_types import base_type
from ..read_config import Reading
from ..registry import architecture_of
from ..tensors.names import LLAMA_NAMES
from .module import Inventory, Module
from .names import FeedForwardNames
from .of_bodies import body_modules, head_module
from .of_mixers import mixer_modules
from .prediction import prediction_layers

_OF_TEXT = ("model.", "backbone.", "")
_OF_SEVERAL = ("model.language_model.", "language_model.model.", "language_model.", *_OF_TEXT)


def inventory_of(reading: Reading) -> Inventory | None:
    """What `reading` describes; None where no body does. Raises InvalidConfigError for an
    impossible size."""
    total = reading.parameters()
    body, wrapper = _bodies(reading)
    if total is None or body is None:
        return None
    names = reading.architecture.feed_forward
    modules = tuple(_modules(reading, body, wrapper, names))
    others = total - sum(module.parameters for module in modules)
    if others < 0:  # what no one matrix is made of was cut too large
        return None
    inventory = Inventory(
        modules=modules,
        others=others,
        prefixes=_OF_SEVERAL if reading.nests else _OF_TEXT,
    )
    return prediction_layers(inventory, reading)


def inventory_of_spec(spec: ModelSpec, parameters: int) -> Inventory:
    """Of a model of so many parameters, of which only its layers are known: what is neither
    attention nor an embedding is taken for the MLPs."""
    modules = [m for layer in spec.layers for m in mixer_modules(layer, LLAMA_NAMES)]
    vocabulary, hidden = spec.vocab_size, spec.hidden_size
    if vocabulary:
        modules.append(Module("embed_tokens", "embedding", "embedding", vocabulary, hidden))
        if not spec.tie_word_embeddings:
            modules.append(Module("lm_head", "head", "head", vocabulary, hidden))
    known = sum(module.parameters for module in modules)
    norms = sum(layer.parameters().norm for layer in spec.layers)
    rows = (parameters - known - norms) // hidden
    if rows < 0:
        return Inventory(modules=(), others=parameters)
    if rows:
        modules.append(Module("layers.0.mlp.up_proj", "mlp", "up", rows, hidden, 1, 0))
    return Inventory(modules=tuple(modules), others=parameters - known - rows * hidden)


def _bodies(reading: Reading) -> tuple[Body | None, Wrapper | None]:
    """The language model's body, and the wrapper around it. None for one that is counted whole."""
    found = architecture_of(base_type(reading.spec.model_type))
    whole = found.body if found else None
    if isinstance(whole, Body):
        return whole, None
    if isinstance(whole, Wrapper) and reading.nests:
        inner = architecture_of(base_type(reading.text.model_type))
        if inner is not None and isinstance(inner.body, Body):
            return inner.body, whole
    return None, None


def _modules(
    reading: Reading, body: Body, wrapper: Wrapper | None, names: FeedForwardNames
) -> Iterator[Module]:
    view, text, spec = reading.view, reading.text, reading.spec
    tensors = reading.names()
    for layer in spec.layers:
        table = tensors.get(layer.stored_in, LLAMA_NAMES)
        yield from mixer_modules(layer, table)
    yield from body_modules(body, text, spec.layers, names)
    yield from head_module(body, text, _head_parameters(reading, body, wrapper))
    for part in wrapper.parts if wrapper else ():
        yield from _tower(part, view, text)


def _head_parameters(reading: Reading, body: Body, wrapper: Wrapper | None) -> int:
    """0 for a class that is counted against the base class: what it holds more is of many kinds."""
    classes, default = (
        (wrapper.classes, next(iter(wrapper.classes)))
        if wrapper
        else (body.classes, body.default_class)
    )
    try:
        head = find_head(classes, reading.view, default)
    except UncountedError:
        return 0
    return head(body, reading.text, reading.spec.tie_word_embeddings)


def _tower(part: Part, view: ConfigView, text: ConfigView) -> Iterator[Module]:
    """A tower as one matrix: quantisers treat it as one."""
    count = part.parameters(view, text)
    name = "audio_tower" if "audio" in part.key else "vision_tower"
    if count:
        width = text.integer("hidden_size")
        yield Module(name, "tower", "tower", count // width, width)
