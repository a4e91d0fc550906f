"""What the modules of an attention of DeepSeek's class (MLA) are called, and where they stand."""

from ..attention_map.attention_tensors import AttentionTensors

DOWN, NORM, UP = "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"


def attention_path(tensors: AttentionTensors) -> str:
    """In front of the names of its tensors, those of the source's files and of the output's."""
    name = next(held.tensor.name for held in tensors.projections if held.parts == ("q",))
    return name.removesuffix("q_proj.weight")
