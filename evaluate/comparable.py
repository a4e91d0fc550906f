"""Whether the predictions of two models can be compared token by token."""

from transformers import PreTrainedTokenizerBase

from headcount.running.runnable import RunnableModel
from headcount.running.text import Text
from headcount.running.tokens import load_tokenizer

from .documents import EncodedText, encode_documents
from .errors import IncomparableModelsError


def check_same_vocabulary(model: RunnableModel, original: RunnableModel) -> None:
    """Raises IncomparableModelsError if the models predict over vocabularies of other sizes."""
    if model.vocab_size != original.vocab_size:
        raise IncomparableModelsError(
            f"{model.id} predicts {model.vocab_size:,} tokens, {original.id}"
            f" {original.vocab_size:,}: such predictions cannot be compared; evaluate each alone"
        )


def check_same_tokens(
    tokenizer: PreTrainedTokenizerBase,
    model: RunnableModel,
    original: RunnableModel,
    *,
    read: tuple[Text, tuple[Text, ...]],
    encoded: EncodedText,
    max_tokens: int,
) -> None:
    """Raises IncomparableModelsError unless the tokenizer of `original` has the vocabulary of
    `tokenizer`, which is that of `model`, and cuts what was `read` alike: into `encoded`."""
    check_same_tokenizer(tokenizer, model, original)
    if encode_documents(load_tokenizer(original.folder), *read, max_tokens) != encoded:
        raise _different(model, original)


def check_same_tokenizer(
    tokenizer: PreTrainedTokenizerBase, model: RunnableModel, original: RunnableModel
) -> None:
    """Raises IncomparableModelsError unless the tokenizer of `original` has the vocabulary of
    `tokenizer`, which is that of `model`."""
    if load_tokenizer(original.folder).get_vocab() != tokenizer.get_vocab():
        raise _different(model, original)


def _different(model: RunnableModel, original: RunnableModel) -> IncomparableModelsError:
    return IncomparableModelsError(
        f"{model.id} and {original.id} have different tokenizers: their tokens cannot be"
        " compared; evaluate each alone, or name the one for both with --tokenizer"
    )
