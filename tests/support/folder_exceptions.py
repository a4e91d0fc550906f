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
# transformers 5.24 builds or saves no model of these (for this task, where one is named).
NOT_BUILT: dict[str, str] = {}
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
COUNTED_OTHERWISE: dict[str, str] = {}
EXPERTS_OTHERWISE: dict[str, str] = {}
ATTENTION_OTHERWISE: dict[str, str] = {}
