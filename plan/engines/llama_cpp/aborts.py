"""Starts that llama.cpp does not survive, as it answered them (tests/plan/engines/llama_cpp.jsonl).

llama.cpp says no word of them before it loads a file, and ends in an assertion of ggml.
"""

from headcount.arch.engine_types import gguf_architecture

from ...planned_model import PlannedModel
from ...request import Workload
from .cache_types import WIDE
from .settings import cache_types, layout_of, uses_flash_attention


def file_architecture(model: PlannedModel) -> str:
    """That of the file, or of the files of such models."""
    kind = model.spec.model_type
    return kind if model.tensors else gguf_architecture(kind) or kind


def abort(model: PlannedModel, work: Workload) -> str | None:
    """Why the start that is asked for would end so, and what would not."""
    request, kind = work.request, file_architecture(model)
    if kind == "plm" and uses_flash_attention(request):
        return (
            "llama.cpp aborts on plm with flash attention, whose values it takes to be of the size"
            " of keys: --flash-attn off"
        )
    if kind == "grok" and cache_types(request).values not in WIDE:
        return (
            "llama.cpp runs grok without flash attention, and quantises values with it alone:"
            " --cache-type-v f16"
        )
    if kind == "t5" and layout_of(work).streams > 1:
        return "llama.cpp aborts on t5 with cells of each slot: --kv-unified"
    return None
