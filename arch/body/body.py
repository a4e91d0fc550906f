"""What a model holds outside attention, as data: embeddings, feed-forward, norms, output head."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headcount.model.spec import Layer

from ..attention.drafts import drafts
from ..config_view import ConfigView
from .feed_forward import Experts, Mlp
from .uncounted import unknown_class

# Vectors of the hidden size that one norm holds.
NO_NORM, WEIGHT, WEIGHT_AND_BIAS = 0, 1, 2

Layers = tuple[Layer, ...]
Head = Callable[["Body", ConfigView, bool], int]


def no_head(body: "Body", view: ConfigView, tied: bool) -> int:
    """A bare model."""
    return 0


def lm_head(body: "Body", view: ConfigView, tied: bool) -> int:
    """Logits over the vocabulary. A tied matrix is the embedding, which is counted there."""
    vocab = view.integer("vocab_size")
    weight = 0 if tied else vocab * body.token_width(view)
    return weight + (vocab if view.flag(body.head_bias) else 0)


def reward_head(labels: int) -> Head:
    """A linear layer of the hidden size, and one to the labels (Qwen2.5-Math-RM and -PRM)."""

    def parameters(body: "Body", view: ConfigView, tied: bool) -> int:
        hidden = view.integer("hidden_size")
        return (hidden + 1) * (hidden + labels)

    return parameters


def value_head(body: "Body", view: ConfigView, tied: bool) -> int:
    """One number for each token (InternLM2's reward models)."""
    return view.integer("hidden_size")


def nothing_more(view: ConfigView, layers: Layers) -> int:
    return 0


def one_per_mixer(view: ConfigView, layer: Layer) -> int:
    """Norms of an encoder-decoder's layer: one per attention and one for the MLP."""
    return len(layer.mixers) + 1


_HEADED = re.compile(r"For[A-Z]|Reward|Critic|Value|Score|Rank|Classif|Head")
# Endings of class names that transformers' decoders have, and the head that each builds. A class
# with another ending, such as a classifier, has a head that nothing here describes.
DECODER_CLASSES: Mapping[str, Head | None] = {
    "ForCausalLM": lm_head,
    "LMHeadModel": lm_head,
    "Model": no_head,
    "DoubleHeadsModel": None,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """One shape. A field is a constant, the config key that decides it, or a callable.

    `norm` is what one norm holds, `norms` how many a layer has, `final_norms` and
    `embedding_norms` how many stand outside layers. `vocabulary` is None for a tower that sees no
    tokens; `embedding_width` differs from the hidden size in OPT-350m, which then has a projection
    at either end. `positions` names one learned table per entry, each with `position_offset` more
    rows. `more` counts the rest, and `idle_more` what of it a token does not visit. `named`: its
    tensors have the names by which headers are held against these sizes (final norm, MLP,
    positions). `classes` maps the ending of a class's name to its head; `default_class` applies
    when the config names none.
    """

    norm: int = WEIGHT
    norm_if: bool | str = True
    norms: int | Callable[[ConfigView, Layer], int] = 2
    final_norms: int | Callable[[ConfigView], int] = 1
    embedding_norms: int = 0
    vocabulary: str | None = "vocab_size"
    embedding_width: str = "hidden_size"
    positions: tuple[str, ...] = ()
    position_offset: int = 0
    token_types: str | None = None
    mlp: Mlp = field(default_factory=Mlp)
    experts: Experts | None = None
    more: Callable[[ConfigView, Layers], int] = nothing_more
    idle_more: Callable[[ConfigView, Layers], int] = nothing_more
    head_bias: bool | str = False
    named: bool = False
    classes: Mapping[str, Head | None] = field(default_factory=lambda: DECODER_CLASSES)
    default_class: str = "ForCausalLM"

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        """All but attention. Raises UncountedError when `architectures` names a class with an
        unknown head."""
        head = find_head(self.classes, view, self.default_class)
        return self.trunk(view, layers) + head(self, view, tied)

    def head(self, *endings: str) -> Head:
        """The head of the first class whose name ends in one of these, whatever the config names.

        Raises UncountedError."""
        for ending in endings:
            for name, head in self.classes.items():
                if name.endswith(ending) and head is not None:
                    return head
        raise unknown_class(endings)

    def trunk(self, view: ConfigView, layers: Layers) -> int:
        """All but attention and the head."""
        layers = once(layers)
        norm = self.norm * view.integer("hidden_size") if view.flag(self.norm_if) else 0
        final = self.final_norms if isinstance(self.final_norms, int) else self.final_norms(view)
        norms = final + self.embedding_norms + sum(self._norms(view, layer) for layer in layers)
        return (
            self._embeddings(view)
            + norms * norm
            + self._feed_forward(view, layers)
            + self.more(view, layers)
        )

    def token_width(self, view: ConfigView) -> int:
        """Columns of the token embedding and of the head that may be tied to it."""
        return view.optional(self.embedding_width) or view.integer("hidden_size")

    def idle(self, view: ConfigView, layers: Layers) -> int:
        """Parameters of the experts that one token does not visit."""
        layers = once(layers)
        if self.experts is None:
            return self.idle_more(view, layers)
        chosen = self.experts.layers(view, len(layers))
        idle = sum(self.experts.idle(view, layer) for layer in layers if layer.index in chosen)
        return idle + self.idle_more(view, layers)

    def _norms(self, view: ConfigView, layer: Layer) -> int:
        return self.norms if isinstance(self.norms, int) else self.norms(view, layer)

    def _embeddings(self, view: ConfigView) -> int:
        hidden = view.integer("hidden_size")
        rows = [view.integer(name) + self.position_offset for name in self.positions]
        if self.token_types is not None:
            rows.append(view.integer(self.token_types))
        if self.vocabulary is None:
            return sum(rows) * hidden
        width = self.token_width(view)
        projections = 2 * width * hidden if width != hidden else 0
        return sum(rows) * hidden + view.integer(self.vocabulary) * width + projections

    def _feed_forward(self, view: ConfigView, layers: Layers) -> int:
        experts = self.experts
        chosen = experts.layers(view, len(layers)) if experts else frozenset()
        return sum(
            experts.parameters(view, self.mlp, layer)
            if experts and layer.index in chosen
            else self.mlp.parameters(view, layer)
            for layer in layers
        )


def once(layers: Layers) -> Layers:
    """The layers without those that run the modules of another one again."""
    return tuple(
        layer
        for layer in layers
        if not layer.mixers or any(mixer.parameters().total for mixer in layer.mixers)
    )


def find_head(classes: Mapping[str, Head | None], view: ConfigView, default_class: str) -> Head:
    """The head of the first class in `architectures`, by the longest ending that fits.

    Raises UncountedError where nothing describes it."""
    names = view.strings("architectures") or (default_class,)
    head = _head_of(classes, names[0])
    if head is None:
        raise unknown_class(names)
    return head


def describes(classes: Mapping[str, Head | None], name: str) -> bool:
    """Whether `classes` has the head of the class `name`."""
    return _head_of(classes, name) is not None


def _head_of(classes: Mapping[str, Head | None], name: str) -> Head | None:
    """None, too, for what speaks of a head in front of the ending, as `…ForRewardModel` does, and
    for what drafts, as `EagleLlamaForCausalLM` does."""
    if drafts(name):
        return None
    fitting = [
        ending
        for ending in classes
        if name.endswith(ending) and not _HEADED.search(name.removesuffix(ending))
    ]
    return classes[max(fitting, key=len)] if fitting else None
