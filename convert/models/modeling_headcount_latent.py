"""Transformers classes whose cache holds one latent a token and layer, in place of keys and values.

Self-contained together with `modeling_headcount.py` and `headcount_factored.py`: all three lie
beside the weights that they load, and need torch and transformers only.
`from_pretrained(folder, trust_remote_code=True)` finds them through `auto_map` of config.json.

`LatentLlamaForCausalLM` is `LlamaForCausalLM` with three changes:

- `latent_proj`, beside the projections of k and v, makes the latent c = A x of what they read, and
  they make keys and values of it: k = U_k c and v = U_v c, with the biases that they had;
- what reaches the cache is the latent. Of tokens that came before, keys and values are rebuilt from
  it, and the class itself norms and rotates the keys, by its own code and at their own positions.
  Where it stores what the projections give as it is, attention reads the latents themselves;
- the config says which projections these are, in `latent_projections`, and how large the latents of
  each layer are, in `latent_ranks`.

Masks, attention kernels and generation are those of the class, which sees keys and values as ever.

A position is what the class was given for a new token. For those before it the positions before
that are taken, one apart, as generation counts them; what is masked may stand anywhere. So rows
that are not padded at the left must not skip positions between two calls of one cache.
"""

import inspect
import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.pytorch_utils import Conv1D

from .headcount_factored import Factored
from .modeling_headcount import (
    CacheView,
    Family,
    Ours,
    named_in,
    reader_of_cache,
    show_cache,
    view_of,
)

PREFIX = "headcount_latent_"  # in front of the base class's model_type
_NAME = "Latent"  # in front of the base class's name
_ROTARY = re.compile("rotary|rope", re.IGNORECASE)  # in the name of a class that computes rotations


@dataclass(frozen=True)
class Rows:
    """Where the rows of k or v are in what `projection` gives, which is at `name` in its attention:
    head h is at `first` + h * `step`; None: its heads lie side by side."""

    projection: nn.Module
    name: str
    part: str
    first: int = 0
    step: int | None = None

    def linear(self, attention: nn.Module) -> nn.Linear | None:
        """What makes these rows of a latent. None: an adapter does, or what is not known."""
        if attention.get_submodule(self.name) is not self.projection:
            return None
        found: Any = self.projection
        if isinstance(found, FusedProjection):
            found = found.get_submodule(self.part)
        is_plain = type(found) in (nn.Linear, FromLatent) and not found._forward_hooks
        return found if is_plain else None

    def are_shown(self, given: torch.Tensor, seen: torch.Tensor) -> bool:
        """Whether `seen` [batch, heads, tokens, head_dim] shows these rows of what the projection
        has `given` [batch, tokens, rows], where they lie in memory: nothing was done to them."""
        head_dim = seen.shape[-1]
        step, width = self.step or head_dim, given.shape[-1]
        strides = (given.shape[1] * width, step, width, 1)
        places = zip(seen.shape, seen.stride(), strides, strict=True)
        start = given.data_ptr() + self.first * given.element_size()
        return (
            0 != start == seen.data_ptr()
            and given.is_contiguous()
            and all(size == 1 or stride == own for size, stride, own in places)
        )


@dataclass(eq=False)
class Latents:
    """Of one attention: `down` makes latents, `new` are those of the tokens of this call, and
    `whole` those of all tokens while keys and values of all are rebuilt. [batch, tokens, rank].

    `rows`: part -> where k and v are in what projections give, as far as they lie evenly; `given`:
    part -> what these gave in this call, until it is stored; `stays`: whether the class stored it
    as it is when it was last looked at."""

    down: nn.Module
    new: torch.Tensor | None = None
    whole: torch.Tensor | None = None
    rows: dict[str, Rows] = field(default_factory=dict)
    given: dict[str, torch.Tensor] = field(default_factory=dict)
    stays: bool = False

    def of(self, hidden: torch.Tensor) -> torch.Tensor:
        """What k and v are made of: the latents of `hidden`, or those of all tokens."""
        if self.whole is not None:
            return self.whole
        if self.new is None:
            self.new = self.down(hidden)
        return self.new

    def gives(self, parts: str, given: torch.Tensor) -> torch.Tensor:
        """`given`, remembered."""
        if self.whole is None and not torch.compiler.is_compiling():
            self.given.update(dict.fromkeys(parts, given))
        return given

    def forget(self) -> None:
        """What belongs to one call."""
        self.new = self.whole = None
        self.given = {}

    def look(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Notes whether these, which are to be stored, are what projections gave. What is compiled
        goes by what was noted before."""
        if torch.compiler.is_compiling():
            return
        seen = {"k": keys, "v": values}
        self.stays = all(
            part in self.given and part in self.rows
            and self.rows[part].are_shown(self.given[part], one)
            for part, one in seen.items()
        )  # fmt: skip
        self.given = {}

    def factored(self, attention: nn.Module, whole: torch.Tensor, heads: Any) -> Any:
        """Keys and values as factors of the latents `whole`; None: the class makes more of them.
        `heads`: the K/V heads of k and v."""
        if not self.stays:
            return None
        made: list[Any] = [self.rows[part].linear(attention) for part in "kv"]
        if any(one is None or one.weight.device != whole.device for one in made):
            return None
        return tuple(
            Factored(
                whole,
                one.weight.unflatten(0, (count, -1)),
                None if one.bias is None else one.bias.unflatten(0, (count, -1)),
            )
            for one, count in zip(made, heads, strict=True)
        )


class FromLatent(nn.Linear):
    """A projection of k or v that reads the latent."""

    latents: Latents
    part: str

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        given = nn.functional.linear(self.latents.of(hidden), self.weight, self.bias)
        return self.latents.gives(self.part, given)


class QueryProjection(nn.Linear):
    """A projection of q. While keys of all tokens are rebuilt nobody reads what it gives."""

    latents: Latents

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.latents.whole is not None:
            return _unread(hidden, self.out_features)
        return nn.functional.linear(hidden, self.weight, self.bias)


def _unread(hidden: torch.Tensor, width: int) -> torch.Tensor:
    """Zeros for every token, which take the memory of one. Within a token they lie side by side:
    Llama 4 reads them as complex numbers."""
    return hidden.new_zeros(width).expand(*hidden.shape[:-1], width)


class FusedProjection(nn.Module):
    """A projection of q, k and v in one, as three of which two read the latent. `order` are the
    parts as the class has them, `repeats` times in a row."""

    def __init__(self, latents: Latents, order: str, repeats: int, **parts: nn.Module) -> None:
        super().__init__()
        self.latents, self.order, self.repeats = latents, order, repeats
        for name, module in parts.items():
            setattr(self, name, module)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        latent = self.latents.of(hidden)
        made = {part: getattr(self, part)(latent) for part in self.order if part != "q"}
        if "q" in self.order:
            made["q"] = self._queries(hidden)
        blocks = [made[part].unflatten(-1, (self.repeats, -1)) for part in self.order]
        return self.latents.gives(self.order, torch.cat(blocks, dim=-1).flatten(-2))

    def _queries(self, hidden: torch.Tensor) -> torch.Tensor:
        query: Any = self.get_submodule("q")
        if self.latents.whole is not None:
            return _unread(hidden, query.out_features)
        made: torch.Tensor = query(hidden)
        return made


@dataclass(eq=False)
class Rotation:
    """A call of what computes rotations, and what it gave."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    def again(self, places: "Places") -> Any:
        """The same for all positions at `places`."""
        args = tuple(map(places.widened, self.args))
        kwargs = {name: places.widened(value) for name, value in self.kwargs.items()}
        return self.module.forward(*args, **kwargs)


@dataclass(eq=False)
class Rotations:
    """The last call of everything that computes rotations, for each kind of layer: what layers are
    given is told by what it is."""

    last: dict[Any, Rotation] = field(default_factory=dict)

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        kinds = tuple(v for v in (*args, *kwargs.values()) if isinstance(v, str))
        self.last[id(module), kinds] = Rotation(module, args, kwargs, output)

    def of(self, value: Any) -> Rotation | None:
        """The call that gave `value`."""
        return next((one for one in self.last.values() if one.output is value), None)


@dataclass(frozen=True)
class Places:
    """The places of all tokens of a cache: how many there are, of how many new ones, and which is
    the last of these (a tensor where the cache counts in one)."""

    count: int
    new: int
    last: Any

    def widened(self, value: Any) -> Any:
        """The positions of all tokens, from those of the new ones, [..., new]; anything else as it
        is."""
        if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
            return value
        if value.dim() == 0 or value.shape[-1] != self.new:
            return value
        away = torch.arange(self.count, device=value.device) - self.last
        places = torch.arange(self.new, device=value.device) + (self.last - self.new + 1)
        wide = (value[..., -1:] + away).clamp(min=0)
        return wide.index_copy(-1, places, value)


class _Rebuilt(Exception):
    """Keys and values of all tokens; ends a forward pass whose rest nobody needs."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values


class Catching(CacheView):
    """A cache that hands back what it should store."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raise _Rebuilt(keys, values)


class LatentCache(CacheView):
    """A cache as one attention sees it: what is stored are its latents, as keys of one head; what
    comes out are the keys and values of all tokens. It keeps nothing of its own."""

    def __init__(self, cache: Any, rebuilding: "_Rebuilding") -> None:
        super().__init__(cache)
        object.__setattr__(self, "_rebuilding", rebuilding)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the latents of the new tokens; [batch, heads, tokens, head_dim] of all."""
        latents: Latents = self._rebuilding.latents
        assert latents.new is not None
        new = latents.new[:, None]
        count = new.shape[2]
        end = self._cache.get_seq_length(layer) + count
        whole, _ = self._cache.update(new, new[..., :0], layer, *args, **kwargs)
        kept = whole.shape[2]
        latents.look(keys, values)
        if kept == count:  # there is nothing older, and the class has made these already
            return keys, values
        heads = keys.shape[1], values.shape[1]
        factored = latents.factored(self._rebuilding.attention, whole[:, 0], heads)
        if factored is not None:
            return factored  # type: ignore[no-any-return]
        last = (end.clamp(max=kept) if isinstance(end, torch.Tensor) else min(end, kept)) - 1
        rebuilt: tuple[torch.Tensor, torch.Tensor] = self._rebuilding.run(
            whole[:, 0], Places(count=kept, new=count, last=last), self._cache
        )
        return rebuilt


@dataclass(eq=False)
class _Rebuilding:
    """One call of an attention, by the names of its arguments, which can be made again for the keys
    and values of all tokens."""

    attention: nn.Module
    latents: Latents
    rotations: Rotations
    arguments: dict[str, Any]

    def run(
        self, whole: torch.Tensor, places: Places, cache: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the class makes of the latents `whole` [batch, tokens, rank] before it stores it."""
        wide = {name: self._widened(name, v, places, cache) for name, v in self.arguments.items()}
        hidden = next(iter(wide.values()))
        filling = hidden[:, :1].expand(-1, places.count, -1)  # nobody reads it
        wide = {name: filling if value is hidden else value for name, value in wide.items()}
        self.latents.whole = whole
        try:
            self.attention.forward(**wide)
        except _Rebuilt as found:
            return found.keys, found.values
        finally:
            self.latents.whole = None
        raise RuntimeError(f"{type(self.attention).__name__} stores no keys and values")

    def _widened(self, name: str, value: Any, places: Places, cache: Any) -> Any:
        if isinstance(value, Cache):
            return view_of(Catching, cache)
        rotation = None if value is None else self.rotations.of(value)
        if rotation is not None:
            return rotation.again(places)
        return places.widened(value) if name == "position_ids" else value


@dataclass(eq=False)
class _HideCache:
    """Forward hook before an attention: what it knows of an earlier call is gone, and it gets views
    of the caches among its arguments."""

    latents: Latents
    rotations: Rotations

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        self.latents.forget()
        names = inspect.signature(module.forward).parameters
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        rebuilding = _Rebuilding(module, self.latents, self.rotations, arguments)
        return (), {name: _view(value, rebuilding) for name, value in arguments.items()}


@dataclass(eq=False)
class _Forget:
    """Forward hook after an attention: its latents are gone, and views that it hands on become the
    caches again."""

    latents: Latents

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        self.latents.forget()
        return show_cache(module, args, output)


def _view(value: Any, rebuilding: _Rebuilding) -> Any:
    return view_of(LatentCache, value, rebuilding) if isinstance(value, Cache) else value


def keep_latents(model: Any, config: Any) -> None:
    """Lets the projections that `config.latent_projections` names read latents, wherever the model
    has them. A key is a tensor's module with `*` for the number of its layer, perhaps with the name
    of the base model in front; its value has the `parts` that the module makes. Raises ValueError
    if the model has none of them."""
    rotations = Rotations()
    held: dict[str, Latents] = {}
    for name, module in list(model.named_modules()):
        found = named_in(config.latent_projections, name)
        if found is not None:
            layer, made = found
            attention, parent = reader_of_cache(model, name), name.rpartition(".")[0]
            if attention not in held:
                held[attention] = Latents(_down(_width(module), config.latent_ranks[layer], module))
            if "k" in made["parts"]:
                model.get_submodule(parent).add_module("latent_proj", held[attention].down)
            replaced = _replaced(module, held[attention], made, config.latent_ranks[layer])
            held[attention].rows |= _rows(replaced, name[len(attention) + 1 :], made)
            setattr(model.get_submodule(parent), name.rpartition(".")[2], replaced)
        elif _ROTARY.search(type(module).__name__):
            module.register_forward_hook(rotations, with_kwargs=True)
    if not held:
        raise ValueError(
            f"{type(model).__name__} has none of the projections in config.latent_projections: "
            f"{', '.join(config.latent_projections or ()) or 'it names none'}"
        )
    for name, latents in held.items():
        attention = model.get_submodule(name)
        hide = _HideCache(latents, rotations)
        attention.register_forward_pre_hook(hide, with_kwargs=True)
        attention.register_forward_hook(_Forget(latents))


def _width(module: Any) -> int:
    """What a projection reads."""
    width: int = module.nx if isinstance(module, Conv1D) else module.in_features
    return width


def _down(width: int, rank: int, like: Any) -> nn.Module:
    return _projection(nn.Linear, width, rank, like, bias=False)


def _projection(kind: Any, width: int, rows: int, like: Any, *, bias: bool) -> nn.Module:
    """A projection of `kind`, where `like` lies and of its type."""
    weight = like.weight
    made: nn.Module = kind(width, rows, bias=bias, device=weight.device, dtype=weight.dtype)
    return made


def _replaced(module: Any, latents: Latents, made: dict[str, Any], rank: int) -> nn.Module:
    """The projection that takes the place of `module`, without its values."""
    parts, bias = made["parts"], module.bias is not None
    if len(parts) > 1:
        return _fused(module, latents, made, rank)
    kind, width = (QueryProjection, _width(module)) if parts == "q" else (FromLatent, rank)
    bias = bias or parts in made.get("biases", "")
    found: Any = _projection(kind, width, module.out_features, module, bias=bias)
    found.latents, found.part = latents, parts
    return found  # type: ignore[no-any-return]


def _rows(projection: nn.Module, name: str, made: dict[str, Any]) -> dict[str, Rows]:
    """Where k and v are in what `projection` gives, unless several heads of each stand in every
    one of several blocks."""
    parts, repeats = made["parts"], made.get("repeats", 1)
    if len(parts) == 1:
        return {parts: Rows(projection, name, parts)} if parts in "kv" else {}
    sizes = {part: projection.get_submodule(part).out_features // repeats for part in parts}
    firsts = dict(zip(parts, accumulate(sizes.values(), initial=0), strict=False))
    step = None if repeats == 1 else sum(sizes.values())
    return {
        part: Rows(projection, name, part, firsts[part], step)
        for part in parts
        if part in "kv" and (repeats == 1 or made["heads"][part] == repeats)
    }


def _fused(module: Any, latents: Latents, made: dict[str, Any], rank: int) -> nn.Module:
    parts, heads = made["parts"], made["heads"]
    rows = module.weight.shape[1 if isinstance(module, Conv1D) else 0]
    of_one = rows // sum(heads[part] for part in parts)
    bias = module.bias is not None
    three = {
        part: _projection(
            nn.Linear,
            _width(module) if part == "q" else rank,
            heads[part] * of_one,
            module,
            bias=bias or part in made.get("biases", ""),
        )
        for part in parts
    }
    return FusedProjection(latents, parts, made["repeats"], **three)


class Latent(Ours):
    """What a latent class does beside its base class."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        keep_latents(self, config)


FAMILY = Family(PREFIX, _NAME, Latent, globals())


def __getattr__(name: str) -> Any:
    """`LatentX` for the class or config class `X` of transformers."""
    return FAMILY.attribute(name)
