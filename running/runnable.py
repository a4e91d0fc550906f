"""A model folder, checked before transformers sees it. Nothing of the model is executed here."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from headcount.arch.model_classes import GROUPED_CLASS, model_classes
from headcount.arch.our_types import base_type, is_ours
from headcount.model.errors import HeadcountError, UnsupportedModelError
from headcount.sources.adapter import find_adapter
from headcount.sources.checkpoint import (
    ADAPTER_CONFIG,
    INDEX,
    SINGLE,
    Checkpoint,
    find_weights,
    read_checkpoint,
)
from headcount.sources.identity import FileIdentity
from headcount.sources.json_file import read_json, read_json_file

from .asked_for import need_folder
from .boundary import third_party
from .strict_presence import strict_presence

# Other values can name a repository of kernels, which transformers would fetch and run
# (CVE-2026-4372), or a package that is not part of the `convert` extra.
BUILT_IN_ATTENTION = ("eager", "sdpa")

# What configs call the number of positions of a decoder.
_POSITIONS = (
    "max_position_embeddings",
    "max_target_positions",
    "max_decoder_position_embeddings",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnableModel:
    """One model to measure: `id` as the user wrote it, its folder, its config. `files` are config
    and weights as they were when they were looked at, before transformers read any."""

    id: str
    folder: Path
    config: PreTrainedConfig
    files: tuple[tuple[Path, FileIdentity], ...]

    @property
    def vocab_size(self) -> int:
        """Tokens that the model predicts over."""
        size = getattr(self.config.get_text_config(), "vocab_size", None)
        if not isinstance(size, int):
            raise UnsupportedModelError(f"{self.id}: config.json gives no vocab_size")
        return size

    @property
    def max_position_embeddings(self) -> int | None:
        """Positions that the model, or its decoder, was made for; None where its config sets no
        limit."""
        text = self.config.get_text_config()
        limits = (getattr(text, key, None) for key in _POSITIONS)
        return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)


def open_runnable(name: str, *, encoder_decoders: bool = False) -> RunnableModel:
    """The model in the folder `name`, a causal language model or, with `encoder_decoders`, one of
    these. Raises HeadcountError for what cannot or may not be run."""
    need_folder(name)
    folder = Path(name)
    _refuse_adapter(folder)
    raw, config_file = read_json_file(folder / "config.json")
    _refuse_own_code(folder / "config.json", _without_our_code(raw))
    weights = _check_weights(folder)
    with third_party(f"{folder / 'config.json'}: transformers cannot use it"), strict_presence():
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not (encoder_decoders and is_encoder_decoder(config)):
        _refuse_other_tasks(name, config)
    read = (config_file, weights.index_file, *(header.read for header in weights.files))
    files = tuple((file.path, file.identity) for file in read if file is not None)
    return RunnableModel(id=name, folder=folder, config=config, files=files)


def is_encoder_decoder(config: PreTrainedConfig) -> bool:
    """Whether the model has an encoder and a decoder, and not the decoder alone."""
    named = config.architectures or ["ForConditionalGeneration"]
    causal = any(name.endswith("ForCausalLM") for name in named)
    return bool(getattr(config, "is_encoder_decoder", False)) and not causal


def _refuse_adapter(folder: Path) -> None:
    """transformers would load one on top where peft is installed, and not where it is not."""
    adapter = find_adapter(folder)
    if adapter is not None and adapter.is_alone:
        raise UnsupportedModelError(
            f"{folder}: holds {adapter.words} and no weights of a model: {adapter.where_to_go}, or"
            " merge both (peft: merge_and_unload) and name the result"
        )
    if adapter is not None:
        raise UnsupportedModelError(
            f"{folder / ADAPTER_CONFIG}: {adapter.words} beside the model, which transformers loads"
            " on top where peft is installed: merge it (peft: merge_and_unload) to run both, or"
            " move its files away to run the model alone"
        )


def _without_our_code(raw: dict[str, Any]) -> dict[str, Any]:
    """The config without the code that a conversion names: for its types transformers takes the
    class of this package, and what lies in the folder is not run."""
    model_type = str(raw.get("model_type"))
    ours = is_ours(model_type) and bool(model_classes(base_type(model_type)))
    return {key: value for key, value in raw.items() if not (ours and key == "auto_map")}


def refuse_tokenizer_code(folder: Path) -> None:
    """Raises UnsupportedModelError if the tokenizer in `folder` asks for code of its own."""
    path = folder / "tokenizer_config.json"
    if path.exists():
        _refuse_own_code(path, read_json(path))


def _refuse_own_code(path: Path, raw: dict[str, Any]) -> None:
    for key, value in _entries(raw):
        if key == "auto_map":
            raise UnsupportedModelError(
                f"{path}: auto_map asks for code of the model's own, which is never run; if"
                " transformers has the model itself, remove auto_map from a copy"
            )
        if key == "trust_remote_code" and value:
            raise UnsupportedModelError(f"{path}: sets trust_remote_code: remove it from a copy")
        if key.endswith(("attn_implementation", "attn_implementation_internal")):
            _refuse_foreign_attention(path, key, value)


def _refuse_foreign_attention(path: Path, key: str, value: Any) -> None:
    if value is not None and value not in BUILT_IN_ATTENTION:
        raise UnsupportedModelError(
            f"{path}: {key} is {value!r}, which may load foreign code; evaluate runs"
            f" {' or '.join(BUILT_IN_ATTENTION)}: remove it from a copy"
        )


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of nested objects and lists, with its value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield from item.items()
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _check_weights(folder: Path) -> Checkpoint:
    weights = find_weights(folder)
    if weights is None or weights.name not in (SINGLE, INDEX):
        raise HeadcountError(
            f"{folder}: no {SINGLE} or {INDEX}; weights in other formats are not loaded:"
            " save the model as safetensors"
        )
    checkpoint = read_checkpoint(weights)
    if checkpoint.missing:
        raise HeadcountError(
            f"{weights}: shards are missing: {', '.join(sorted(checkpoint.missing)[:3])}"
            f" ({len(checkpoint.missing)} in all)"
        )
    return checkpoint


def _refuse_other_tasks(name: str, config: PreTrainedConfig) -> None:
    model_type = base_type(config.model_type)
    built = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
    declared = [given.removeprefix(GROUPED_CLASS) for given in config.architectures or []]
    what = ", ".join(declared) or f"model_type {model_type}"
    is_causal = any(_is_causal(architecture, built) for architecture in declared)
    if not declared:
        is_causal = model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if built is None or getattr(config, "is_encoder_decoder", False) or not is_causal:
        raise UnsupportedModelError(
            f"{name}: {what} is not a causal language model: only models that predict the next"
            " token from those before it are run here"
        )


def _is_causal(architecture: str, built: str | None) -> bool:
    return architecture == built or architecture.endswith(("ForCausalLM", "LMHeadModel"))
