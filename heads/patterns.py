"""Attention patterns as a model computes them: seen one attention at a time, reduced, let go."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.model.errors import UnsupportedModelError
from headcount.running.boundary import run_model
from headcount.running.built.built_layers import decoder_of

# Given the path of an attention in the model and its pattern, [batch, heads, queries, keys].
Take = Callable[[str, Tensor], None]

_OVER_ONE = 1e-2  # how far rounding (bfloat16) may take the sum of a row beyond one


@torch.inference_mode()
def run_for_patterns(model: PreTrainedModel, take: Take, *, queries: int, **inputs: Any) -> None:
    """Runs `model` on `inputs` of `queries` tokens of the decoder, and hands the pattern of each of
    its attentions to `take`, in the order in which they are computed.

    A pattern leaves the outputs as soon as it was taken, so that no two of them are in memory. The
    model must have been loaded with `eager` attention. Raises HeadcountError.
    """
    last = {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}
    with _watching(model, queries, take):
        run_model(model, use_cache=False, output_attentions=True, **last, **inputs)


@contextmanager
def _watching(model: PreTrainedModel, queries: int, take: Take) -> Iterator[None]:
    watch = _Watch(model, queries, take)
    with ExitStack() as stack:
        for path, module in model.named_modules():
            # Before those by which transformers collects what is returned.
            handle = module.register_forward_hook(watch.hook(path), prepend=True)
            stack.callback(handle.remove)
        yield


class _Watch:
    def __init__(self, model: PreTrainedModel, queries: int, take: Take) -> None:
        decoder = decoder_of(model)
        paths = (path for path, module in model.named_modules() if module is decoder)
        self._decoder, self._queries, self._take = next(paths), queries, take
        self._taken: set[str] = set()

    def hook(self, path: str) -> Callable[[nn.Module, Any, Any], Any]:
        is_decoder = not self._decoder or f"{path}.".startswith(f"{self._decoder}.")

        def see(module: nn.Module, args: Any, output: Any) -> Any:
            at = None if path in self._taken else pattern_place(output, self._queries)
            if at is None:
                return None
            # What holds this module returns other tensors of the same shape, such as T5's biases.
            self._taken |= set(_above(path))
            if is_decoder:
                _check_rows(path, output[at])
                self._take(path, output[at])
            return type(output)((*output[:at], None, *output[at + 1 :]))

        return see


def _above(path: str) -> Iterator[str]:
    """The paths of the modules that hold the one at `path`."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def pattern_place(output: Any, queries: int) -> int | None:
    """Which of the values that a module returns is a pattern, [batch, heads, queries, keys]: the
    last of that shape, since T5 returns its biases before; None if there is none."""
    if type(output) not in (tuple, list):  # not an output of a whole model, which has names
        return None
    for at in range(len(output) - 1, 0, -1):
        value = output[at]
        if isinstance(value, Tensor) and value.dim() == 4 and value.shape[2] == queries:
            return at if value.is_floating_point() else None
    return None


def _check_rows(path: str, pattern: Tensor) -> None:
    """Raises UnsupportedModelError for what cannot be attention weights."""
    least, most = pattern.min().item(), pattern.sum(dim=-1, dtype=torch.float32).max().item()
    if not (least >= 0 and most <= 1 + _OVER_ONE):
        raise UnsupportedModelError(
            f"{path}: what it returns as attention weights has rows that sum up to {most:.4g} and a"
            f" least value of {least:.4g}: not what a softmax gives (or not finite: see headcount"
            " audit --scan)"
        )


def check_square(path: str, pattern: Tensor) -> None:
    """Raises UnsupportedModelError for a pattern of self-attention whose keys are not its queries,
    as where a class joins them with those of an encoding."""
    queries, keys = pattern.shape[-2:]
    if queries != keys:
        raise UnsupportedModelError(
            f"{path}: its pattern has {keys} keys for {queries} queries: which tokens the keys are"
            " cannot be told"
        )
