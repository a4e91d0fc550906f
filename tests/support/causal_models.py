"""Tiny random causal models of several architectures, and a tokenizer for them."""

from typing import Any

VOCABULARY = 320
POSITIONS = 48


def build_model(name: str, *, seed: int = 0, **config: Any) -> Any:
    """A random causal model in float32, sharp enough that wrong contexts show in the loss."""
    import torch
    import transformers

    llama = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    gpt2 = {
        "vocab_size": VOCABULARY,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": POSITIONS,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    opt = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS,
        "init_std": 0.3,
    }
    openai_gpt = {name: value for name, value in gpt2.items() if not name.endswith("token_id")}
    rows = {
        "openai-gpt": ("OpenAIGPTConfig", "OpenAIGPTLMHeadModel", openai_gpt),
        "llama": ("LlamaConfig", "LlamaForCausalLM", llama),
        "mistral": ("MistralConfig", "MistralForCausalLM", {**llama, "sliding_window": 8}),
        "mixtral": (
            "MixtralConfig",
            "MixtralForCausalLM",
            {**llama, "num_local_experts": 4, "num_experts_per_tok": 2},
        ),
        "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**llama, "sliding_window": 8}),
        "gpt2": ("GPT2Config", "GPT2LMHeadModel", gpt2),
        "opt": ("OPTConfig", "OPTForCausalLM", opt),
    }
    config_class, model_class, defaults = rows[name]
    torch.manual_seed(seed)
    settings = getattr(transformers, config_class)(**{**defaults, **config})
    return getattr(transformers, model_class)(settings).eval()


def make_tokenizer(*, bos: bool) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([sample_text()[:20000]], trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="<s>")


def sample_text() -> str:
    from headcount.running.text import read_text

    return read_text(None).content
