"""Which lists of layers in a file are the stacks of the config, and which are of other models."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headcount.model.spec import Layer

from .names import TensorNames
from .places import GGUF_STACKS, Numbered, counts_layers, find_part, tower_of

_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"[a-z]+")
# Words in front of the numbers of a language model beside others.
_LANGUAGE = ("language_model", "text_model", "llm", "text_decoder")
# Words of other models that keep no cache, beside those of towers.
_ENCODERS = frozenset({"encoder", "text_encoder"})
# Parts that only an attention has: `other` and norms may stand elsewhere.
_PROJECTIONS = frozenset("qkvo")


@dataclass(kw_only=True, slots=True)
class _List:
    """A numbered list: its numbers, and how many kinds of attention tensors it holds."""

    numbers: set[int] = field(default_factory=set)
    insides: set[str] = field(default_factory=set)
    placed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stacks:
    """`lists` maps what stands in front of a layer's number to the stack of the config that it is.
    `roots` maps the beginnings of names of other models to what each is; `own` are words of
    towers that are the model itself (ViT, VisualBERT). `nests`: the config describes several
    models."""

    lists: Mapping[str, str]
    roots: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str | None] = frozenset()
    nests: bool = False

    def tower(self, name: str) -> str | None:
        """Which other model a tensor outside the config's layers belongs to; None: to none."""
        named = tower_of(name)
        if named is not None and named not in self.own:
            return named
        if not self.roots:
            return None
        return next((self.roots[a] for a in _ancestors(name) if a in self.roots), None)

    def owner(self, prefix: str) -> str | None:
        """The stack of the config that the list `prefix` is; else the other model that it belongs
        to, which a word of its name must say, too: a second decoder could stand in such a place;
        None: it is not known whose it is."""
        if prefix in self.lists:
            return self.lists[prefix]
        if tower_of(prefix) is not None:
            return self.tower(f"{prefix}.")
        words = prefix.lower()
        is_encoder = not _ENCODERS.isdisjoint(words.split(".")) and "text_model" not in words
        return "encoder" if self.nests and is_encoder else None


def find_stacks(
    tensors: Iterable[Numbered],
    tables: Mapping[str, TensorNames],
    layers: Iterable[Layer],
    *,
    others: str | None = None,
) -> Stacks:
    """For each stack of the config the list is chosen that holds attention by the names of its
    type, has no tower's name, and has as many layers.

    `others` is what further models are where a config describes several: then a list with a tower's
    name is never the language model. None: it describes one.
    """
    wanted: dict[str, set[int]] = {}
    for layer in layers:
        if not layer.is_again:
            wanted.setdefault(layer.stored_in, set()).add(layer.stored_as)
    candidates: dict[str, list[tuple[tuple[object, ...], str]]] = {}
    found = _lists(tensors)
    for prefix, held in found.items():
        tower = tower_of(prefix)
        if not counts_layers(prefix) or (others and tower is not None and tower not in wanted):
            continue
        stack = _stack(prefix, wanted)
        if stack is not None:
            held.placed = sum(_is_projection(inside, tables[stack]) for inside in held.insides)
            rank = _rank(prefix, held, wanted[stack], is_tower=tower not in (None, stack))
            candidates.setdefault(stack, []).append((rank, prefix))
    lists = {max(ranked)[1]: stack for stack, ranked in candidates.items()}
    lists |= _beside(found, lists)
    return Stacks(
        lists=lists,
        roots=_roots(found, lists, others) if others else {},
        own=frozenset(tower_of(prefix) for prefix in lists) | frozenset(wanted),
        nests=others is not None,
    )


def _roots(found: Mapping[str, _List], lists: Mapping[str, str], others: str) -> dict[str, str]:
    """The beginnings of lists that are no stack, as far as no stack begins so, each with what the
    first list says that it is."""
    of_stacks = {beginning for stack in lists for beginning in _ancestors(stack)}
    roots: dict[str, str] = {}
    for prefix in found:
        root = next((a for a in _ancestors(f"{prefix}.") if a not in of_stacks), None)
        if root is not None and prefix not in lists and counts_layers(prefix):
            roots.setdefault(root, tower_of(prefix) or others)
    return roots


def _ancestors(name: str) -> Iterator[str]:
    """`a.`, `a.b.` of the name `a.b.c`: the modules that it stands in, from the outside in."""
    end = name.find(".")
    while end >= 0:
        yield name[: end + 1]
        end = name.find(".", end + 1)


def _lists(tensors: Iterable[Numbered]) -> dict[str, _List]:
    found: dict[str, _List] = {}
    for prefix, number, inside in tensors:
        held = found.get(prefix)
        if held is None:
            held = found[prefix] = _List()
        held.numbers.add(number)
        held.insides.add(inside)
    for held in found.values():
        held.insides = {_DIGITS.sub("0", inside) for inside in held.insides}
    return found


def _is_projection(inside: str, names: TensorNames) -> bool:
    found = find_part(inside, names)
    return found is not None and bool(_PROJECTIONS & set(found[2] or ""))


def _stack(prefix: str, wanted: Mapping[str, set[int]]) -> str | None:
    """The stack of the config that the words of `prefix` speak of."""
    if len(wanted) == 1:
        return next(iter(wanted))
    if GGUF_STACKS.get(prefix) in wanted:
        return GGUF_STACKS[prefix]
    words = [*_WORD.findall(prefix.lower()), *prefix.split(".")]
    named = ({"visual": "vision"}.get(word, word) for word in words)
    by_word = next((word for word in named if word in wanted), None)
    return by_word or next((stack for stack in ("decoder", "text") if stack in wanted), None)


def _rank(prefix: str, held: _List, wanted: set[int], *, is_tower: bool) -> tuple[object, ...]:
    return (
        held.placed > 0,
        not is_tower,
        any(word in prefix for word in _LANGUAGE),
        held.numbers == wanted,
        held.placed,
        len(held.numbers & wanted),
        len(held.insides),
        -len(prefix),
    )


def _beside(found: Mapping[str, _List], lists: Mapping[str, str]) -> dict[str, str]:
    """Lists with the same parent and numbers as a stack's, such as the MLPs of XLM."""
    parents = {
        (prefix.rpartition(".")[0], *sorted(found[prefix].numbers)): stack
        for prefix, stack in lists.items()
    }
    beside: dict[str, str] = {}
    for prefix, held in found.items():
        stack = parents.get((prefix.rpartition(".")[0], *sorted(held.numbers)))
        if "." in prefix and stack is not None and not held.placed and prefix not in lists:
            beside[prefix] = stack
    return beside
