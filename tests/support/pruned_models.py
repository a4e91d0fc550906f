"""Tiny random models of many families, and the same with the outputs of some heads zeroed: where a
head's output lies is typed here for each class, and read off no map of ours."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

TOKENS = torch.tensor([[5, 17, 33, 60, 7, 61, 42, 9, 11, 3, 8, 8]])


@dataclass(frozen=True, kw_only=True)
class Family:
    """A class of transformers, its config, and the module that reads the outputs of all heads, as
    its name ends. `native`: its class can hold fewer query heads."""

    name: str
    output: str
    heads: int
    key_value_heads: int
    config: Mapping[str, Any] = field(default_factory=dict)
    native: bool = False

    def build(self, folder: Path, **more: Any) -> Path:
        """Saves the model in float32, every bias and norm away from its first value."""
        settings = getattr(transformers, f"{self.name}Config")(**{**self.config, **more})
        torch.manual_seed(0)
        model = getattr(transformers, f"{self.name}ForCausalLM", None)
        model = (model or getattr(transformers, f"{self.name}LMHeadModel"))(settings).float()
        with torch.no_grad():
            for value in model.parameters():
                value.add_(0.2 * torch.randn_like(value))
        model.save_pretrained(folder)
        return folder


def _llama_like(heads: int, kv: int, **more: Any) -> dict[str, Any]:
    return {
        **{"vocab_size": 64, "hidden_size": 48, "intermediate_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 8},
        **{"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        **more,
    }


def _plain(heads: int, **more: Any) -> dict[str, Any]:
    return {
        **{"vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 2},
        **{"num_attention_heads": heads, "max_position_embeddings": 64, "intermediate_size": 32},
        **{"bos_token_id": 1, "eos_token_id": 2},
        **more,
    }


def _gpt(**more: Any) -> dict[str, Any]:
    return {
        **{"vocab_size": 64, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 64},
        **{"bos_token_id": 1, "eos_token_id": 2},
        **more,
    }


_SELF = "self_attn.o_proj"
FAMILIES = (
    Family(
        name="Llama",
        output=_SELF,
        heads=8,
        key_value_heads=8,
        config=_llama_like(8, 8, hidden_size=40, attention_bias=True),  # 40 is no multiple of 6
    ),
    Family(
        name="Llama",
        output=_SELF,
        heads=12,
        key_value_heads=4,
        config=_llama_like(12, 4, hidden_size=60),  # no multiple of 9, nor of 8
    ),
    Family(
        name="Olmo",
        output=_SELF,
        heads=6,
        key_value_heads=3,
        config=_plain(6, num_key_value_heads=3),
        native=True,
    ),
    Family(
        name="Mistral",
        output=_SELF,
        heads=6,
        key_value_heads=3,
        config=_llama_like(6, 3, sliding_window=6),
        native=True,
    ),
    Family(
        name="Gemma",
        output=_SELF,
        heads=6,
        key_value_heads=2,
        config=_llama_like(6, 2),
        native=True,
    ),
    Family(
        name="Gemma2",
        output=_SELF,
        heads=8,
        key_value_heads=4,
        config=_llama_like(8, 4, sliding_window=6),
        native=True,
    ),
    Family(
        name="Qwen3",
        output=_SELF,
        heads=6,
        key_value_heads=3,
        config=_llama_like(6, 3),
        native=True,
    ),
    Family(name="GPT2", output="attn.c_proj", heads=6, key_value_heads=6, config=_gpt()),
    Family(
        name="GPTNeoX",
        output="attention.dense",
        heads=6,
        key_value_heads=6,
        config=_plain(6, rotary_pct=0.5),
    ),
    Family(
        name="Falcon",
        output="self_attention.dense",
        heads=6,
        key_value_heads=6,
        config=_plain(6, multi_query=False, new_decoder_architecture=False, bias=True),
    ),
    Family(
        name="Mpt",
        output="attn.out_proj",
        heads=6,
        key_value_heads=6,
        config={"vocab_size": 64, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 64},
    ),
    Family(
        name="Bloom",
        output="self_attention.dense",
        heads=6,
        key_value_heads=6,
        config={"vocab_size": 64, "hidden_size": 48, "n_layer": 2, "n_head": 6},
    ),
    Family(
        name="GPTJ",
        output="attn.out_proj",
        heads=6,
        key_value_heads=6,
        config=_gpt(rotary_dim=4),
    ),
    Family(
        name="CodeGen",
        output="attn.out_proj",
        heads=8,
        key_value_heads=8,
        config=_gpt(n_head=8, rotary_dim=4),
    ),
    Family(
        name="OPT",
        output="self_attn.out_proj",
        heads=6,
        key_value_heads=6,
        config={
            **{"vocab_size": 64, "hidden_size": 48, "ffn_dim": 32, "num_hidden_layers": 2},
            **{"num_attention_heads": 6, "word_embed_proj_dim": 48, "max_position_embeddings": 64},
        },
    ),
)


@contextmanager
def masked(
    model: Any, family: Family, pruned: Mapping[int, tuple[int, ...]], ending: str = ""
) -> Iterator[None]:
    """Inside, the outputs of the heads `pruned` of each layer are zero."""
    found = [m for n, m in model.named_modules() if n.endswith(ending or family.output)]
    handles = []
    for index, heads in pruned.items():

        def zero(module: Any, args: Any, heads: tuple[int, ...] = heads) -> Any:
            values = args[0].clone()
            by_head = values.view(*values.shape[:-1], family.heads, -1)
            by_head[..., list(heads), :] = 0
            return (values, *args[1:])

        handles.append(found[index].register_forward_pre_hook(zero))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
