"""Fewer K/V heads in transformers classes that have one K/V head per query head.

Self-contained: this file lies beside the weights that it loads, and needs torch and transformers
only. `from_pretrained(folder, trust_remote_code=True)` finds it through `auto_map` of config.json.

`GroupedBartForConditionalGeneration` is `BartForConditionalGeneration` with three changes:

- the projections of k and v make `num_key_value_heads` heads, and repeat each of them for the query
  heads that share it. A fused projection is stored as [q|k|v], whatever the class's own order is;
- what reaches the cache is one of the repeated heads, so that it holds `num_key_value_heads`, and
  what comes out of it is repeated again;
- the config says which projections these are, in `grouped_projections`.

Masks, position embeddings, attention kernels and generation are those of the class, which sees one
K/V head per query head as ever. Query heads [j*group_size, (j+1)*group_size) share K/V head j.

Of a layer in `kept_attention_heads` only these query heads are stored, and the K/V heads that they
read. The class sees zeros in place of the others, and the output projection reads none of them.

There is such a class for every transformers model: it is made when its name is asked for.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers import conversion_mapping, core_model_loading
from transformers.cache_utils import Cache
from transformers.models.auto import modeling_auto

PREFIX = "headcount_"  # in front of the base class's model_type
_BASE = re.compile(r"^(?:model|backbone|transformer)\.")
_CACHE = frozenset({"cache", "past_key_values", "past_key_value", "layer_past", "layer_state"})
_NAME = "Grouped"  # in front of the base class's name


@dataclass(frozen=True)
class Places:
    """Where the class has the heads that are stored: each of them `group_size` times in a row, at
    the places `staying` of its `heads`, None: at all of them. The others are zeros."""

    heads: int
    group_size: int
    staying: tuple[int, ...] | None = None

    def whole(self, stored: torch.Tensor, dim: int) -> torch.Tensor:
        """The class's heads along `dim`, from those that are stored."""
        repeated = stored.repeat_interleave(self.group_size, dim=dim)
        if self.staying is None:
            return repeated
        shape = list(repeated.shape)
        shape[dim] = self.heads
        return repeated.new_zeros(shape).index_copy_(dim, self._index(stored), repeated)

    def stored(self, whole: torch.Tensor, dim: int) -> torch.Tensor:
        """The first of each run of equal heads along `dim`."""
        if self.staying is not None:
            whole = whole.index_select(dim, self._index(whole))
        first = torch.arange(0, whole.shape[dim], self.group_size, device=whole.device)
        return whole.index_select(dim, first)

    def _index(self, like: torch.Tensor) -> torch.Tensor:
        return torch.tensor(self.staying, device=like.device)


@dataclass(frozen=True)
class Grouping:
    """What a projection makes for a class that has `heads` heads of k and v: the parts in their
    order, such as "k" or "qvk", `repeats` times in a row; stored as [q|k|v] with
    `num_key_value_heads` heads of k and v. `query_heads` are the class's, None: as many as of k.
    Of them only `kept` are stored, None: all. The part "o" reads query heads, and makes none."""

    parts: str
    heads: int
    repeats: int
    num_key_value_heads: int
    query_heads: int | None = None
    kept: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        staying = self.heads if self.kept is None else len(self._read())
        if staying % self.num_key_value_heads or self.heads % self.repeats:
            raise ValueError(
                f"{staying} of {self.heads} heads can neither be shared by"
                f" {self.num_key_value_heads} K/V heads nor all be stored in {self.repeats}"
                " repeats: both must divide them"
            )

    def _read(self) -> tuple[int, ...]:
        """The class's K/V heads that query heads which are kept read."""
        size = (self.query_heads or self.heads) // self.heads
        return tuple(dict.fromkeys(head // size for head in self.kept or ()))

    def places(self, part: str) -> Places:
        """Of the heads of q (or o), k or v."""
        if part in "qo":
            return Places(heads=self.query_heads or self.heads, group_size=1, staying=self.kept)
        staying = None if self.kept is None else self._read()
        count = self.heads if staying is None else len(staying)
        return Places(
            heads=self.heads, group_size=count // self.num_key_value_heads, staying=staying
        )

    def stored_heads(self, part: str) -> int:
        places = self.places(part)
        count = places.heads if places.staying is None else len(places.staying)
        return count // places.group_size

    def stored_rows(self, rows: int) -> int:
        """How many of the class's `rows` outputs (of o: inputs) are stored."""
        head_dim = rows // sum(self.places(part).heads for part in self.parts)
        return head_dim * sum(self.stored_heads(part) for part in self.parts)

    def taken(self, heads: torch.Tensor) -> torch.Tensor:
        """[..., rows] that the class gives to o as what is stored reads it: [..., stored rows]."""
        places = self.places("o")
        return places.stored(heads.unflatten(-1, (places.heads, -1)), -2).flatten(-2)

    def expanded(self, output: torch.Tensor) -> torch.Tensor:
        """[..., stored rows] as the class expects it: [..., rows]."""
        order = sorted(self.parts, key="qkv".index)
        counts = [self.stored_heads(part) for part in order]
        heads = output.unflatten(-1, (sum(counts), -1)).split(counts, dim=-2)
        whole = {
            part: self.places(part).whole(head, head.dim() - 2)
            for part, head in zip(order, heads, strict=True)
        }
        if len(order) == 1:
            only: torch.Tensor = whole[self.parts].flatten(-2)
            return only
        blocks = [whole[part].unflatten(-2, (self.repeats, -1)) for part in self.parts]
        return torch.cat(blocks, dim=-2).flatten(-3)


class CacheView:
    """A cache as one attention sees it, of a class made by `view_of`: a subclass of the cache's
    own. All but what a subclass of this one defines is the cache's."""

    def __init__(self, cache: Any) -> None:
        object.__setattr__(self, "_cache", cache)

    def __getattr__(self, name: str) -> Any:
        if name == "_cache":  # before __init__, as when a view is copied
            raise AttributeError(name)
        return getattr(self._cache, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cache, name, value)


_VIEWS: dict[tuple[type, type], Any] = {}
_never_compiled: Callable[[Any], Any] = torch.compiler.disable
_SPOKEN = frozenset({"__len__", "__getitem__", "__iter__", "__bool__"})  # operators of caches


def view_of(kind: Any, cache: Any, *args: Any) -> Any:
    """A view of `cache`: an instance of `kind`, which takes `args` too, and of the cache's class.
    torch.compile follows real methods, and no object that only says that it is a cache."""
    key = kind, type(cache)
    if key not in _VIEWS:
        _VIEWS[key] = _view_class(*key)
    return _VIEWS[key](cache, *args)


def _view_class(kind: type, cache: type) -> type:
    names = (n for n in dir(cache) if n in _SPOKEN or not n.startswith("__"))
    handed = {name: _handed_on(name, cache) for name in names if not hasattr(kind, name)}
    return type(f"{kind.__name__}Of{cache.__name__}", (kind, cache), handed)


def _handed_on(name: str, cache: type) -> Any:
    """The member `name` of a view: that of its cache."""
    if not callable(getattr(cache, name)):
        return property(lambda self: getattr(self._cache, name))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._cache, name)(*args, **kwargs)

    return call


class GroupedCache(CacheView):
    """A cache whose K/V heads are repeated, at their `places`. It keeps nothing of its own."""

    def __init__(self, cache: Any, places: Places) -> None:
        super().__init__(cache)
        object.__setattr__(self, "_places", places)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the first of each run of equal heads; [batch, heads, tokens, head_dim]."""
        own = self._places
        stored = self._cache.update(own.stored(keys, 1), own.stored(values, 1), *args, **kwargs)
        return own.whole(stored[0], 1), own.whole(stored[1], 1)

    @property
    def keys(self) -> torch.Tensor:
        return self._whole(self._cache.keys)

    @property
    def values(self) -> torch.Tensor:
        return self._whole(self._cache.values)

    @property
    def layers(self) -> list["GroupedCache"]:
        return [view_of(GroupedCache, layer, self._places) for layer in self._cache.layers]

    @property
    def self_attention_cache(self) -> "GroupedCache":
        found: GroupedCache = view_of(GroupedCache, self._cache.self_attention_cache, self._places)
        return found

    @property
    def cross_attention_cache(self) -> "GroupedCache":
        found: GroupedCache = view_of(GroupedCache, self._cache.cross_attention_cache, self._places)
        return found

    def _whole(self, heads: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self._places.whole(heads, 1)
        return found


@dataclass(frozen=True)
class _ExpandOutput:
    """Forward hook of a projection."""

    grouping: Grouping

    def __call__(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return self.grouping.expanded(output)


@dataclass(frozen=True)
class _TakeInput:
    """Forward hook before an output projection."""

    grouping: Grouping

    def __call__(self, module: nn.Module, args: Any) -> Any:
        return (self.grouping.taken(args[0]), *args[1:])


@dataclass
class Slot:
    """The place of a projection in its attention, and what has its `hook` now. An adapter that
    takes that place (LoRA of peft) computes with rows as they are stored, so that the hook moves to
    it; and back when it is merged."""

    name: str
    hook: _ExpandOutput | _TakeInput
    hooked: nn.Module

    def follow(self, attention: nn.Module) -> None:
        """Moves the hook, if something else stands there now."""
        module = attention.get_submodule(self.name)
        if module is not self.hooked:
            self._move(module)

    @_never_compiled
    def _move(self, module: nn.Module) -> None:
        for hooks in (self.hooked._forward_hooks, self.hooked._forward_pre_hooks):
            for key in [key for key, hook in hooks.items() if hook == self.hook]:
                del hooks[key]
        self.attach(module)

    def attach(self, module: nn.Module) -> None:
        if isinstance(self.hook, _TakeInput):
            module.register_forward_pre_hook(self.hook)
        else:
            module.register_forward_hook(self.hook)
        self.hooked = module


@dataclass(frozen=True)
class _HideCache:
    """Forward hook before an attention: it gets views of the caches among its arguments."""

    places: Places
    slots: tuple[Slot, ...]

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        for slot in self.slots:
            slot.follow(module)
        return tuple(map(self._view, args)), {k: self._view(v) for k, v in kwargs.items()}

    def _view(self, value: Any) -> Any:
        return view_of(GroupedCache, value, self.places) if isinstance(value, Cache) else value


def show_cache(module: nn.Module, args: Any, output: Any) -> Any:
    """Forward hook after an attention: a view that it hands on becomes the cache again."""
    if isinstance(output, (tuple, list)):
        return type(output)(show_cache(module, args, value) for value in output)
    return output._cache if isinstance(output, CacheView) else output


def group_heads(model: Any, config: Any) -> None:
    """Shrinks the projections that `config.grouped_projections` names, wherever the model has them;
    of several models in one, the language model.

    A key is a tensor's module with `*` for the number of its layer, perhaps with the name of the
    base model in front: `model.decoder.layers.*.self_attn.k_proj`. Raises ValueError if the model
    has none of them.
    """
    language: Any = model.get_decoder() if config.sub_configs else model
    attentions: dict[str, Places] = {}
    slots: dict[str, list[Slot]] = {}
    for name, module in list(language.named_modules()):
        found = _grouping_of(name, config)
        if found is not None:
            reader = reader_of_cache(language, name)
            slot = Slot(name[len(reader) + 1 :], _shrink(module, found), module)
            slot.attach(module)
            slots.setdefault(reader, []).append(slot)
            attentions[reader] = found.places("k")
    if not attentions:
        raise ValueError(
            f"{type(model).__name__} has none of the projections in config.grouped_projections: "
            f"{', '.join(config.grouped_projections or ()) or 'it names none'}"
        )
    for name, places in attentions.items():
        attention = language.get_submodule(name)
        attention.register_forward_pre_hook(
            _HideCache(places, tuple(slots[name])), with_kwargs=True
        )
        attention.register_forward_hook(show_cache)


def reader_of_cache(model: nn.Module, name: str) -> str:
    """The module nearest to the projection `name` that takes a cache: its attention, or what holds
    it where that is exchanged on the way (BigBird)."""
    while name:
        name = name.rpartition(".")[0]
        taken = inspect.signature(model.get_submodule(name).forward).parameters
        if not _CACHE.isdisjoint(taken):
            return name
    raise ValueError(f"{type(model).__name__} takes no cache")


def _grouping_of(name: str, config: Any) -> Grouping | None:
    """What the module `name` is to make, None for all but the projections that the config names."""
    found = named_in(config.grouped_projections, name)
    if found is None:
        return None
    layer, value = found
    counts = getattr(config, "num_key_value_heads_per_layer", None)
    own = counts[layer] if counts else config.num_key_value_heads
    kept = (getattr(config, "kept_attention_heads", None) or {}).get(str(layer))
    return Grouping(num_key_value_heads=own, kept=None if kept is None else tuple(kept), **value)


def named_in(projections: dict[str, Any] | None, name: str) -> tuple[int, Any] | None:
    """The number of the layer of the module `name`, and what `projections` say of it; None if they
    do not. Their keys have `*` for that number, perhaps with the base model's name in front, which
    in files may be another than in the class (Nemotron-H)."""
    number = re.search(r"(?:^|\.)(\d+)\.", name)
    if number is None:
        return None
    path = f"{name[: number.start(1)]}*{name[number.end(1) :]}"
    for key, value in (projections or {}).items():
        of_key, of_path = (f".{_BASE.sub('', one)}" for one in (key, path))
        if of_key.endswith(of_path) or of_path.endswith(of_key):
            return int(number[1]), value
    return None


def _shrink(module: Any, grouping: Grouping) -> _ExpandOutput | _TakeInput:
    """Keeps as many rows of weight and bias as are stored: the hook repeats them in what comes
    out."""
    transposed = hasattr(module, "nf")  # GPT-2's Conv1D holds [in, out]
    if grouping.parts == "o":
        return _shrink_input(module, grouping, dim=0 if transposed else 1)
    rows = module.weight.shape[1 if transposed else 0]
    stored = grouping.stored_rows(rows)
    weight = module.weight[:, :stored] if transposed else module.weight[:stored]
    module.weight = nn.Parameter(weight.detach().clone())
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias[:stored].detach().clone())
    setattr(module, "nf" if transposed else "out_features", stored)
    return _ExpandOutput(grouping)


def _shrink_input(module: Any, grouping: Grouping, dim: int) -> _TakeInput:
    """Keeps as many columns of an output projection, along `dim`, as are stored."""
    stored = grouping.stored_rows(module.weight.shape[dim])
    module.weight = nn.Parameter(module.weight.narrow(dim, 0, stored).detach().clone())
    setattr(module, "nx" if dim == 0 else "in_features", stored)
    return _TakeInput(grouping)


class Ours(nn.Module):
    """What every class of ours does beside its base class."""

    @classmethod
    def is_custom_code(cls) -> bool:
        """No: it is filled as its base class is when it is loaded. In a stranger's transformers
        passes over modules without tensors of their own, which may fill others (Falcon-H1's
        multipliers)."""
        return False

    def _get_static_cache_init_shape(self) -> None:
        """A static cache takes its shape from the first K/V, or latents, that it gets."""
        return None


class Grouped(Ours):
    """What a grouped class does beside its base class."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        group_heads(self, config)


@dataclass(frozen=True)
class _TypeName:
    """`model_type` of a config class: our own, by which files are saved and loaded. Of its
    instances it is the base's, since transformers branches on that (generation and pipelines of
    Whisper)."""

    own: str
    base: str

    def __get__(self, config: Any, owner: type) -> str:
        return self.own if config is None else self.base

    def __set__(self, config: Any, value: str) -> None:
        """A file says our own type: that its config is of this class says so already."""


@dataclass(frozen=True)
class Family:
    """Classes of ours, each made of one of transformers when its name is asked for: `name` and the
    name of that, of the type `prefix` and the type of that, with `mixin` in front. They live in
    `module`, the globals of the file that `own` them. `unmapped`: standard names of the config that
    mean nothing else in ours."""

    prefix: str
    name: str
    mixin: type
    module: dict[str, Any]
    unmapped: frozenset[str] = frozenset()

    def config(self, base: Any) -> Any:
        """Our config class of `base`: with a model_type of its own."""
        names = {key: own for key, own in base.attribute_map.items() if key not in self.unmapped}
        type_name = _TypeName(self.prefix + base.model_type, base.model_type)
        own = {"model_type": type_name, "attribute_map": names}
        _share_names(base.model_type, self.prefix + base.model_type)
        return self._made(base, (base,), {**own, "_auto_class": "AutoConfig"})

    def model(self, base: Any) -> Any:
        """Our class of the model class `base`."""
        config = self.module.get(self.name + base.config_class.__name__)
        config = config or self.config(base.config_class)
        _share_names(base.__name__, self.name + base.__name__)
        # With an auto class, save_pretrained writes this file beside the weights.
        members = {"config_class": config, "_auto_class": _auto_class(base)}
        return self._made(base, (self.mixin, base), members)

    def attribute(self, name: str) -> Any:
        """The class of that name, for `__getattr__` of the file."""
        base = getattr(transformers, name.removeprefix(self.name), None)
        file = self.module["__name__"]
        if not name.startswith(self.name) or not isinstance(base, type):
            raise AttributeError(f"module {file!r} has no attribute {name!r}")
        if issubclass(base, transformers.PreTrainedConfig):
            return self.config(base)
        return self.model(base)

    def _made(self, base: Any, bases: tuple[Any, ...], members: dict[str, Any]) -> Any:
        name = self.name + base.__name__
        own = {**members, "__module__": self.module["__name__"], "__qualname__": name}
        self.module[name] = type(name, bases, own)
        return self.module[name]


def _share_names(base: str, own: str) -> None:
    """Tensors have the same names on disk in files of both types, or classes, where those are not
    the modules' (Fuyu, the head of GPT-NeoX). What is cut in equal parts (HRM-Text) is cut by
    size: k and v are smaller."""
    known = conversion_mapping.get_checkpoint_conversion_mapping(base)
    split = getattr(core_model_loading, "Split", None)  # not in the first 5.x
    for entry in known or ():
        operations = getattr(entry, "operations", [])
        if split and [type(one) for one in operations] == [core_model_loading.Chunk]:
            entry.operations = [split(operations[0].dim)]
    if known is not None:
        conversion_mapping.register_checkpoint_conversion_mapping(own, known, overwrite=True)


def _auto_class(base: type) -> str:
    """The auto class that takes `base`."""
    autos = {
        "AutoModelForCausalLM": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "AutoModelForSeq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        "AutoModelForSpeechSeq2Seq": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    }
    taken = (auto for auto, names in autos.items() if base.__name__ in names.values())
    task = re.search(r"For[A-Z]\w*$", base.__name__)
    return next(taken, "AutoModel" + (task[0] if task else ""))


# Another meaning of num_key_value_heads (Whisper's is its encoder's heads) is none of ours.
FAMILY = Family(PREFIX, _NAME, Grouped, globals(), frozenset({"num_key_value_heads"}))


def __getattr__(name: str) -> Any:
    """`GroupedX` for the class or config class `X` of transformers."""
    return FAMILY.attribute(name)
