"""Tiny random models of several architectures, a tokenizer of bytes, and what a source of them is
calibrated with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrated_models import CONFIGS, LLAMA

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """make_model(model_type, **config) -> a folder with random weights; made once per session.
    `seed_of_pairs`: the K/V heads of a Llama are alike two by two; 1: equal, 2: up to maps that
    leave the function as it is."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    made: dict[tuple[Any, ...], Path] = {}

    def make(
        model_type: str = "llama", *, tokens: bool = True, seed_of_pairs: int = 0, **config: Any
    ) -> Path:
        key = (model_type, tokens, seed_of_pairs, *sorted(config.items()))
        if key not in made:
            torch.manual_seed(0)
            settings = CONFIG_MAPPING[model_type](**{**CONFIGS[model_type], **config})
            model = AutoModelForCausalLM.from_config(settings).eval()
            _pair_heads(model, seed_of_pairs)
            made[key] = tmp_path_factory.mktemp(model_type)
            model.save_pretrained(made[key])
            if tokens:
                _byte_tokenizer().save_pretrained(made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 5,000 bytes, which are as many tokens."""
    from headcount.running.text import read_text

    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(read_text(None).content[:5000], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    return _byte_tokenizer()


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    import torch

    with torch.no_grad():
        yield


def _pair_heads(model: Any, seed: int) -> None:
    """1: every second K/V head is as the one before. 2: and then turned, together with what reads
    it: keys and queries by angles, values and o by a matrix and its inverse."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for layer in model.model.layers if seed else ():
        attention, d = layer.self_attn, LLAMA["head_dim"]
        q, k, v = (getattr(attention, f"{p}_proj").weight.data.view(-1, d, 32) for p in "qkv")
        o = attention.o_proj.weight.data.view(32, -1, d)
        k[1::2], v[1::2] = k[::2].clone(), v[::2].clone()
        for head in range(1, len(k), 2) if seed == 2 else ():
            angle = torch.rand(d // 2, generator=generator) * 6
            cos, sin = torch.diag(angle.cos()), torch.diag(angle.sin())
            turn = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])
            mix = torch.randn(d, d, generator=generator) + 3 * torch.eye(d)
            k[head], q[head] = turn @ k[head], turn @ q[head]
            v[head], o[:, head] = mix @ v[head], o[:, head] @ mix.inverse()


def _byte_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(
        models.BPE(vocab={"<s>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner)
