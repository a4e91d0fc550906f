"""Steps for a class with separate q, k and v projections that reads num_key_value_heads."""

import re
from collections.abc import Iterator
from dataclasses import replace

from headcount.audit.family.names import BUFFERS, TensorNames
from headcount.audit.family.places import PLAIN, Place, place, stack_of
from headcount.audit.source.safetensors import TensorInfo

from .draft import Draft, Heads
from .errors import CannotConvertError
from .layout import Blocks, one_part
from .source import Source
from .steps import Pool, Role, Step, copy

FLOATS = ("F64", "F32", "F16", "BF16")
_KEY_NORMS = ("k_norm", "k_layernorm", "key_layernorm")
_QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm")
# A word of a tensor's path in its layer that makes it look like attention.
NEAR = re.compile(r"attn|attention|[qkv]_proj|qkv|query|key|value")
FAR = re.compile(r"norm|mlp|expert")  # unless it is one of these
_IN_LAYER = re.compile(r"(?:^|\.)\d+\.")
# Towers of a multimodal model that keep no cache, and whose heads stay as they are.
TOWERS = ("vision", "audio", "embed_audio", "encoder")

NORM_NOTE = (
    "the k norm runs over all K/V heads of a token: with fewer heads its mean square changes, so"
    " the norm's weight is pooled but the result is only exact where pooled heads agree"
)


def steps(source: Source, heads: Heads) -> Draft:
    """One step per tensor of the output. Raises CannotConvertError naming what is not known."""
    builder = _Builder(source, heads)
    by_file = {
        header.path.name: tuple(s for t in header.tensors for s in builder.steps(t))
        for header in source.checkpoint.files
    }
    return Draft(steps=by_file, layers=builder.check_layers(), notes=tuple(builder.notes))


class _Builder:
    """Gathers what can only be said once all tensors were seen: complete layers, notes."""

    def __init__(self, source: Source, heads: Heads) -> None:
        self.source = source
        self.heads = heads
        self.names: TensorNames = source.audit.family.names
        self.pooled: set[tuple[int, str]] = set()
        self.norm_lists: dict[tuple[int, str], dict[int, TensorInfo]] = _norm_lists(source)
        self.notes: dict[str, None] = {}

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        spot = place(tensor.name, self.names)
        if spot is None:
            self._refuse_lookalike(tensor)
            yield copy(tensor)
        elif spot.stack != "decoder":
            yield self._of_tower(tensor, spot)
        elif spot.cross or spot.part is None:
            raise self._unknown(tensor, "is not known in this architecture")
        elif spot.part in ("k", "v"):
            yield self._projection(tensor, spot)
        elif spot.part == "norm" and _word_of(spot, _KEY_NORMS):
            yield from self._key_norm(tensor, spot)
        else:
            yield self._kept(tensor, spot)

    def check_layers(self) -> tuple[int, ...]:
        """The numbers of the pooled layers: those of the config, and any that are stored beyond
        them (for multi-token prediction). Raises CannotConvertError if one lacks k or v."""
        indices = {layer.index for layer in self.source.audit.spec.layers}
        indices |= {index for index, _ in self.pooled}
        for index in sorted(indices):
            for part in "kv":
                if (index, part) not in self.pooled:
                    raise CannotConvertError(
                        f"{self.source.folder}: layer {index} has no {part} projection of a name"
                        " that is known: the checkpoint is incomplete or of another layout"
                    )
        return tuple(sorted(indices))

    def _projection(self, tensor: TensorInfo, spot: Place) -> Step:
        if spot.parameter not in PLAIN:
            raise self._unknown(tensor, "looks quantised or adapted: not pooled")
        assert spot.part is not None
        rows = self.heads.before * self.heads.head_dim
        self._expect(tensor, rows, dimensions=2 if spot.parameter == "weight" else 1)
        if spot.parameter == "weight":
            self.pooled.add((spot.index, spot.part))
        role: Role = "weight" if spot.parameter == "weight" else "bias"
        layout = one_part(spot.part, self.heads.before, self.heads.head_dim)
        return self._pool((tensor,), spot.index, role, layout)

    def _key_norm(self, tensor: TensorInfo, spot: Place) -> Iterator[Step]:
        """By its shape: shared by all heads, over all heads, a row per head, or a list of norms."""
        before, d = self.heads.before, self.heads.head_dim
        if spot.parameter not in PLAIN:
            yield from self._norm_list(tensor, spot)
        elif tensor.shape == (d,):
            yield copy(tensor)
        elif tensor.shape == (before * d,):
            self.notes[NORM_NOTE] = None
            yield self._pool((tensor,), spot.index, "norm", one_part("k", before, d))
        elif tensor.shape == (before, d):
            yield self._pool((tensor,), spot.index, "norm", one_part("k", before, 1))
        else:
            raise self._unknown(tensor, f"has shape {list(tensor.shape)}, which fits no k norm")

    def _norm_list(self, tensor: TensorInfo, spot: Place) -> Iterator[Step]:
        """`norms.{h}.weight`: the group's first tensor yields the new head, the others nothing."""
        number, _, parameter = spot.parameter.partition(".")
        members, d = self.heads.members, self.heads.head_dim
        siblings = self.norm_lists[spot.index, parameter]
        if set(siblings) != set(range(self.heads.before)) or tensor.shape != (d,):
            raise self._unknown(tensor, f"should be one of {self.heads.before} norms of {d}")
        if int(number) % members:
            return
        head = int(number) // members
        group = tuple(siblings[int(number) + i] for i in range(members))
        step = self._pool(group, spot.index, "norm", one_part("k", members, d), first_head=head)
        name = tensor.name.removesuffix(spot.parameter) + f"{head}.{parameter}"
        yield replace(step, name=name)

    def _pool(
        self,
        tensors: tuple[TensorInfo, ...],
        layer: int,
        role: Role,
        layout: Blocks,
        first_head: int = 0,
    ) -> Step:
        if any(tensor.dtype not in FLOATS for tensor in tensors):
            raise self._unknown(tensors[0], f"({tensors[0].dtype}) looks quantised: not pooled")
        target = layout.pooled(self.heads.members)
        return Step(
            name=tensors[0].name,
            dtype=tensors[0].dtype,
            shape=(target.rows, *tensors[0].shape[1:]),
            sources=tensors,
            action=Pool(
                layer=layer,
                role=role,
                members=self.heads.members,
                source=layout,
                target=target,
                first_head=first_head,
            ),
        )

    def _of_tower(self, tensor: TensorInfo, spot: Place) -> Step:
        if spot.stack not in TOWERS:
            raise self._unknown(tensor, f"belongs to {spot.stack!r}, which convert does not handle")
        return copy(tensor)

    def _kept(self, tensor: TensorInfo, spot: Place) -> Step:
        """What belongs to query heads or to no head."""
        last = spot.parameter.rpartition(".")[2]
        known_norm = spot.part != "norm" or _word_of(spot, _QUERY_NORMS)
        if last not in PLAIN or not known_norm or spot.part not in ("q", "o", "norm", "other", ""):
            raise self._unknown(tensor, "is not known well enough to be kept")
        return copy(tensor)

    def _expect(self, tensor: TensorInfo, rows: int, *, dimensions: int) -> None:
        if len(tensor.shape) != dimensions or tensor.shape[0] != rows:
            raise self._unknown(
                tensor, f"has shape {list(tensor.shape)}; {rows} rows were expected"
            )

    def _refuse_lookalike(self, tensor: TensorInfo) -> None:
        """A tensor of a layer, outside the known modules, whose name sounds like attention."""
        number = _IN_LAYER.search(tensor.name)
        if number is None or stack_of(tensor.name[: number.start()]) in TOWERS:
            return
        inside = tensor.name[number.end() :]
        if FAR.search(inside):
            return
        if NEAR.search(inside) and not any(inside.endswith("." + b) for b in BUFFERS - {"bias"}):
            raise self._unknown(tensor, "looks like attention but is not known")

    def _unknown(self, tensor: TensorInfo, what: str) -> CannotConvertError:
        return CannotConvertError(
            f"{self.source.folder / tensor.file}: tensor {tensor.name!r} {what}"
        )


def _word_of(spot: Place, words: tuple[str, ...]) -> bool:
    return any(word in words for word in spot.module.split("."))


def _norm_lists(source: Source) -> dict[tuple[int, str], dict[int, TensorInfo]]:
    """(layer, parameter) -> number -> tensor, for k norms stored as one tensor per head."""
    found: dict[tuple[int, str], dict[int, TensorInfo]] = {}
    for tensor in source.checkpoint.tensors.values():
        spot = place(tensor.name, source.audit.family.names)
        if spot is None or spot.part != "norm" or not _word_of(spot, _KEY_NORMS):
            continue
        number, _, parameter = spot.parameter.partition(".")
        if number.isdigit():
            found.setdefault((spot.index, parameter), {})[int(number)] = tensor
    return found
