"""A model as one GGUF file: names, key-values, vocabulary and layouts as llama.cpp reads them."""
