"""vLLM's server, where torchvision's operators may be missing. Its processes begin by reading this
file, too."""

import runpy

import torchvision_operators  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
