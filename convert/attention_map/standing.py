"""Where the tensors of a source stand: in which list of layers, and where in an attention.

Which list is which stack of the config is what the audit found. Words in a name only tell which of
the other lists are towers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headcount.arch.architecture import Architecture
from headcount.arch.tensors.places import Found, Numbered, Place, find_part, numbered, place_of
from headcount.arch.tensors.stacks import Stacks
from headcount.model.spec import Layer

# Models beside the decoder that keep no cache, and whose heads stay as they are.
_TOWERS = frozenset({"vision", "audio", "encoder"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A tensor in a numbered list. `stack` is the config's stack that the list is, or the other
    model that it belongs to; None: it is not known whose it is. `place` is None for a tensor
    outside attention."""

    at: Numbered
    stack: str | None
    place: Place | None

    @property
    def is_decoder(self) -> bool:
        return self.stack == "decoder"

    @property
    def is_tower(self) -> bool:
        return self.stack in _TOWERS

    @property
    def owner(self) -> str:
        """What the tensor belongs to, in words."""
        return repr(self.stack) if self.stack else "a list of layers that is none of the config's"


def standings(
    tensors: Iterable[str], stacks: Stacks, architecture: Architecture, layers: Sequence[Layer]
) -> Mapping[str, Standing]:
    """That of each tensor in a numbered list, by its name."""
    kinds = {layer.stored_in: layer.stack for layer in layers}  # a stack may be several lists
    indices = {(x.stored_in, x.stored_as): x.index for x in layers if not x.is_again}
    owners: dict[str, str | None] = {}
    parts: dict[str, Found | None] = {}  # layers are alike: each name in a layer is read once
    found: dict[str, Standing] = {}
    for name in tensors:
        at = numbered(name)
        if at is None:
            continue
        if at.prefix not in owners:
            owners[at.prefix] = _by_row(at.prefix, architecture) or stacks.owner(at.prefix)
        if at.inside not in parts:
            parts[at.inside] = find_part(at.inside, architecture.names)
        owner, part = owners[at.prefix], parts[at.inside]
        index = indices.get((owner or "", at.number), at.number)
        place = None if part is None else place_of(part, index)
        found[name] = Standing(at=at, stack=kinds.get(owner or "", owner), place=place)
    return found


def _by_row(prefix: str, architecture: Architecture) -> str | None:
    """What the architecture says of a list."""
    return next(
        (stack for own, stack in architecture.stacks.items() if f".{prefix}".endswith(f".{own}")),
        None,
    )
