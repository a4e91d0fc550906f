"""Random changes of an attention that leave its function as it is, by what a `Freedom` says.

Written from the formulas (docs/methods.md), one head at a time: nothing here knows how heads merge.
"""

import shutil
from dataclasses import fields, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from headcount.convert.merge.attention_weights import AttentionWeights
from headcount.convert.merge.freedom import Freedom
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.freedom import freedoms_of
from headcount.convert.rewrite.tensors import tensors_of, weights_of
from headcount.convert.stream.reader import SourceReader

Turned = tuple[AttentionWeights, list[int]]


def widened(folder: Path) -> Path:
    """The model with float64 for every float, in place."""
    for path in folder.glob("*.safetensors"):
        tensors = {
            name: tensor.double() if tensor.is_floating_point() else tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
    return folder


def turned_model(source: Path, target: Path, *, order: bool = True) -> dict[str, int]:
    """Copies a model with every attention changed at random wherever it is free, and counts the
    attentions of which keys, values and order were."""
    shutil.copytree(source, target)
    model, generator = read_source(source), torch.Generator().manual_seed(0)
    tensors, freedoms = model.attention_map.attentions, freedoms_of(model)
    made: dict[str, torch.Tensor] = {}
    common: dict[int, list[int]] = {}  # of attentions that change their order together
    with SourceReader(model.checkpoint.files) as reader:
        for where, one in tensors.items():
            freedom = replace(freedoms[where], order=freedoms[where].order and order)
            number = freedom.order_set
            given = None if number is None else common.get(number)
            weights, places = turned(weights_of(one, reader.tensor), freedom, generator, given)
            if number is not None:
                common[number] = places
            made |= tensors_of(one, weights, reader.tensor, places)
    for path in target.glob("*.safetensors"):
        old = load_file(path)
        new = {name: made.get(name, tensor) for name, tensor in old.items()}
        assert all(new[name].shape == old[name].shape for name in old)
        save_file(new, path, metadata={"format": "pt"})
    names = ("keys", "values", "order")
    return {name: sum(getattr(f, name) for f in freedoms.values()) for name in names}


def turned(
    weights: AttentionWeights,
    freedom: Freedom,
    generator: torch.Generator,
    places: list[int] | None = None,
) -> Turned:
    """Keys against queries, values against o, and heads at other places: random ones, or given."""
    weights = AttentionWeights(
        **{f.name: _double(getattr(weights, f.name)) for f in fields(weights)}
    )
    if freedom.keys:
        weights = _turned_keys(weights, freedom, generator)
    if freedom.values:
        weights = _turned_values(weights, generator)
    heads = len(weights.k)
    order = places or list(range(heads))
    if places is None and freedom.order and heads > 1:
        order = [*range(1, heads), 0] if heads < 3 else _shuffled(heads, generator)
    return _moved(weights, order), order


def _double(heads: torch.Tensor | None) -> torch.Tensor | None:
    return None if heads is None else heads.double()


def _shuffled(heads: int, generator: torch.Generator) -> list[int]:
    order: list[int] = torch.randperm(heads, generator=generator).tolist()
    return order if order != sorted(order) else order[::-1]


def _turned_keys(
    weights: AttentionWeights, freedom: Freedom, generator: torch.Generator
) -> AttentionWeights:
    """k -> A k, q -> A^-T q: A is a complex number on each pair of rows that rotate, and any
    matrix on the rest."""
    d = weights.k.shape[1]
    rest = [i for i in range(d) if i not in {*freedom.real, *freedom.imaginary}]
    maps = []
    for _ in range(len(weights.k)):
        a = torch.zeros(d, d, dtype=torch.float64)
        for re, im in zip(freedom.real, freedom.imaginary, strict=True):
            size, angle = torch.rand(2, generator=generator, dtype=torch.float64)
            size, angle = size + 0.7, 6 * angle
            a[re, re] = a[im, im] = size * angle.cos()
            a[im, re], a[re, im] = size * angle.sin(), -size * angle.sin()
        if rest:
            at = torch.tensor(rest)
            a[at[:, None], at] = _invertible(len(rest), generator)
        maps.append(a)
    keys = torch.stack(maps)
    queries = torch.linalg.inv(keys).mT.repeat_interleave(weights.group_size, 0)
    return replace(
        weights,
        k=keys @ weights.k,
        q=queries @ weights.q,
        k_bias=_applied(keys, weights.k_bias),
        q_bias=_applied(queries, weights.q_bias),
    )


def _turned_values(weights: AttentionWeights, generator: torch.Generator) -> AttentionWeights:
    """v -> A v, o -> o A^-1."""
    heads, d = weights.v.shape[:2]
    maps = torch.stack([_invertible(d, generator) for _ in range(heads)])
    back = torch.linalg.inv(maps).repeat_interleave(weights.group_size, 0)
    return replace(
        weights, v=maps @ weights.v, v_bias=_applied(maps, weights.v_bias), o=weights.o @ back
    )


def _invertible(size: int, generator: torch.Generator) -> torch.Tensor:
    """A random matrix whose inverse is no larger than itself by much."""
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    scales = 0.7 + 0.6 * torch.rand(size, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0] * scales


def _applied(maps: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else (maps @ bias[..., None])[..., 0]


def _moved(weights: AttentionWeights, order: list[int]) -> AttentionWeights:
    """Head `order[i]` at place i, with the query heads that read it."""
    size = weights.group_size
    query = [head * size + i for head in order for i in range(size)]

    def at(heads: torch.Tensor | None, places: list[int]) -> torch.Tensor | None:
        return None if heads is None else heads[places]

    return replace(
        weights,
        q=weights.q[query],
        o=weights.o[query],
        k=weights.k[order],
        v=weights.v[order],
        q_bias=at(weights.q_bias, query),
        k_bias=at(weights.k_bias, order),
        v_bias=at(weights.v_bias, order),
    )
