"""What norms multiply the stream by on its way into an attention, out of it, and to the logits."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.running.boundary import run_model
from headcount.running.norm_gain import gain_and_shift


@dataclass(frozen=True, kw_only=True, slots=True)
class NormGains:
    """Gains [D] by the path of an attention: of the norm that it reads from, and of one on what it
    gives; `last` is that before the output embedding. What is not there has none."""

    before: Mapping[str, Tensor] = field(default_factory=dict)
    after: Mapping[str, Tensor] = field(default_factory=dict)
    last: Tensor | None = None

    def written(self, path: str) -> Tensor | None:
        """What stands between the attention at `path` and the output embedding, [D]."""
        after = self.after.get(path)
        if after is None or self.last is None:
            return self.last if after is None else after
        return after * self.last


@torch.inference_mode()
def norm_gains(model: PreTrainedModel, paths: Collection[str], **inputs: Any) -> NormGains:
    """The gains around the attentions at `paths`, found by running `model` on `inputs`, which may
    be short: who reads what a norm gave, and which norm reads what an attention gave, is told by
    where the numbers lie."""
    seen = _Seen()
    with ExitStack() as stack:
        for handle in seen.watch(model, paths):
            stack.callback(handle.remove)
        run_model(model, use_cache=False, **inputs)
    before = {path: gain_of(norm) for path, norm in seen.before.items()}
    after = {path: gain_of(norm) for path, norm in seen.after.items()}
    return NormGains(
        before={path: gain for path, gain in before.items() if gain is not None},
        after={path: gain for path, gain in after.items() if gain is not None},
        last=None if seen.last is None else gain_of(seen.last),
    )


def gain_of(norm: nn.Module) -> Tensor | None:
    """[D]: what a norm multiplies each number by, float32 on the CPU."""
    found = gain_and_shift(norm)
    return None if found is None else found[0].float().cpu()


class _Seen:
    """Which norm stands where. Tensors are kept, so that no two lie at one place."""

    def __init__(self) -> None:
        self.before: dict[str, nn.Module] = {}
        self.after: dict[str, nn.Module] = {}
        self.last: nn.Module | None = None
        self._kept: list[Tensor] = []
        self._norms: dict[int, nn.Module] = {}
        self._attentions: dict[int, str] = {}

    def watch(self, model: PreTrainedModel, paths: Collection[str]) -> Iterator[Any]:
        for path, module in model.named_modules():
            if "Norm" in type(module).__name__:
                yield module.register_forward_pre_hook(self._norm_reads)
                yield module.register_forward_hook(self._norm_gives)
            if path in paths:
                yield module.register_forward_pre_hook(
                    self._attention_reads(path), with_kwargs=True
                )
                yield module.register_forward_hook(self._attention_gives(path))
        output = model.get_output_embeddings()
        if output is not None:
            yield output.register_forward_pre_hook(self._logits_read)

    def _norm_reads(self, module: nn.Module, args: Any) -> None:
        path = self._attentions.get(args[0].data_ptr()) if args else None
        if path is not None:
            self.after[path] = module

    def _norm_gives(self, module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            self._kept.append(output)
            self._norms[output.data_ptr()] = module

    def _attention_reads(self, path: str) -> Callable[..., None]:
        def reads(module: nn.Module, args: Any, kwargs: Any) -> None:
            given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
            found = [norm for one in given if (norm := self._norms.get(one.data_ptr()))]
            if found:
                self.before[path] = found[0]

        return reads

    def _attention_gives(self, path: str) -> Callable[..., None]:
        def gives(module: nn.Module, args: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) else output
            self._kept.append(first)
            self._attentions[first.data_ptr()] = path

        return gives

    def _logits_read(self, module: nn.Module, args: Any) -> None:
        self.last = self._norms.get(args[0].data_ptr())
