"""Why totals are not counted."""

# Types without a row that counts them, where more can be said than that.
REASONS = {
    **dict.fromkeys(
        ("fast_vlm", "gemma3n", "perception_lm"),
        "its vision tower is a model of the library timm, whose sizes no config gives",
    ),
    **dict.fromkeys(
        ("chameleon", "emu3", "janus"), "its image tokenizer is a convolutional network of its own"
    ),
    **dict.fromkeys(
        ("musicgen", "musicgen_melody", "moshi"), "its audio codec is a network of its own"
    ),
    **dict.fromkeys(
        ("qwen2_5_omni", "qwen3_omni_moe"), "its talker and its audio codec are not counted"
    ),
    **dict.fromkeys(("blip-2", "instructblip", "instructblipvideo"), "its Q-Former is not counted"),
    "phi4_multimodal": "its towers for images and sound are not counted",
    "evolla": "its protein encoder is not counted",
}
