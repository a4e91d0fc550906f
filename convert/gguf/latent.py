"""Multi-head latent attention in a file: llama.cpp's deepseek2, as `--home mla` makes models of it.

Of its loader (load_arch_hparams in src/models/deepseek2.cpp): attention.q_lora_rank has to be there
but in models of the depths of DeepSeek-V2-Lite and its like, so that it is 0 where queries have no
latent, and so have the sizes of experts, which no layer has that is before
leading_dense_block_count. Its norms all add the one epsilon of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.arch.rehoming.deepseek import TARGET
from headcount.model.mixers import LatentAttention

from ..latent.mla_shape import NORM_EPSILON
from ..plan.errors import CannotConvertError
from .gguf_file import GgufTensor, KeyValue
from .keys import setting
from .names import without_layer
from .types import LATENT_DOWN

_AS_MADE: Mapping[str, Any] = {
    "model_type": TARGET,
    "q_lora_rank": None,
    "rms_norm_eps": NORM_EPSILON,
    "rope_interleave": True,
    "rope_parameters.rope_type": "default",
    "attention_bias": False,
}


def check_latent_file(config: Any, label: str) -> None:
    """Raises CannotConvertError for a model that is not as `--home mla` makes them: what else the
    class and llama.cpp compute is not held against each other."""
    dense = setting(config, "first_k_dense_replace")
    if dense < config.num_hidden_layers:
        raise _refusal(label, f"all layers are dense, and of this model's the first {dense}")
    for name, wanted in _AS_MADE.items():
        found = setting(config, name)
        if found != wanted:
            raise _refusal(label, f"{name} is {wanted!r}, and this model has {found!r}")


def latent_keys(architecture: str, mixer: LatentAttention, config: Any) -> Iterator[KeyValue]:
    """Those beside the keys that all attentions have."""
    numbers = {
        "attention.q_lora_rank": mixer.q_lora_rank or 0,
        "attention.kv_lora_rank": mixer.kv_lora_rank,
        "attention.key_length_mla": mixer.head_dim,
        "attention.value_length_mla": mixer.v_head_dim,
        "leading_dense_block_count": config.num_hidden_layers,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_count": 0,
    }
    for name, number in numbers.items():
        yield KeyValue(f"{architecture}.{name}", "u32", number)


def latent_notes(tensors: Sequence[GgufTensor]) -> Iterator[str]:
    """What not to do with the way down to the latent, whose numbers are so small."""
    kinds = {one.type for one in tensors if without_layer(one.name) == LATENT_DOWN}
    if not kinds:
        return
    if "F32" in kinds:
        yield (
            "attn_kv_a_mqa is float32, which llama.cpp's Metal and Vulkan round to float16 in"
            " prompts, where its numbers are too small for that: for those add --dtype bfloat16 or"
            " q8_0, which keep it in bfloat16"
        )
    kind = "f32" if "F32" in kinds else "bf16"
    yield (
        "attn_kv_a_mqa has numbers that are too small for float16, and for the scales of blocks:"
        f" give llama-quantize --tensor-type attn_kv_a_mqa={kind}"
    )


def _refusal(label: str, what: str) -> CannotConvertError:
    return CannotConvertError(
        f"{label}: GGUF files of latent attention are written here of what --home mla makes, where"
        f" {what}; convert without --format gguf"
    )
