"""The feed-forward half of a layer: one MLP, or experts behind a router.

Counts are weights and biases. h is the hidden size, w the width of the MLP or of one expert: a
plain MLP holds 2*h*w weights, a gated one (a second matrix beside the first) 3*h*w.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InvalidConfigError
from ..spec import Layer
from .view import ConfigView

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
        """The same MLP with another width."""
        gated = self.gated if isinstance(self.gated, bool) else self.gated(view)
        hidden = view.integer("hidden_size")
        return matrices(hidden, width, gated=gated, bias=view.flag(self.bias))

    def layer_width(self, view: ConfigView, layer: Layer) -> int:
        """Columns of the MLP's inner matrix in one layer."""
        if not isinstance(self.width, str):
            return self.width(view, layer)
        name = self.width.format(stack=layer.stack)
        if self.times is not None and view.get(name) is None:
            return self.times * view.integer("hidden_size")
        return per_layer(view, name, layer.index)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """A router over gated experts, and MLPs that every token passes beside them.

    `count`, `per_token` and `width` are keys, found in the nested object `inside` where that is
    given. `shared` is how many experts are always on, or the key that says it; they form one MLP
    of `shared_width`, or of as many expert widths. `correction`: the router learns one more number
    per expert. `beside_mlp`: the dense MLP stays, too.
    """

    count: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    layers: LayerRule = lambda view, count: frozenset(range(count))
    bias: bool = False
    correction: bool = False
    shared: int | str = 0
    shared_width: str | None = None
    shared_gate: bool = False
    beside_mlp: bool = False
    inside: str | None = None

    def parameters(self, view: ConfigView, mlp: Mlp, layer: Layer) -> int:
        hidden, holder = view.integer("hidden_size"), self._holder(view)
        count = holder.integer(self.count)
        router = count * (hidden + self.bias + self.correction)
        beside = mlp.parameters(view, layer) if self.beside_mlp else 0
        return count * self._one(view) + router + self._shared(view, mlp) + beside

    def idle(self, view: ConfigView, layer: Layer) -> int:
        """Parameters of the experts that a token does not visit."""
        holder = self._holder(view)
        visited = per_layer(holder, self.per_token, layer.index)
        return max(0, holder.integer(self.count) - visited) * self._one(view)

    def _holder(self, view: ConfigView) -> ConfigView:
        return view.child(self.inside) if self.inside else view

    def _one(self, view: ConfigView) -> int:
        width = self._holder(view).integer(self.width)
        return matrices(view.integer("hidden_size"), width, gated=True, bias=self.bias)

    def _shared(self, view: ConfigView, mlp: Mlp) -> int:
        count = self.shared
        if isinstance(count, str):
            count = view.optional(count, minimum=0) or 0
        if not count:
            return 0
        width = view.integer(self.shared_width or self.width)
        gate = view.integer("hidden_size") if self.shared_gate else 0
        return mlp.of_width(view, count * width) + gate


def after_dense(view: ConfigView, count: int) -> frozenset[int]:
    """All but the first `first_k_dense_replace` layers (DeepSeek, GLM)."""
    return frozenset(range(view.optional("first_k_dense_replace", minimum=0) or 0, count))


def after_dense_every(view: ConfigView, count: int) -> frozenset[int]:
    """Of these every `moe_layer_freq`-th (DeepSeek's first model; later classes ignore the key)."""
    step = view.optional("moe_layer_freq") or 1
    return frozenset(i for i in after_dense(view, count) if i % step == 0)


def sparse_steps(view: ConfigView, count: int) -> frozenset[int]:
    """Every `decoder_sparse_step`-th layer but those of `mlp_only_layers` (Qwen)."""
    if not view.optional("num_experts", minimum=0):
        return frozenset()
    step = view.optional("decoder_sparse_step") or 1
    dense = view.integers("mlp_only_layers") or ()
    return frozenset(i for i in range(count) if (i + 1) % step == 0) - frozenset(dense)


def between(view: ConfigView, count: int) -> frozenset[int]:
    """From `moe_layer_start_index` to `moe_layer_end_index` every interval-th layer (ERNIE)."""
    step = view.optional("moe_layer_interval") or 1
    first = view.optional("moe_layer_start_index", minimum=0) or 0
    last = view.optional("moe_layer_end_index", minimum=-1)
    last = count - 1 if last is None or last < 0 else last
    return frozenset(i for i in range(count) if (i + 1) % step == 0 and first <= i <= last)


def listed(view: ConfigView, count: int) -> frozenset[int]:
    """`moe_layers`, or every `interleave_moe_layer_step`-th layer (Llama 4)."""
    given = view.integers("moe_layers")
    if given is not None:
        return frozenset(given) & frozenset(range(count))
    step = view.optional("interleave_moe_layer_step") or 1
    return frozenset(range(step - 1, count, step))


def if_flag(name: str) -> LayerRule:
    """All layers if the flag `name` is set, else none."""
    return lambda view, count: frozenset(range(count)) if view.flag(name) else frozenset()


def four_times_hidden(view: ConfigView, layer: Layer) -> int:
    """A class that reads no width (BLOOM, MPT)."""
    return 4 * view.integer("hidden_size")
