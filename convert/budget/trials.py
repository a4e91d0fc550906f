"""What layers with a smaller cache cost on a text, measured in the source's own class."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import torch
from torch import nn
from tqdm import tqdm

from headcount.running.boundary import out_of_memory_explained, quiet_transformers
from headcount.running.placement import resolve_device
from headcount.running.progress import progress_bar

from ..attention_map.attention_tensors import Where
from ..calibrate.attention_place import attention_place
from ..calibrate.calibration_text import calibration_text
from ..calibrate.free_memory import LESS_MEMORY
from ..calibrate.gram import Gram
from ..calibrate.layer_calls import Stop
from ..calibrate.layer_hooks import input_of
from ..calibrate.layered_model import LayeredModel, assigned
from ..importance.text_run import TextRun
from ..plan.request import CALIBRATION_TOKENS, ConversionRequest
from ..plan.source import ConversionSource
from ..stream.reader import SourceReader
from .search_result import TogetherCost
from .variants import Variants


class Trials:
    """Layers with other tensors, on the rows of a text that were held out: nothing is fitted to
    them. The whole model is in memory."""

    def __init__(self, run: TextRun, model: nn.Module, layers: Sequence[nn.Module]) -> None:
        self._run, self._model, self._layers = run, model, layers

    @property
    def sha256(self) -> str:
        """Of the text."""
        return self._run.text.sha256

    @property
    def tokens(self) -> int:
        """Those that are scored."""
        return sum(self._run.text.ids[batch].numel() for batch in self._run.text.held)

    def inputs(self, where: Where, width: int) -> torch.Tensor:
        """[width, width]: the second moment of what the attention reads, of the other rows, on
        the CPU."""
        run, index = self._run, where[0]
        place = attention_place(run.layered, run.attentions[index])
        sums, count = Gram(width, device=run.layered.device), 0

        def take(seen: torch.Tensor) -> None:
            nonlocal count
            rows = seen.reshape(-1, seen.shape[-1])
            sums.add(rows)
            count += len(rows)

        for batch in run.text.fitted:
            with input_of(self._layers[index], place.query, take, stop=True), suppress(Stop):
                run.calls[index].run(self._layers[index], run.given[index][batch])
        return sums.result().cpu() / count

    def alone(self, index: int, variants: Variants, sizes: Sequence[int]) -> dict[int, float]:
        """KL(source || result), in nats a token, of layer `index` alone with each of `sizes`. The
        layers before it are not run again."""
        made = {size: variants.of(index, size).tensors for size in sizes}
        found = dict.fromkeys(sizes, 0.0)
        for batch in self._run.text.held:
            before = self._log_probabilities(batch, self._run.given[-1][batch])
            for size, tensors in made.items():
                with assigned(self._model, self._inside(tensors)):
                    after = self._log_probabilities(batch, self._after(index, batch))
                found[size] += _divergence(before, after)
        return {size: total / len(self._run.text.held) for size, total in found.items()}

    def together(self, variants: Variants, sizes: Mapping[int, int]) -> TogetherCost:
        """What all layers with their `sizes` cost."""
        losses, divergences = [], []
        with ExitStack() as stack:
            for index, size in sizes.items():
                tensors = self._inside(variants.of(index, size).tensors)
                stack.enter_context(assigned(self._model, tensors))
            for batch in self._run.text.held:
                given, hidden = self._run.given[-1][batch], self._after(0, batch)
                added = self._run.losses(self._model, batch, hidden) - self._run.losses(
                    self._model, batch, given
                )
                losses.append(float(added.double().mean()))
                divergences.append(
                    _divergence(
                        self._log_probabilities(batch, given),
                        self._log_probabilities(batch, hidden),
                    )
                )
        count = len(self._run.text.held)
        return TogetherCost(delta_loss=sum(losses) / count, kl_divergence=sum(divergences) / count)

    def _inside(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        layered = self._run.layered
        return {
            layered.inside(name): value.to(layered.device, layered.dtype)
            for name, value in tensors.items()
        }

    def _after(self, index: int, batch: slice) -> torch.Tensor:
        """What the last layer gives where those from `index` on run."""
        hidden = self._run.given[index][batch]
        for number in range(index, len(self._layers)):
            hidden = self._run.calls[number].run(self._layers[number], hidden)
        return hidden

    def _log_probabilities(self, batch: slice, hidden: torch.Tensor) -> torch.Tensor:
        return self._run.logits(self._model, batch, hidden).float().log_softmax(-1)


def _divergence(before: torch.Tensor, after: torch.Tensor) -> float:
    """KL, the mean over tokens."""
    return float((before.exp() * (before - after)).sum(-1, dtype=torch.float64).mean())


@contextmanager
def trials_on_text(source: ConversionSource, request: ConversionRequest) -> Iterator[Trials]:
    """On the request's calibration text. Raises HeadcountError."""
    assert request.calibration is not None
    with (
        SourceReader(source.checkpoint.files) as reader,
        quiet_transformers(),
        out_of_memory_explained(LESS_MEMORY),
        torch.no_grad(),
        ExitStack() as stack,
    ):
        device = resolve_device(request.device)
        layered = LayeredModel(source, reader, device=device)
        tokens = request.calibration_tokens or CALIBRATION_TOKENS
        text = calibration_text(
            source,
            layered.runnable,
            request.calibration,
            tokens,
            request.seed,
            row_tokens=request.calibration_row_tokens,
        )
        run = TextRun(layered, text)
        stack.callback(run.close)
        run.forward()
        model = stack.enter_context(layered.around())
        layers = [stack.enter_context(layered.layer(index)) for index in range(len(run.calls))]
        yield Trials(run, model, layers)


def passes_bar(total: float) -> "tqdm[None]":
    """Forward passes over the text, as a bar on stderr if that is a terminal."""
    return progress_bar(None, "layers alone", "pass", total=round(total, 1))
