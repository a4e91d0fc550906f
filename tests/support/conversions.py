"""Converting in a test, and looking at what came out."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, WhisperConfig, WhisperForConditionalGeneration

from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.request import ConversionRequest


def run(source: Path, target: Path, kv: int | None = 2, **options: Any) -> ConversionReport:
    """Converts without a progress bar."""
    request = ConversionRequest(source=source, target=target, num_key_value_heads=kv, **options)
    return convert(request, progress=False)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file in `folder`."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def without_blanks(path: Path) -> tuple[bytes, bytes]:
    """Header and tensors of a safetensors file. The blanks between them differ: they say nothing,
    and large files have as many as it takes to share blocks with their source."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return data[8:start].rstrip(b" "), data[start:]


def load_whole(folder: Path, auto_class: Any = AutoModelForCausalLM, **options: Any) -> Any:
    """The model, after asserting that no weight was missing, left over or of another shape."""
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(info.values()), info
    return model.eval()


def generated(model: Any, ids: torch.Tensor, *, tokens: int, **options: Any) -> Any:
    """What a model goes on with, greedily, to the last of so many tokens, with all logits."""
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    return model.generate(
        ids,
        **{"attention_mask": torch.ones_like(ids), **options},
        max_new_tokens=tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )


def small_whisper(heads: int, *, source_positions: int = 10) -> WhisperForConditionalGeneration:
    """In float64, with weights that make every head another; two layers of its decoder have so
    many `heads`."""
    sizes = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 96}
    attention = {"encoder_attention_heads": 4, "decoder_attention_heads": heads, "num_mel_bins": 8}
    length = {"max_source_positions": source_positions, "max_target_positions": 40}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    model = WhisperForConditionalGeneration(WhisperConfig(**sizes, **attention, **length, **tokens))
    for parameter in model.double().parameters():
        parameter.data.normal_(std=0.2)
    return model
