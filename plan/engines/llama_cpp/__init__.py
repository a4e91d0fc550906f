"""llama.cpp: where its layers lie, its caches, its compute buffers, and how it is started.

Functions and files that are named are those of its repository, as llama-cpp-python 0.3.36 carries
it (October 2026).
"""
