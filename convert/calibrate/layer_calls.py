"""What a model hands to its layers, recorded once and used for every batch of that size."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headcount.running.boundary import third_party

from ..plan.errors import CannotConvertError
from .layered_model import LayeredModel
from .state_rows import StateRows


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """The arguments of a layer but its hidden states: `keyword` names those, None: they stand
    first."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    keyword: str | None

    def run(self, layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        """The hidden states that `layer` gives."""
        return hidden_of(self.output(layer, hidden))

    def output(self, layer: nn.Module, hidden: torch.Tensor) -> Any:
        """All that `layer` returns."""
        if self.keyword is None:
            return layer(hidden, *self.args, **self.kwargs)
        return layer(*self.args, **{**self.kwargs, self.keyword: hidden})


# The call of one layer for the batch of these rows.
Calls = Callable[[slice], Call]


def always(call: Call) -> Calls:
    """The same call for all batches."""
    return lambda _: call


class Stop(Exception):
    """Ends a forward pass whose rest nobody needs."""


def hidden_of(output: Any) -> torch.Tensor:
    """The hidden states of what a layer returns: a tensor, or the first of a tuple."""
    found: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return found


def record(
    layered: LayeredModel,
    ids: torch.Tensor,
    batches: Sequence[slice],
    into: Sequence[StateRows],
    mine: Sequence[slice] | None = None,
) -> tuple[Call, ...]:
    """The call of every layer for a batch of `ids` [rows, tokens], which all batches share; the
    embedded rows are written to each of `into`: of all batches, or of those that are `mine`. Raises
    CannotConvertError if a layer takes more than hidden states that depends on the text."""
    with layered.embeddings() as model, third_party("transformers cannot run the model"):

        def run(batch: slice) -> Callable[[], object]:
            given = ids[batch].to(layered.device)
            return lambda: model(input_ids=given, use_cache=False)

        with layered.layer(0) as layer:
            like = output_of_first(layered, layer, run(batches[0]))
        _, calls = recorded(layered, run(batches[0]), like)
        for batch in batches if mine is None else mine:
            hidden, found = recorded(layered, run(batch), like)
            for rows in into:
                rows[batch] = hidden
            _refuse_text(layered, calls, found)
    return calls


def output_of_first(layered: LayeredModel, layer: nn.Module, run: Callable[[], object]) -> Any:
    """What the first `layer` returns where the model is `run`, to return as much in its place."""
    hidden, calls = recorded(layered, run, None)
    return calls[0].output(layer, hidden)


def recorded(
    layered: LayeredModel, run: Callable[[], object], like: Any
) -> tuple[torch.Tensor, tuple[Call, ...]]:
    """What the first layer is given where the model is `run`, and the calls of all layers; of the
    first alone if `like` is None."""
    calls: list[Call] = []
    first: list[torch.Tensor] = []
    last = 1 if like is None else len(layered.layers)

    def answer(*args: Any, **kwargs: Any) -> Any:
        keyword = None if args else next(iter(kwargs))
        hidden = args[0] if keyword is None else kwargs.pop(keyword)
        calls.append(Call(args=args[1:], kwargs=kwargs, keyword=keyword))
        first.append(hidden)
        if len(calls) == last:
            raise Stop
        return (hidden, *like[1:]) if isinstance(like, tuple) else hidden

    with answering(layered.layers, answer):
        try:
            run()
        except Stop:
            return first[0], tuple(calls)
    raise CannotConvertError(
        f"{layered.source.folder}: its class runs {len(calls)} of {last} layers, so that it cannot"
        " be calibrated: use --method merge without --calibration"
    )


@contextmanager
def answering(layers: nn.ModuleList, answer: Any) -> Iterator[None]:
    """Inside, `answer` is called in place of each layer."""
    for layer in layers:
        layer.forward = answer
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _refuse_text(layered: LayeredModel, calls: Sequence[Call], others: Sequence[Call]) -> None:
    for index, (call, other) in enumerate(zip(calls, others, strict=True)):
        if not (_same(call.args, other.args) and _same(call.kwargs, other.kwargs)):
            raise CannotConvertError(
                f"{layered.source.folder}: layer {index} is given more of the text than hidden"
                " states, so that it cannot be calibrated alone: use --method merge without"
                " --calibration"
            )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or bool(one == other)
