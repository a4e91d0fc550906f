"""A ModelSpec from the key-values of a GGUF file, counted as llama.cpp keeps its state.

llama.cpp gives all architectures the same keys (src/llama-arch.cpp), so that most need no
description. What is in no key is in its loader of an architecture (load_arch_hparams in
src/models/), in create_memory of src/llama-model.cpp, and in src/llama-hparams.cpp: the values
`Gguf`, which stand beside the architectures that they belong to, follow the
sources of October 2026, which llama-cpp-python 0.3.36 carries.
"""
