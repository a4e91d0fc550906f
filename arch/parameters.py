"""The parameters of a whole model that lie outside its audited attention, from the config alone."""

from typing import NamedTuple

from .architecture import Architecture, CountsBody
from .body.body import NO_NORM, Body, Layers, describes
from .body.towers import Wrapper
from .body.uncounted import no_body, other_layers
from .built_classes import BuiltClass, built_class
from .config_view import ConfigView
from .registry import architecture_of


def other_parameters(
    view: ConfigView, model_type: str, layers: Layers, text: ConfigView | None = None, *, tied: bool
) -> int:
    """Recurrent mixers, embeddings, feed-forward, norms, heads and towers, so that
    `spec.attention_parameters + other_parameters(...)` is what transformers builds, tied matrices
    once. The class is the one that `architectures` names, or else the usual one of the type; one
    that the body does not describe is counted against the base class (`built_classes`).

    `tied`: the output head is the embedding. `view` reads the whole config, `text` its language
    model where that is nested. Raises UncountedError where the model is not described: an unknown
    type or class, a tower that is not counted; InvalidConfigError where a size is
    missing or impossible.
    """
    found = architecture_of(model_type)
    whole = found.body if found else None
    named = built_class(view)
    if named is not None and named.own_layers and not _describes(whole, named):
        raise other_layers(named.name, named.base)
    if whole is None:
        raise no_body(model_type, found.uncounted if found else None)
    if named is not None and not _describes(whole, named):
        base = view.overridden({"architectures": [named.base]})
        return other_parameters(base, model_type, layers, text, tied=tied) + named.more(view)
    if not isinstance(whole, Wrapper):
        return whole.parameters(view, layers, tied=tied) + _recurrent(layers)
    body = _text_body(view, found)
    if text is None or not isinstance(body, Body):
        raise no_body(text.model_type if text else model_type, None)
    return whole.parameters(view, text, body, layers, tied=tied) + _recurrent(layers)


def _describes(body: CountsBody | Wrapper | None, named: BuiltClass) -> bool:
    """Whether the body itself has the head of the class, which builds all of its stacks."""
    return body is not None and not named.without and describes(body.classes, named.name)


def idle_parameters(
    view: ConfigView, model_type: str, layers: Layers, text: ConfigView | None = None
) -> int | None:
    """Parameters of experts that one token does not visit: the total less these are the active
    ones, embeddings included. 0 for a model without experts, None where the type has no body."""
    found = architecture_of(model_type)
    body = found.body if found else None
    nested = isinstance(body, Wrapper)
    if isinstance(body, Wrapper):
        body = _text_body(view, found)
    if body is None or isinstance(body, Wrapper):
        return None
    return body.idle(text if nested and text else view, layers)


def _body(model_type: str) -> CountsBody | Wrapper | None:
    found = architecture_of(model_type)
    return found.body if found else None


def _recurrent(layers: Layers) -> int:
    """Mixers that `spec.attention_parameters` leaves out."""
    mixers = (mixer for layer in layers for mixer in layer.mixers if mixer.kind == "recurrent")
    return sum(mixer.parameters().total for mixer in mixers)


def _text_body(view: ConfigView, whole: Architecture | None) -> CountsBody | Wrapper | None:
    """The body of the nested language model: the file names its type, or the wrapper's class."""
    key = (whole.config.text if whole else None) or "text_config"
    for config in (view.config, view.defaults):
        nested = config.get(key)
        if isinstance(nested, dict) and isinstance(nested.get("model_type"), str):
            return _body(nested["model_type"])
    return None


class Expected(NamedTuple):
    """Sizes outside attention that headers can be held against, as far as a body says them.

    `mlp_widths` maps (stack, layer index) to the width of a dense MLP, `positions` is the rows of
    the one table of learned positions.
    """

    mlp_widths: dict[tuple[str, int], int]
    positions: int | None
    final_norm: bool


def expected_sizes(view: ConfigView, model_type: str, layers: Layers) -> Expected:
    """The sizes of the language model that `view` reads; empty where no body of a common model
    describes it, since only their tensors' names are known well enough to be held against it."""
    body, named = _body(model_type), built_class(view)
    if not isinstance(body, Body) or not body.named or body.vocabulary is None:
        return Expected({}, None, False)
    if named is not None and named.may_lack_tokens:
        return Expected({}, None, False)
    rows = [view.integer(name) + body.position_offset for name in body.positions]
    final = body.final_norms if isinstance(body.final_norms, int) else body.final_norms(view)
    return Expected(
        mlp_widths={}
        if body.experts
        else {(layer.stack, layer.index): body.mlp.layer_width(view, layer) for layer in layers},
        positions=rows[0] if len(rows) == 1 else None,
        final_norm=final > 0 and body.norm != NO_NORM and view.flag(body.norm_if),
    )
