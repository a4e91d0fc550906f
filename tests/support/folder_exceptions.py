"""What test_saved_folders expects otherwise, with the reason for each."""

# Warnings that tiny random configs deserve.
DESERVED = {
    "H402": "heads of 12",
    "H406": "a number of K/V heads that the class does not use",
    "H413": "layers at random, against the class's pattern",
    "H416": "contexts of 64 under a class's default YaRN",
    "H504": "token ids of classes with large vocabularies",
    "H505": "token ids of classes with large vocabularies",
}
# Warnings that one type's own file deserves.
DESERVED_BY = {
    "dinov3_vit": {"H208": "no register tokens"},
    "nemo_speechlm": {"H106": "transformers writes the dtype of its tower, which stays float32"},
}
_ADAPTER = "the default vision adapter does not fit another text width"
_NOT_FLAT = "that mapping names a class that wants the nested config"
_TIMM = "its tower needs timm and PIL"
# transformers 5.24 builds or saves no model of these; or none for the task behind the colon.
NOT_BUILT = {
    "aya_vision": "its default tower has 14 heads, which do not divide its width",
    "dots3_note": _ADAPTER,
    "emu3": "its config lacks what its class asks for",
    "fast_vlm": _TIMM,
    "gemma3n": _TIMM,
    "granite4_vision": "its default config does not name the layers that its tower gives",
    "inkling2": _ADAPTER,
    "inkling2_loop": _ADAPTER,
    "jev": "it has no model class",
    **dict.fromkeys(
        ("llama4:causal", "qwen3_5:causal", "qwen3_5_moe:causal", "qwen4_exp:causal"), _NOT_FLAT
    ),
    "musicgen:causal": _NOT_FLAT,
    "musicgen_melody:causal": _NOT_FLAT,
    "perception_lm": _TIMM,
    "pop2piano": "its class has no mapping of its own",
    "qwen2_5_omni": "it is saved with a talker that is no part of its mapping's class",
    "qwen3_omni_moe": "it is saved with a talker that is no part of its mapping's class",
    "reformer:masked": "that class wants is_decoder false",
}
# transformers saves these under names that it does not read again.
NOT_OWN_NAMES = {
    "kimi_k25": "the names of its tower are put into the language model's, too",
}
# Buffers in some classes and parameters in others: an audit counts them, a model does not.
EITHER = (
    *("e_score_correction_bias", "act_fn.beta", "act_fn.eps", "layer_scalar", "expert_bias"),
    *("input_max", "input_min", "output_max", "output_min", "std_bias", "std_scale"),
    "codebook.embed",
)
# Parameters that an audit counts otherwise than the model does.
COUNTED_OTHERWISE = {
    **dict.fromkeys(("inkling2_text", "inkling2_loop_text"), "files pad the rows of its head"),
    "florence2": "its two stacks store the embedding that a BART shares, and its class does not",
}
EXPERTS_OTHERWISE = {
    "hy_v3": "its files call the shared expert shared_mlp",
}
ATTENTION_OTHERWISE = {
    "hrm_text": "the truth looks at one of its two stacks",
    "pi0": "the truth looks at its expert for actions",
    "florence2": "the truth looks at its decoder alone",
}
