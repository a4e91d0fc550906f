"""Types that test_every_type leaves out, with the reason for each."""

# Recurrent, convolutional, indexed or compressed state, and loops over layers.
ELSEWHERE = frozenset(
    {
        *("axk2", "bailing_hybrid", "bamba", "blt", "cpmant", "deepseek_v32", "deepseek_v4"),
        *("dory", "dots3_note", "dots3_note_text", "falcon_h1", "falcon_mamba", "glm5_next"),
        *("glm_moe_dsa", "granitemoehybrid", "hrm_text", "hy_v4", "hy_v4_vl", "inkling2"),
        *("inkling2_loop", "inkling2_loop_text", "inkling2_text", "inkling_mm_model"),
        *("inkling_text", "jamba", "kimi_linear", "lara_mini", "lfm2", "lfm2_moe", "lfm2_vl"),
        *("lfm3", "lfm3_vl", "mamba", "mamba2", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7"),
        *("minimax", "minimax_m3_vl", "minimax_m3_vl_text", "mistral_large4"),
        *("musicgen_melody", "nemo_speechlm", "nemotron_h", "nemotron_h_omni", "olmo_hybrid"),
        *("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
        *("qwen4_exp", "qwen4_exp_text", "recurrent_gemma", "reformer", "rwkv"),
        *("unlimited_ocr", "xlnet", "xlstm", "zamba", "zamba2", "zaya"),
    }
)

# No row yet. All but idefics are encoders: none keeps a cache.
NOT_AUDITED = {
    "convbert": "its attention has convolutions beside the heads",
    "fnet": "no attention at all: Fourier transforms",
    "funnel": "its layers pool the tokens",
    "idefics": "cross-attention blocks between its layers, which it cannot run without an image",
    "mobilebert": "bottlenecks between the hidden size and the attention",
    "neomme": "a gate and value embeddings of its own",
    "perceiver": "latents that attend to the input",
    "squeezebert": "its projections are grouped convolutions",
}

# Prefilled only.
NOT_STEPWISE = {
    "prophetnet": "its decoder counts positions by an attention mask that it does not make",
}
