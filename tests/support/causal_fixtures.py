"""Tiny random models of several architectures, with a tokenizer trained on the sample text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal_models import build_model, make_tokenizer, sample_text

SaveModel = Callable[..., Path]


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level BPE that puts no BOS before a text, like GPT-2's."""
    return make_tokenizer(bos=False)


@pytest.fixture(scope="session")
def bos_tokenizer() -> Any:
    """The same with a BOS before every text, like Llama's."""
    return make_tokenizer(bos=True)


@pytest.fixture
def save_model(tmp_path: Path, tokenizer: Any, bos_tokenizer: Any) -> SaveModel:
    """Saves `build_model(name, **config)` and a tokenizer to a new folder, and returns that.

    `tokens` is `plain`, `bos` or `none`; `folder` names the folder.
    """

    def save(name: str, *, folder: str = "model", tokens: str = "plain", **config: Any) -> Path:
        target = tmp_path / folder
        build_model(name, **config).save_pretrained(target)
        if tokens != "none":
            (bos_tokenizer if tokens == "bos" else tokenizer).save_pretrained(target)
        return target

    return save


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """Some 300 tokens of the sample."""
    path = tmp_path / "prose.txt"
    path.write_text(sample_text()[:700], encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def build() -> Callable[..., Any]:
    return build_model
