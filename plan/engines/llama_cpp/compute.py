"""llama.cpp's compute buffers: the graph of one micro-batch, as its allocator lays it out.

The order of the tensors is that of src/llama-graph.cpp (build_attn, build_ffn, build_moe_ffn) and
of src/models/llama.cpp, gpt-oss's and DeepSeek's; other models differ in what is written over.
What recurrent layers and indexers compute is not followed tensor by tensor.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .block import Block, Latent
from .graph import Graph
from .slots import Layout

_ALIKE = 3  # layers of a kind that a graph is made of
# Bytes of an activation, of a mask for flash attention, of the number of a row.
_FLOAT, _HALF, _INDEX = 4, 2, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a graph is made of: the model's blocks, and the micro-batch. `outputs` are the tokens
    whose logits are computed."""

    hidden: int
    vocabulary: int
    blocks: tuple[Block, ...]
    tokens: int
    outputs: int
    layout: Layout
    flash: bool = True


class Held(NamedTuple):
    """What the device holds of each block: the layer, its experts; and whether the output."""

    layers: tuple[bool, ...]
    experts: tuple[bool, ...]
    output: bool


def condensed(blocks: tuple[Block, ...], held: Held) -> tuple[tuple[Block, ...], Held]:
    """The first few of each kind, and the last: more of them need no more memory, since each
    layer finds the blocks that the one before has left."""
    keys = list(zip(held.layers, held.experts, blocks, strict=True))
    seen = Counter[tuple[bool, bool, Block]]()
    kinds = []
    for key in keys[:-1]:
        seen[key] += 1
        kinds += [key] if seen[key] <= _ALIKE else []
    kinds.append(keys[-1])
    return (
        tuple(block for _, _, block in kinds),
        Held(tuple(here for here, _, _ in kinds), tuple(e for _, e, _ in kinds), held.output),
    )


@lru_cache(maxsize=4096)
def device_bytes(shape: Shape, held: Held) -> int:
    """The compute buffer of the device that holds so much."""
    return _Build(shape, held, is_device=True).bytes()


@lru_cache(maxsize=256)
def host_bytes(shape: Shape, held: Held) -> int:
    """That of the host beside it."""
    rest = Held(
        tuple(not here for here in held.layers),
        tuple(not both for both in map(all, zip(held.layers, held.experts, strict=True))),
        not held.output,
    )
    return _Build(shape, rest, is_device=False).bytes()


class _Build:
    """One graph while it is made."""

    def __init__(self, shape: Shape, held: Held, *, is_device: bool) -> None:
        self.shape, self.held, self.is_device = shape, held, is_device
        self.graph = Graph()
        self.masks: dict[int | None, tuple[int, int, int]] = {}
        self.positions = self.chosen = 0

    def bytes(self) -> int:
        """Those of a device lie side by side, after the host's, so that it is entered once."""
        shape, last = self.shape, len(self.shape.blocks) - 1
        x = self._inputs()
        if x is None:
            return 0
        for index, block in enumerate(shape.blocks):
            tokens = shape.outputs if index == last else shape.tokens
            if self.held.layers[index]:
                x = self._layer(x, index, block)
            elif self.held.experts[index] and not self.is_device and block.experts:
                self._experts_alone(block, tokens)
        if self.held.output:
            self._head(x)
        return self.graph.reach()

    def _inputs(self) -> int | None:
        """On the device copies of what it needs, on the host all of them, and the embedding."""
        shape, add = self.shape, self.graph.add
        own = [i for i in range(len(shape.blocks)) if self.held.layers[i]]
        if self.is_device and not own:  # the output alone, if anything
            return add(self._floats(shape.hidden, shape.outputs)) if self.held.output else None
        embedded = self._floats(shape.hidden)
        entered = self._copied(shape.blocks[own[0] - 1]) if self.is_device and own[0] else None
        x = add(embedded) if entered is None else entered[0]
        if not self.is_device:
            self.graph.add(embedded, kept=True)  # inp_embd, whether tokens or embeddings are given
        self.positions = add(shape.tokens * _FLOAT)
        for index, block in enumerate(shape.blocks):
            if (
                block.heads
                and block.window not in self.masks
                and (self.held.layers[index] or not self.is_device)
            ):
                self.masks[block.window] = self._mask(block)
        self.chosen = add(shape.outputs * _FLOAT)
        if entered is None:
            return x
        made = entered[1]
        if len(entered) == 3:
            made = self._summed(made, entered[2], shape.tokens, shape.blocks[own[0] - 1])
        return add(embedded, made, x, over=True)

    def _copied(self, before: Block) -> tuple[int, ...]:
        """Of the last layer on the host, which ends on the device: what is added up has no weights
        (ggml_backend_sched_split_graph)."""
        add, size = self.graph.add, self._floats(self.shape.hidden)
        if before.experts is None:
            return add(size), add(size)
        made = add(before.experts.used * size)
        shares = add(self._floats(before.experts.used))
        return add(size), made, shares

    def _mask(self, block: Block) -> tuple[int, int, int]:
        shape, add = self.shape, self.graph.add
        keys = add(shape.tokens * _INDEX)
        values = shape.tokens * _INDEX * (1 if shape.flash else max(1, block.value))
        rows = 0 if block.latent else add(values)
        cells = self._cells(block)
        if block.indexed:  # of the tokens that are chosen
            add(cells * shape.tokens * _HALF, kept=True)
        mask = add(
            cells * shape.tokens * (_HALF if shape.flash else _FLOAT), kept=not self.is_device
        )
        return mask, keys, rows

    def _cells(self, block: Block) -> int:
        layout = self.shape.layout
        return layout.cells_within(block.window) if block.cached else self.shape.tokens

    def _floats(self, elements: int, tokens: int | None = None) -> int:
        return elements * _FLOAT * (self.shape.tokens if tokens is None else tokens)

    def _layer(self, x: int, index: int, block: Block) -> int:
        shape, graph = self.shape, self.graph
        last = index == len(shape.blocks) - 1
        tokens = shape.outputs if last else shape.tokens
        size = self._floats(shape.hidden, tokens)
        if block.heads or block.recurrent:
            normed = own = self._norm(x, shape.tokens)
            mixed = (
                self._attention(normed, block) if block.heads else self._recurrent(normed, block)
            )
            if last:
                mixed, x = graph.add(size, mixed, self.chosen), graph.add(size, x, self.chosen)
            if block.one_norm:
                own = graph.add(size, own, self.chosen) if last else own
                made = self._mlp(own, block, tokens)
                return graph.add(size, graph.add(size, made, x, over=True), mixed, over=True)
            x = graph.add(size, mixed, x, over=True)
        if not block.width and not block.experts:
            return x
        normed = self._norm(x, tokens)
        made = self._mlp(normed, block, tokens)
        if block.experts:
            there = self.held.experts[index] if self.is_device else True
            made = (
                self._mixture(normed, block, tokens)
                if there
                else graph.add(block.experts.used * size, normed)
            )
            if block.shared:
                beside = self._gated(normed, block.shared, tokens, gated=True, once=False)
                made = graph.add(size, made, beside, over=True)
        reads = (x, made) if block.stored_once else (made, x)
        return graph.add(size, *reads, over=True)

    def _norm(self, x: int, tokens: int) -> int:
        size = self._floats(self.shape.hidden, tokens)
        return self.graph.add(size, self.graph.add(size, x, over=True), over=True)

    def _attention(self, normed: int, block: Block) -> int:
        """The projected output."""
        graph, shape = self.graph, self.shape
        mask, keys, rows = self.masks[block.window]
        if block.latent is not None:
            return self._latent(normed, block, block.latent, mask, keys)
        query, key = self._floats(block.query), self._floats(block.key)
        value = self._floats(block.value)
        q = graph.add(query, graph.view(graph.add(query, normed)), self.positions)
        v = graph.add(value, normed)
        k = graph.add(key, graph.view(graph.add(key, normed)), self.positions)
        if block.cached:
            graph.use(graph.view(k), keys)
            graph.use(graph.view(v), rows)
        width = self._floats(block.read)
        if shape.flash:
            mixed = graph.view(graph.add(width, graph.view(q), mask))
        else:
            mixed = graph.add(width, graph.view(graph.add(width, self._scores(q, block, mask))))
        if not block.cached:
            graph.use(k, v)
        return graph.add(self._floats(shape.hidden), mixed)

    def _scores(self, q: int, block: Block, mask: int) -> int:
        """Of every query with every cell, float32."""
        size = self._floats(block.heads * self._cells(block))
        return self.graph.add(size, self.graph.add(size, self.graph.view(q)), mask, over=True)

    def _latent(self, normed: int, block: Block, latent: Latent, mask: int, keys: int) -> int:
        graph, floats, heads = self.graph, self._floats, block.heads
        q = normed
        if latent.query:
            q = graph.add(floats(latent.query), normed)
            q = graph.add(
                floats(latent.query), graph.add(floats(latent.query), q, over=True), over=True
            )
        q = graph.add(floats(heads * (latent.plain + latent.rotated)), q)
        absorbed = graph.add(floats(heads * latent.rank), graph.view(q))
        turned = graph.add(floats(heads * latent.rotated), graph.view(q), self.positions)
        wide = floats(heads * (latent.rank + latent.rotated))
        q = graph.add(wide, graph.view(absorbed), turned)
        joined = graph.add(floats(latent.rank + latent.rotated), normed)
        kept = graph.add(floats(latent.rank), graph.view(joined))
        kept = graph.add(floats(latent.rank), kept, over=True)
        turned = graph.add(floats(latent.rotated), graph.view(joined), self.positions)
        k = graph.add(floats(latent.rank + latent.rotated), graph.view(kept), turned)
        graph.use(graph.view(k), keys)
        compressed, out = floats(heads * latent.rank), floats(heads * latent.values)
        if self.shape.flash:
            mixed = graph.add(compressed, graph.view(q), mask)
        else:
            mixed = graph.add(compressed, self._scores(q, block, mask))
        mixed = graph.add(out, graph.view(mixed))
        mixed = graph.add(out, graph.view(mixed))
        return graph.add(floats(self.shape.hidden), graph.view(mixed))

    def _recurrent(self, normed: int, block: Block) -> int:
        """All that it computes, at once."""
        made = self.graph.add(self._floats(block.recurrent), normed)
        return self.graph.add(self._floats(self.shape.hidden), made)

    def _mlp(self, normed: int, block: Block, tokens: int) -> int:
        if not block.width:
            return normed
        return self._gated(normed, block.width, tokens, gated=block.gated, once=block.stored_once)

    def _gated(self, normed: int, width: int, tokens: int, *, gated: bool, once: bool) -> int:
        graph, size = self.graph, self._floats(width, tokens)
        if once:
            made = graph.add(size, graph.add(2 * size, normed))
        elif gated:
            made = graph.add(size, graph.add(size, normed), graph.add(size, normed))
        else:
            made = graph.add(size, graph.add(size, normed), over=True)
        return graph.add(self._floats(self.shape.hidden, tokens), made)

    def _mixture(self, normed: int, block: Block, tokens: int) -> int:
        """The experts' sum, after the router."""
        graph, floats, experts = self.graph, self._floats, block.experts
        assert experts is not None
        size = floats(self.shape.hidden, tokens)
        chances = graph.add(floats(experts.held, tokens), normed)
        chances = graph.add(floats(experts.held, tokens), chances, over=True)
        chosen = graph.view(graph.add(floats(experts.held, tokens), chances))
        shares = graph.add(floats(experts.used, tokens), graph.view(chances), chosen)
        whole = graph.add(floats(1, tokens), graph.view(shares))
        whole = graph.add(floats(1, tokens), whole, over=True)
        shares = graph.add(floats(experts.used, tokens), graph.view(shares), whole)
        read = graph.view(normed)
        width = floats(experts.used * experts.width, tokens)
        made = graph.add(width, graph.add(width, read, chosen), graph.add(width, read, chosen))
        made = graph.add(experts.used * size, made, chosen)
        return self._summed(made, graph.view(shares), tokens, block)

    def _summed(self, made: int, shares: int, tokens: int, block: Block) -> int:
        """The experts by their shares."""
        graph, experts, size = self.graph, block.experts, self._floats(self.shape.hidden, tokens)
        assert experts is not None
        made = graph.add(experts.used * size, made, shares, over=True)
        each = [graph.view(made) for _ in range(experts.used)]
        total = each[0]
        for part in each[1:]:
            total = graph.add(size, total, part, over=True)
        return total

    def _experts_alone(self, block: Block, tokens: int) -> None:
        """On the host, of a layer whose rest is on the device: up to the way down."""
        graph, experts = self.graph, block.experts
        assert experts is not None
        read = graph.add(self._floats(self.shape.hidden, tokens))
        width = self._floats(experts.used * experts.width, tokens)
        made = graph.add(width, graph.add(width, read), graph.add(width, read))
        graph.use(graph.add(experts.used * self._floats(self.shape.hidden, tokens), made))

    def _head(self, x: int) -> None:
        shape = self.shape
        normed = self._norm(x, shape.outputs)
        self.graph.add(self._floats(shape.vocabulary, shape.outputs), normed, kept=True)
