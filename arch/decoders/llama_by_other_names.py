"""Types whose own code computes what Llama's class does: published with their weights, and in no
class of transformers."""

from headcount.model.errors import UnsupportedModelError

from ..architecture import MULTIMODAL, Architecture
from ..attention.layer_kinds import all_full
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts
from ..config_view import ConfigView
from .llama import LLAMA
from .mistral import MISTRAL
from .qwen import QWEN2

# The file names the tower (mm_vision_tower), whose sizes stand in another repository.
NAMED_TOWER = "its image tower is named, and its sizes are not in the config"


def minicpm_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """All layers are full. Raises UnsupportedModelError for `sparse_config` (InfLLM v2, MiniCPM4),
    which keeps compressed keys of two sizes beside the cache."""
    if view.get("sparse_config") is not None:
        raise UnsupportedModelError(
            f"{view.where}: sparse_config keeps compressed keys beside the cache, which are not"
            " counted; without that key the model is dense"
        )
    return all_full(view, count)


def experts_if_any(view: ConfigView, count: int) -> frozenset[int]:
    """MiniCPM-MoE has experts in all layers."""
    return frozenset(range(count)) if view.optional("num_experts", minimum=0) else frozenset()


def wrapper(model_type: str, text: Architecture) -> Architecture:
    """LLaVA by its authors' own code: the language model's keys stand at the top, or, as NVILA
    writes them, under `llm_cfg`."""
    return MULTIMODAL.relative(
        model_type,
        config={"text": "llm_cfg", "defaults": {"llm_cfg": {"model_type": text.types[0]}}},
        uncounted=NAMED_TOWER,
    )


ARCHITECTURES = (
    # InternLM-7B and -20B: biases of q, k, v and o, and no grouped queries.
    LLAMA.relative(
        "internlm",
        config={"defaults": {"bias": True}},
        attention={"qkv_bias": "bias", "o_bias": "bias", "kv_heads_from": "query heads"},
        body=Body(named=True),
    ),
    LLAMA.relative(
        "xverse", attention=AttentionShape(kv_heads_from="query heads"), body=Body(named=True)
    ),
    # Yi's first files, of November 2023
    LLAMA.relative("Yi", attention=AttentionShape(), body=Body(named=True)),
    # openPangu-Embedded-1B and -7B
    LLAMA.relative(
        "PanguEmbedded",
        config={"defaults": {"bias": True}},
        attention={"qkv_bias": "bias", "o_bias": "bias"},
        body=Body(named=True),
    ),
    # MiniCPM scales what Llama computes, and ties the head by default.
    LLAMA.relative(
        "minicpm",
        config={"defaults": {"tie_word_embeddings": True}},
        attention={"kinds": minicpm_kinds},
        body=Body(experts=Experts(width="intermediate_size", layers=experts_if_any), named=True),
    ),
    wrapper("llava_llama", LLAMA),
    wrapper("llava_mistral", MISTRAL),
    wrapper("llava_qwen", QWEN2),
    wrapper("llava_qwen2", QWEN2),
)
