"""A text on its way through a model, layer by layer: what each layer is given, and the loss."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from headcount.running.boundary import third_party

from ..attention_map.attention_tensors import AttentionTensors
from ..calibrate.calibration_text import CalibrationText
from ..calibrate.layer_calls import Call, answering, hidden_of, record
from ..calibrate.layered_model import LayeredModel
from ..calibrate.state_rows import StateRows, new_rows
from .gated_heads import HeadOutputs


class TextRun:
    """`given[i]` are the rows that layer i is given, and after the last one what that gives;
    `means` the mean of what each head of an attention gives over the text, [H, dv]. One layer's
    weights are in memory at a time."""

    def __init__(self, layered: LayeredModel, text: CalibrationText) -> None:
        self.layered, self.text = layered, text
        found = layered.source.attention_map.attentions
        self.attentions: dict[int, AttentionTensors] = {i: one for (i, _), one in found.items()}
        count = len(layered.layers)
        template = torch.empty(text.ids.shape[1], layered.hidden_size, dtype=layered.dtype)
        self.given: list[StateRows] = [
            new_rows(len(text.ids), template, held=count + 2, device=layered.device)
            for _ in range(count + 1)
        ]
        self.calls: tuple[Call, ...] = record(layered, text.ids, text.batches, self.given[:1])
        self.means: dict[int, torch.Tensor] = {}
        self._gone: Mapping[int, Sequence[int]] = {}
        self._rest: tuple[object, ...] | None = None

    @torch.no_grad()
    def forward(self, gone: Mapping[int, Sequence[int]] | None = None) -> None:
        """Fills `given` and `means`. Of each layer the heads that are `gone` give nothing."""
        self._gone = gone or {}
        for index in range(len(self.calls)):
            with self.layered.layer(index) as layer:
                self._layer(index, layer)

    def _layer(self, index: int, layer: nn.Module) -> None:
        sums: list[torch.Tensor] = []
        outputs, staying = self.outputs(index), self.staying(index)
        for batch in self.text.batches:
            hidden = self.given[index][batch]

            def note(heads: torch.Tensor) -> torch.Tensor:
                sums.append(heads.double().sum((0, 1)))
                return heads if staying is None else heads * staying[:, None]

            with outputs.gated(layer, len(hidden), note) if outputs else _plain():
                output = self.calls[index].output(layer, hidden)
            if index == 0:
                self._rest = output[1:] if isinstance(output, tuple) else None
            self.given[index + 1][batch] = hidden_of(output)
        if outputs:
            total = torch.stack(sums).sum(0) / self.text.tokens
            self.means[index] = total.to(self.layered.dtype)

    def outputs(self, index: int) -> HeadOutputs | None:
        """What the heads of a layer give; None for one without attention."""
        tensors = self.attentions.get(index)
        return None if tensors is None else HeadOutputs(self.layered, tensors)

    def staying(self, index: int) -> torch.Tensor | None:
        """[H]: 0 for the heads of a layer that are gone, else 1; None: none is."""
        gone = list(self._gone.get(index, ()))
        if not gone:
            return None
        heads = self.attentions[index].mixer.num_attention_heads
        found = torch.ones(heads, dtype=self.layered.dtype, device=self.layered.device)
        found[gone] = 0
        return found

    @torch.no_grad()
    def loss(self) -> float:
        """The mean of all rows, in nats a token, of the last way `forward`."""
        with self.layered.around() as model:
            found = [
                self.losses(model, batch, self.given[-1][batch]) for batch in self.text.batches
            ]
        return float(torch.cat(found).double().mean())

    def losses(self, model: nn.Module, batch: slice, hidden: torch.Tensor) -> torch.Tensor:
        """[B]: the mean loss of each row's tokens but the first, in nats, where the last layer
        gives `hidden`. Differentiable."""
        ids, logits = self._ids(batch), self.logits(model, batch, hidden)
        found = nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
        )
        by_row: torch.Tensor = found.unflatten(0, (len(ids), -1))
        return by_row.mean(-1)

    def logits(self, model: nn.Module, batch: slice, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, vocabulary] where the last layer gives `hidden`. `model` has its embeddings, last
        norm and head. Differentiable."""

        def answer(*args: object, **kwargs: object) -> object:
            return hidden if self._rest is None else (hidden, *self._rest)

        with answering(self.layered.layers, answer), third_party("transformers cannot run it"):
            found: torch.Tensor = model(input_ids=self._ids(batch), use_cache=False).logits
        return found

    def _ids(self, batch: slice) -> torch.Tensor:
        return self.text.ids[batch].to(self.layered.device)

    def close(self) -> None:
        """Gives the rows back."""
        for rows in self.given:
            rows.close()


@contextmanager
def _plain() -> Iterator[None]:
    yield
