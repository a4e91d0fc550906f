"""A ModelSpec from the key-values of a GGUF file, counted as llama.cpp keeps its state.

llama.cpp gives all architectures the same keys (src/llama-arch.cpp), so that none needs a row. What
is in no key is in its loader of an architecture (load_arch_hparams in src/models/), in
create_memory of src/llama-model.cpp, and in src/llama-hparams.cpp: the tables here follow the
sources of October 2026, which llama-cpp-python 0.3.36 carries.
"""
