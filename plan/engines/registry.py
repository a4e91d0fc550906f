"""The engines by name: each is one file that ends in `ENGINE`, and one line here.

No engine is imported: the command line takes the names, and a plan the file of the one it wants.
"""

PLAIN, SERVING = "generic", "vllm"  # of a plan without --engine; where one is needed and none named
# name -> the module, from this folder, or the engine itself
ENGINES: dict[str, object] = {
    "generic": "generic",
    "vllm": "vllm.vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp.llama_cpp",
    "tensorrt-llm": "tensorrt_llm",
    "transformers": "transformers",
}
# name -> the module that reads its start-up log; a log that no sign tells is that of SERVING
START_LOGS = {
    **{"vllm": "vllm.start_log", "sglang": "sglang_log", "llama.cpp": "llama_cpp.start_log"},
    "tensorrt-llm": "tensorrt_llm_log",
}


def started() -> tuple[str, ...]:
    """The names of those that are started and serve: all but the plain one."""
    return tuple(name for name in ENGINES if name != PLAIN)
