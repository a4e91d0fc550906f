"""Loading a checked folder with transformers: all weights there, nothing fetched, no own code."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedConfig,
    PreTrainedModel,
)

from headcount.model.dtypes import resolve_dtype
from headcount.model.errors import HeadcountError, InvalidWeightsError
from headcount.sources.identity import check_unchanged

from .boundary import third_party
from .placement import Placement
from .runnable import RunnableModel, is_encoder_decoder
from .strict_presence import strict_presence

TORCH_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

# Of a model that is spread: accelerate fills the GPUs evenly, then main memory, then the disk.
DEVICE_MAP: str | dict[str, str] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device, and what was odd about its checkpoint."""

    runnable: RunnableModel
    model: PreTrainedModel
    warnings: tuple[str, ...]

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")


def resolve_load_dtype(name: str | None) -> torch.dtype | None:
    """The dtype to compute in; None, the checkpoint's own, for None. Raises HeadcountError."""
    if name is None:
        return None
    dtype = resolve_dtype(name)
    if dtype not in TORCH_DTYPES:
        raise HeadcountError(f"--dtype {name}: models are run in {', '.join(TORCH_DTYPES)}")
    return TORCH_DTYPES[dtype]


def load_model(
    runnable: RunnableModel,
    *,
    dtype: torch.dtype | None,
    place: Placement,
    attention: str | None = None,
) -> LoadedModel:
    """The model with its weights; `attention` is how it computes attention, None as the config has
    it. Raises HeadcountError when any weight would be made up, and SourceChangedError when its
    files are no longer those that were checked."""
    cannot = f"{runnable.folder}: transformers cannot load it"
    with third_party(cannot), strict_presence(), _in_every_process():
        loaded: Any = auto_class(runnable.config).from_pretrained(
            runnable.folder,
            config=runnable.config,
            dtype="auto" if dtype is None else dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they are listed; they are refused below
            **({} if attention is None else {"attn_implementation": attention}),
            **({"device_map": DEVICE_MAP} if place.spread else {}),
        )
        model, info = loaded[0].eval(), loaded[1]
        if place.spread:
            _leave_positions(model)
        else:
            model.to(place.inputs)
    check_unchanged(runnable.files)
    _refuse_other_shapes(runnable, info["mismatched_keys"])
    _refuse_made_up_weights(runnable, info["missing_keys"])
    return LoadedModel(
        runnable=runnable, model=model, warnings=_unused_weights(runnable, info["unexpected_keys"])
    )


@contextmanager
def _in_every_process() -> Iterator[None]:
    """transformers leaves a model without weights in all processes but one where the launcher says
    that FSDP hands them out, which nothing of ours does."""
    name = "FSDP_CPU_RAM_EFFICIENT_LOADING"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _leave_positions(model: PreTrainedModel) -> None:
    """Which logits are wanted stays on the CPU, wherever the last layer has put what they are made
    of: accelerate would take it to the first device."""
    hook: Any = getattr(model, "_hf_hook", None)
    if hook is not None:
        hook.skip_keys = [*_listed(hook.skip_keys), "logits_to_keep"]


def _listed(keys: str | Sequence[str] | None) -> Sequence[str]:
    return [keys] if isinstance(keys, str) else keys or ()


def auto_class(config: PreTrainedConfig) -> Any:
    """transformers' class that makes a causal model or an encoder-decoder of a config."""
    if not is_encoder_decoder(config):
        return AutoModelForCausalLM
    speech = type(config) in AutoModelForSpeechSeq2Seq._model_mapping
    return AutoModelForSpeechSeq2Seq if speech else AutoModelForSeq2SeqLM


def _refuse_other_shapes(
    runnable: RunnableModel, mismatched: Iterable[tuple[str, Sequence[int], Sequence[int]]]
) -> None:
    for name, stored, wanted in sorted(mismatched):
        raise InvalidWeightsError(
            f"{runnable.folder}: tensor {name!r} is {list(stored)}, config.json makes it"
            f" {list(wanted)}: weights and config do not belong together (`headcount audit` says"
            " more)"
        )


def _refuse_made_up_weights(runnable: RunnableModel, missing: set[str]) -> None:
    if missing:
        raise InvalidWeightsError(
            f"{runnable.folder}: the weights lack {_some(missing)}; transformers would fill them"
            " with random numbers (for an output head: is tie_word_embeddings right?)"
        )


def _unused_weights(runnable: RunnableModel, unexpected: set[str]) -> tuple[str, ...]:
    if not unexpected:
        return ()
    return (f"{runnable.id}: the model has no place for {_some(unexpected)}: not used",)


def _some(names: set[str]) -> str:
    """Two of `names`, and how many there are."""
    shown = ", ".join(sorted(names)[:2])
    return shown if len(names) <= 2 else f"{shown} … ({len(names)} tensors)"
