"""The matrices outside the mixers: embeddings, feed-forward, output head."""

from collections.abc import Iterator

from headcount.model.spec import Layer

from ..body.body import Body, Layers, once
from ..body.feed_forward import Experts, Mlp
from ..config_view import ConfigView
from .module import Kind, Module
from .names import FeedForwardNames


def body_modules(
    body: Body, view: ConfigView, layers: Layers, names: FeedForwardNames
) -> Iterator[Module]:
    """All but the head. Raises InvalidConfigError where a size is missing or impossible."""
    if body.vocabulary is not None:
        rows, columns = view.integer(body.vocabulary), body.token_width(view)
        yield Module("embed_tokens", "embedding", "embedding", rows, columns)
        per_layer = view.optional("hidden_size_per_layer_input", minimum=0)
        if per_layer:  # Gemma 3n and 4
            rows = view.integer("vocab_size_per_layer_input")
            width = per_layer * len(layers)
            yield Module("embed_tokens_per_layer", "embedding", "embedding", rows, width)
    yield from feed_forward_modules(body, view, once(layers), names)
    more, hidden = body.more(view, layers), view.integer("hidden_size")
    if body.idle_more(view, layers) and more:  # experts of another shape
        yield Module(f"layers.0.{names.experts}.0", "experts", "up", more // hidden, hidden, 1, 0)


def head_module(body: Body, view: ConfigView, parameters: int) -> Iterator[Module]:
    """The output head of so many parameters; none where it is tied."""
    if body.vocabulary is not None and parameters:
        width = body.token_width(view)
        yield Module("lm_head", "head", "head", parameters // width, width)


def feed_forward_modules(
    body: Body, view: ConfigView, layers: Layers, names: FeedForwardNames
) -> Iterator[Module]:
    experts = body.experts
    chosen = experts.layers(view, len(layers)) if experts else frozenset()
    hidden = view.integer("hidden_size")
    for layer in layers:
        is_sparse = experts is not None and layer.index in chosen
        if not is_sparse or (experts is not None and experts.beside_mlp):
            width = body.mlp.layer_width(view, layer)
            gated = body.mlp.is_gated(view)
            yield from _mlp(layer, "mlp", names.mlp, names.leaves, hidden, width, gated)
        if is_sparse and experts is not None:
            yield from _experts(experts, body.mlp, view, layer, names)


def _mlp(
    layer: Layer,
    kind: Kind,
    path: str,
    leaves: tuple[str, str, str],
    hidden: int,
    width: int,
    gated: bool,
    count: int = 1,
) -> Iterator[Module]:
    if not width or not count:
        return
    at, (gate, up, down) = f"layers.{layer.stored_as}.{path}", leaves
    number = layer.stored_as
    if gated:
        yield Module(f"{at}.{gate}", kind, "gate", width, hidden, count, number)
    yield Module(f"{at}.{up}", kind, "up", width, hidden, count, number)
    yield Module(f"{at}.{down}", kind, "down", hidden, width, count, number)


def _experts(
    experts: Experts, mlp: Mlp, view: ConfigView, layer: Layer, names: FeedForwardNames
) -> Iterator[Module]:
    sizes, hidden = experts.sizes(view), view.integer("hidden_size")
    at, number = f"layers.{layer.stored_as}", layer.stored_as
    if experts.router and sizes.experts:
        yield Module(
            f"{at}.{names.router}", "router", "router", sizes.experts, hidden, layer=number
        )
    yield from _mlp(
        layer,
        "experts",
        f"{names.experts}.0",
        names.expert_leaves,
        sizes.inputs or hidden,
        sizes.width,
        experts.gated,
        sizes.experts,
    )
    shared = (names.shared, names.leaves, hidden, sizes.shared_width, mlp.is_gated(view))
    yield from _mlp(layer, "shared experts", *shared)
    if sizes.inputs:
        for part, rows, columns in (
            ("fc1_latent_proj", sizes.inputs, hidden),
            ("fc2_latent_proj", hidden, sizes.inputs),
        ):
            path = f"{at}.{names.experts.rpartition('.')[0] or 'mlp'}.{part}"
            yield Module(path, "mlp", "latent", rows, columns, layer=number)
