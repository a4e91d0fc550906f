"""Tiny random models of several architectures, a tokenizer of bytes, and what a source of them is
calibrated with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

VOCABULARY = 257
POSITIONS = 64
LLAMA = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8},
    **{"max_position_embeddings": POSITIONS, "initializer_range": 0.2},
    **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0},
}
_GPT2 = {
    **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4},
    **{"n_positions": POSITIONS, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0},
}
_OPT = {"word_embed_proj_dim": 32, "ffn_dim": 48, "init_std": 0.2}
_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
_BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "gemma2": {**LLAMA, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "gemma3_text": {**LLAMA, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "olmo2": LLAMA,
    "granite": {**LLAMA, "residual_multiplier": 0.5, "attention_multiplier": 0.3},
    "gpt2": _GPT2,
    "gptj": {**_GPT2, "rotary_dim": 4},
    "gpt_neox": {**LLAMA, "rotary_pct": 0.5},
    "phi": {**LLAMA, "partial_rotary_factor": 0.5},
    "opt": {**LLAMA, **_OPT},
    "bloom": {**_BLOOM, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0},
    "mixtral": {**LLAMA, **_MOE},
}
MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """make_model(model_type, **config) -> a folder with random weights; made once per session."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    made: dict[tuple[Any, ...], Path] = {}

    def make(model_type: str = "llama", *, tokens: bool = True, **config: Any) -> Path:
        key = (model_type, tokens, *sorted(config.items()))
        if key not in made:
            torch.manual_seed(0)
            settings = CONFIG_MAPPING[model_type](**{**CONFIGS[model_type], **config})
            model = AutoModelForCausalLM.from_config(settings).eval()
            made[key] = tmp_path_factory.mktemp(model_type)
            model.save_pretrained(made[key])
            if tokens:
                _byte_tokenizer().save_pretrained(made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 5,000 bytes, which are as many tokens."""
    from headcount.convert.evaluate.text import read_text

    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(read_text(None).content[:5000], encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    import torch

    with torch.no_grad():
        yield


def _byte_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={"<s>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner)
