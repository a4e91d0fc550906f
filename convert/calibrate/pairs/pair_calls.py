"""What an encoder-decoder hands to the layers of its decoder, of each pair."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headcount.running.boundary import third_party

from ..layer_calls import Call, Calls, answering, output_of_first, recorded
from ..layer_task import run_rows
from ..layered_model import LayeredModel
from ..state_rows import StateRows, new_rows
from .calibration_pairs import CalibrationPairs
from .pair_memory import PairMemory, RaggedRows

# Runs the model, or a part of it, on one pair.
Run = Callable[[slice], Callable[[], Any]]
_RUN = "transformers cannot run the model"


def pair_memory(layered: LayeredModel, pairs: CalibrationPairs, *, budget: int) -> PairMemory:
    """What the encoder, the stack of `layered`, gives of all pairs, run layer by layer; `budget`:
    bytes in memory, beyond them it is kept in a file."""

    def run(batch: slice) -> Callable[[], Any]:
        given = pairs.source(batch.start)
        given = given.to(layered.device, layered.dtype if given.is_floating_point() else None)
        encoder, name = layered.model.get_encoder(), layered.model.main_input_name
        return lambda: encoder(**{name: given})

    rows, kept = _room(layered, pairs, run, budget), PairMemory(None)
    calls = list[tuple[Call, ...]]()
    like: Any = None
    for batch, found in _recorded(layered, pairs, run):
        rows[batch], like = found.hidden, found.like
        calls.append(_kept(found.calls, kept, batch))
    for index in range(len(layered.layers)):
        with layered.layer(index) as layer:
            run_rows(layer, _calls_of(calls, index, kept), rows, pairs.batches)
    with layered.embeddings(), third_party(_RUN):
        for batch in pairs.batches:
            rows[batch] = _finished(layered, run(batch), rows[batch], like)
    return PairMemory(rows)


def record_pairs(
    layered: LayeredModel, pairs: CalibrationPairs, memory: PairMemory, into: Sequence[StateRows]
) -> tuple[Calls, ...]:
    """The calls of every layer of the decoder; the embedded pairs are written to each of `into`."""

    def run(batch: slice) -> Callable[[], Any]:
        given, encoded = pairs.given[batch.start].to(layered.device), memory[batch]
        return lambda: layered.model(
            encoder_outputs=(encoded,), decoder_input_ids=given, use_cache=False
        )

    calls = list[tuple[Call, ...]]()
    for batch, found in _recorded(layered, pairs, run):
        for rows in into:
            rows[batch] = found.hidden
        calls.append(_kept(found.calls, memory, batch))
    return tuple(_calls_of(calls, index, memory) for index in range(len(layered.layers)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recorded:
    """Of one pair: what the first layer is given, the calls of all layers, and what the first one
    returns."""

    hidden: Tensor
    calls: tuple[Call, ...]
    like: Any


def _recorded(
    layered: LayeredModel, pairs: CalibrationPairs, run: Run
) -> Iterator[tuple[slice, _Recorded]]:
    with layered.embeddings(), layered.layer(0) as layer, third_party(_RUN):
        for batch in pairs.batches:
            like = output_of_first(layered, layer, run(batch))
            hidden, calls = recorded(layered, run(batch), like)
            yield batch, _Recorded(hidden=hidden, calls=calls, like=like)


def _room(layered: LayeredModel, pairs: CalibrationPairs, run: Run, budget: int) -> StateRows:
    """For what the encoder's layers give, as long as that of the longest source."""
    lengths = [pairs.source(batch.start).shape[-1] for batch in pairs.batches]
    longest = pairs.batches[lengths.index(max(lengths))]
    with layered.embeddings(), third_party(_RUN):
        hidden, _ = recorded(layered, run(longest), None)
    template = torch.empty(hidden.shape[1:], dtype=layered.dtype)
    room = new_rows(len(lengths), template, held=1, budget=budget, device=layered.device)
    return RaggedRows(room)


def _finished(layered: LayeredModel, run: Callable[[], Any], states: Tensor, like: Any) -> Tensor:
    """What the stack makes of what its last layer gives, a norm mostly; `like` is what a layer
    returns."""
    rest = [None] * (len(like) - 1) if isinstance(like, tuple) else []

    def answer(*args: Any, **kwargs: Any) -> Any:
        return (states, *rest) if isinstance(like, tuple) else states

    with answering(layered.layers, answer):
        found: Tensor = run().last_hidden_state
    return found


def _kept(calls: Sequence[Call], memory: PairMemory, batch: slice) -> tuple[Call, ...]:
    return tuple(
        Call(
            args=memory.kept(call.args, batch),
            kwargs=memory.kept(call.kwargs, batch),
            keyword=call.keyword,
        )
        for call in calls
    )


def _calls_of(by_pair: Sequence[Sequence[Call]], index: int, memory: PairMemory) -> Calls:
    def of(batch: slice) -> Call:
        call = by_pair[batch.start][index]
        return Call(
            args=memory.whole(call.args, batch),
            kwargs=memory.whole(call.kwargs, batch),
            keyword=call.keyword,
        )

    return of
