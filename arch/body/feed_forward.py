"""The feed-forward half of a layer: one MLP, or experts behind a router.

Counts are weights and biases. h is the hidden size, w the width of the MLP or of one expert: a
plain MLP holds 2*h*w weights, a gated one (a second matrix beside the first) 3*h*w.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Layer

from ..config_view import ConfigView

# Which layers hold experts: (view, number of layers) -> their indices.
LayerRule = Callable[[ConfigView, int], frozenset[int]]


def matrices(hidden: int, width: int, *, gated: bool, bias: bool = False) -> int:
    """Parameters of one MLP."""
    inner = 2 if gated else 1
    return (inner + 1) * hidden * width + (inner * width + hidden if bias else 0)


def per_layer(view: ConfigView, name: str, index: int, *, minimum: int = 1) -> int:
    """An integer that the config gives once for all layers, or as a list with one for each."""
    if not isinstance(view.get(name), list):
        return view.integer(name, minimum=minimum)
    values = view.integers(name) or ()
    if index >= len(values) or values[index] < minimum:
        raise InvalidConfigError(f"{view.where}: {name} has no valid entry for layer {index}")
    return values[index]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mlp:
    """`width` is a config key, where `{stack}` stands for encoder or decoder, or a callable.

    `times` is the multiple of the hidden size that applies when the key is absent. `gated` and
    `bias` are constants or what decides them.
    """

    width: str | Callable[[ConfigView, Layer], int] = "intermediate_size"
    times: int | None = None
    gated: bool | Callable[[ConfigView], bool] = True
    bias: bool | str = False

    def parameters(self, view: ConfigView, layer: Layer) -> int:
        return self.of_width(view, self.layer_width(view, layer))

    def of_width(self, view: ConfigView, width: int) -> int:
        """The same MLP with another width, 0 where there is none."""
        if not width:
            return 0
        hidden = view.integer("hidden_size")
        return matrices(hidden, width, gated=self.is_gated(view), bias=view.flag(self.bias))

    def is_gated(self, view: ConfigView) -> bool:
        """Whether a second matrix stands beside the first."""
        return self.gated if isinstance(self.gated, bool) else self.gated(view)

    def layer_width(self, view: ConfigView, layer: Layer) -> int:
        """Columns of the MLP's inner matrix in one layer."""
        if not isinstance(self.width, str):
            return self.width(view, layer)
        name = self.width.format(stack=layer.stack)
        if self.times is not None and view.get(name) is None:
            return self.times * view.integer("hidden_size")
        return per_layer(view, name, layer.index)


class ExpertSizes(NamedTuple):
    """So many `experts` of `width`, which read `inputs` (None: the hidden size), and one MLP of
    `shared_width` (0: none) that is always on."""

    experts: int
    width: int
    inputs: int | None
    shared_width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """A router over gated experts, and MLPs that every token passes beside them.

    `count`, `per_token` and `width` (or what gives it) are keys, found in the nested object
    `inside` where that is given. `gated`: an expert is a gated MLP. `shared` is how many experts
    are always on, or the key that says it; they form one MLP of `shared_width`, or of as many
    expert widths. `correction`: the router learns one more number per expert; without `router` it
    is counted elsewhere. `inputs` is the key of a smaller width that the experts work in, between
    two projections for them all. `beside_mlp`: the dense MLP stays, too. `can_be_none`: a count of
    0 leaves the shared MLP alone.
    """

    count: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    width: str | Callable[[ConfigView], int] = "moe_intermediate_size"
    layers: LayerRule = lambda view, count: frozenset(range(count))
    gated: bool = True
    bias: bool = False
    correction: bool = False
    router: bool = True
    inputs: str | None = None
    shared: int | str = 0
    shared_width: str | None = None
    shared_gate: bool = False
    beside_mlp: bool = False
    can_be_none: bool = False
    inside: str | None = None

    def parameters(self, view: ConfigView, mlp: Mlp, layer: Layer) -> int:
        hidden, holder = view.integer("hidden_size"), self._holder(view)
        count = self._count(holder)
        router = count * (hidden + self.bias + self.correction) if self.router else 0
        beside = mlp.parameters(view, layer) if self.beside_mlp else 0
        always = router + beside + self._shared(view, mlp) + self._projections(view, mlp)
        return count * self._one(view) + always

    def idle(self, view: ConfigView, layer: Layer) -> int:
        """Parameters of the experts that a token does not visit."""
        holder = self._holder(view)
        count = self._count(holder)
        visited = per_layer(holder, self.per_token, layer.index) if count else 0
        return max(0, count - visited) * self._one(view)

    def sizes(self, view: ConfigView) -> ExpertSizes:
        """Raises InvalidConfigError."""
        holder = self._holder(view)
        return ExpertSizes(
            experts=self._count(holder),
            width=self._width(holder),
            inputs=self._inputs(view),
            shared_width=self._shared_width(view),
        )

    def _count(self, holder: ConfigView) -> int:
        return holder.integer(self.count, minimum=0 if self.can_be_none else 1)

    def _holder(self, view: ConfigView) -> ConfigView:
        return view.child(self.inside) if self.inside else view

    def _width(self, holder: ConfigView) -> int:
        """Of one expert."""
        if not isinstance(self.width, str):
            return self.width(holder)
        return per_layer(holder, self.width, 0)

    def _one(self, view: ConfigView) -> int:
        return matrices(
            self._inputs(view) or view.integer("hidden_size"),
            self._width(self._holder(view)),
            gated=self.gated,
            bias=self.bias,
        )

    def _inputs(self, view: ConfigView) -> int | None:
        return view.optional(self.inputs) if self.inputs else None

    def _projections(self, view: ConfigView, mlp: Mlp) -> int:
        """From the hidden size to the width that the experts work in, and back."""
        hidden, inner = view.integer("hidden_size"), self._inputs(view)
        if inner is None:
            return 0
        return 2 * hidden * inner + (hidden + inner if view.flag(mlp.bias) else 0)

    def _shared(self, view: ConfigView, mlp: Mlp) -> int:
        width = self._shared_width(view)
        if not width:
            return 0
        gate = view.integer("hidden_size") if self.shared_gate else 0
        return mlp.of_width(view, width) + gate

    def _shared_width(self, view: ConfigView) -> int:
        """Of all that are always on, side by side."""
        count = self.shared
        if isinstance(count, str):
            count = view.optional(count, minimum=0) or 0
        if not count:
            return 0
        if self.shared_width:  # 0: there is none
            return count * per_layer(view, self.shared_width, 0, minimum=0)
        return count * self._width(view)


def after_dense(view: ConfigView, count: int) -> frozenset[int]:
    """All but the first `first_k_dense_replace` layers (DeepSeek, GLM)."""
    return after("first_k_dense_replace")(view, count)


def sparse_steps(view: ConfigView, count: int) -> frozenset[int]:
    """Every `decoder_sparse_step`-th layer but those of `mlp_only_layers` (Qwen)."""
    if not view.optional("num_experts", minimum=0):
        return frozenset()
    step = view.optional("decoder_sparse_step") or 1
    dense = view.integers("mlp_only_layers") or ()
    return frozenset(i for i in range(count) if (i + 1) % step == 0) - frozenset(dense)


def typed(otherwise: LayerRule) -> LayerRule:
    """`mlp_layer_types` names the kind of each layer; `otherwise` applies where it is absent."""

    def rule(view: ConfigView, count: int) -> frozenset[int]:
        given = view.strings("mlp_layer_types")
        if given is None:
            return otherwise(view, count)
        return frozenset(i for i, kind in enumerate(given[:count]) if kind == "sparse")

    return rule


def after(first: int | str, otherwise: int = 0) -> LayerRule:
    """All but the first so many layers: a constant of the class, or the key that says it, with what
    applies in its absence."""

    def rule(view: ConfigView, count: int) -> frozenset[int]:
        given = first if isinstance(first, int) else view.optional(first, minimum=0)
        return frozenset(range(otherwise if given is None else given, count))

    return rule


# The config lists the layers, or says how many at the start are dense; else the first one is.
after_first_dense = typed(after("first_k_dense_replace", 1))


def flagged_layers(name: str) -> LayerRule:
    """The layers that the list `name` marks with 1; all where it is absent."""

    def rule(view: ConfigView, count: int) -> frozenset[int]:
        flags = view.integers(name)
        return frozenset(i for i in range(count) if flags is None or (i < len(flags) and flags[i]))

    return rule


def if_flag(name: str) -> LayerRule:
    """All layers if the flag `name` is set, else none."""
    return lambda view, count: frozenset(range(count)) if view.flag(name) else frozenset()


def four_times_hidden(view: ConfigView, layer: Layer) -> int:
    """A class that reads no width (BLOOM, MPT)."""
    return 4 * view.integer("hidden_size")
