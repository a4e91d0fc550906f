"""Loading a checked folder with transformers: all weights there, nothing fetched, no own code."""

from collections.abc import Iterable, Sequence
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
from .runnable import RunnableModel, is_encoder_decoder
from .strict_presence import strict_presence

TORCH_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device, and what was odd about its checkpoint."""

    runnable: RunnableModel
    model: PreTrainedModel
    warnings: tuple[str, ...]

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")


def resolve_device(name: str | None) -> torch.device:
    """`cpu` or `cuda`; for None, `cuda` where there is one. Raises HeadcountError."""
    has_cuda = torch.cuda.is_available()
    if name is None:
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise HeadcountError(f"device {name!r} is not known: use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise HeadcountError(f"device {name!r}: evaluate runs on cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise HeadcountError(f"device {name!r}: torch finds no such GPU; use --torch-device cpu")
    return device


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
    device: torch.device,
    attention: str | None = None,
) -> LoadedModel:
    """The model with its weights; `attention` is how it computes attention, None as the config has
    it. Raises HeadcountError when any weight would be made up, and SourceChangedError when its
    files are no longer those that were checked."""
    with third_party(f"{runnable.folder}: transformers cannot load it"), strict_presence():
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
        )
        model, info = loaded[0].eval().to(device), loaded[1]
    check_unchanged(runnable.files)
    _refuse_other_shapes(runnable, info["mismatched_keys"])
    _refuse_made_up_weights(runnable, info["missing_keys"])
    return LoadedModel(
        runnable=runnable, model=model, warnings=_unused_weights(runnable, info["unexpected_keys"])
    )


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
