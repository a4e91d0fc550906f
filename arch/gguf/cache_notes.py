"""What llama.cpp caches otherwise than it is counted here, by architecture of GGUF files."""

from collections.abc import Mapping

CACHE_NOTES: Mapping[str, str] = {
    "t5": "llama.cpp caches no K/V of the cross-attention, but the encoder's output, as float32.",
    "deepseek4": "The compressed caches of deepseek4 are not counted: audit its Hugging Face"
    " config.",
}
