"""Whether the predictions of two models can be compared token by token."""

from transformers import PreTrainedTokenizerBase

from headcount.running.runnable import RunnableModel
from headcount.running.text import Text
from headcount.running.tokens import TokenSequence, encode, load_tokenizer

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
    text: Text,
    tokens: TokenSequence,
    max_tokens: int,
) -> None:
    """Raises IncomparableModelsError unless the tokenizer of `original` has the vocabulary of
    `tokenizer`, which is that of `model`, and cuts `text` alike: into `tokens`."""
    other = load_tokenizer(original.folder)
    same = tokenizer.get_vocab() == other.get_vocab()
    if not same or encode(other, text, max_tokens).ids != tokens.ids:
        raise IncomparableModelsError(
            f"{model.id} and {original.id} have different tokenizers: their tokens cannot be"
            " compared; evaluate each alone, or name the one for both with --tokenizer"
        )
