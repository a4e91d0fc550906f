"""Which engines load a model whose K/V heads were merged, by its model_type.

From each engine's own list of architectures: vLLM's model registry (0002bff), the list of SGLang's
documentation and its models folder, and llama.cpp's converter (00bdaa1). A class that is listed
reads its number of K/V heads from config.json, as that of transformers does, but for those in the
comments. transformers loads everything that stays in its class.
"""

from collections.abc import Iterator

# vLLM: PhiForCausalLM has a K/V head for each query head whatever the config says.
VLLM = frozenset(
    {
        *(
            "afmoe",
            "apertus",
            "arcee",
            "aria",
            "audioflamingo3",
            "aya_vision",
            "bamba",
            "chameleon",
        ),
        *("cohere", "cohere2", "cohere2_vision", "cwm", "dbrx", "dots1", "emu3", "ernie4_5"),
        *("ernie4_5_moe", "ernie4_5_vl_moe", "exaone", "exaone4", "falcon", "falcon_h1"),
        *("flex_olmo", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"),
        *("glm", "glm4", "glm4_moe", "glm4v", "glm4v_moe", "glmasr", "gpt_bigcode", "gpt_oss"),
        *("granite", "granite_speech", "granitemoe", "granitemoehybrid", "granitemoeshared"),
        *("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl", "idefics3", "internlm3", "internvl"),
        *("jais2", "jamba", "lfm2", "lfm2_moe", "llama", "llama4", "llama4_text", "llava"),
        *("llava_next", "llava_next_video", "llava_onevision", "mimo_v2_flash", "minimax"),
        *("minimax_m2", "mistral", "mistral3", "mixtral", "nemotron", "nemotron_h", "olmo"),
        *("olmo2", "olmo3", "olmoe", "paddleocr_vl", "paligemma", "phi3", "qwen2"),
        *("qwen2_5_omni", "qwen2_5_vl", "qwen2_audio", "qwen2_moe", "qwen2_vl", "qwen3"),
        *("qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_vl", "qwen3_vl_moe", "seed_oss"),
        *("smollm3", "smolvlm", "stablelm", "starcoder2", "voxtral", "zamba2"),
    }
)
SGLANG = frozenset(
    {
        *("afmoe", "apertus", "arcee", "bamba", "cohere", "cohere2", "cohere2_moe"),
        *("cohere2_vision", "dbrx", "exaone", "gemma", "gemma2", "gemma3", "gemma3_text"),
        *("gpt_oss", "granite", "llama", "llama4", "llava", "llava_onevision", "mistral"),
        *("mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_moe"),
        *("qwen3_next", "qwen3_5", "qwen3_vl", "stablelm"),
    }
)
# llama.cpp: its converter for Phi writes the number of query heads, and that for GPTBigCode 1.
LLAMA_CPP = frozenset(
    {
        *("afmoe", "apertus", "arcee", "audioflamingo3", "bamba", "bitnet", "chameleon", "cohere"),
        *("cohere2", "cohere2_moe", "dbrx", "dots1", "ernie4_5", "ernie4_5_moe", "exaone"),
        *("exaone4", "exaone4_5", "exaone_moe", "falcon", "falcon_h1", "gemma", "gemma2"),
        *("gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text"),
        *("gemma4_unified", "glm", "glm4", "glm4_moe", "glm4v", "glm4v_moe", "glm_ocr"),
        *("gpt_bigcode", "gpt_oss", "granite", "granite_speech", "granite_speech_plus"),
        *("granitemoe", "granitemoehybrid", "granitemoeshared", "hunyuan_v1_dense"),
        *("hunyuan_v1_moe", "hunyuan_vl", "internlm3", "iquestcoder", "jais2", "jamba", "janus"),
        *("lfm2", "lfm2_moe", "llama", "llama4", "llama4_text", "llava", "mellum"),
        *("mimo_v2_flash", "minimax_m2", "ministral3", "mistral", "mistral3", "mixtral"),
        *("nemotron", "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "paddleocr_vl", "phi3"),
        *("qwen2", "qwen2_5_vl", "qwen2_audio", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_5"),
        *("qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_asr", "qwen3_moe"),
        *("qwen3_next", "qwen3_omni_moe", "qwen3_vl", "qwen3_vl_moe", "sarvam_moe", "seed_oss"),
        *("smollm3", "solar_open", "stablelm", "starcoder2", "step3p7", "voxtral"),
    }
)


def engines(model_type: str) -> Iterator[str]:
    """The engines that load a config.json of `model_type` with fewer K/V heads."""
    yield "transformers"
    for name, types in (("vLLM", VLLM), ("SGLang", SGLANG), ("llama.cpp", LLAMA_CPP)):
        if model_type in types:
            yield name
