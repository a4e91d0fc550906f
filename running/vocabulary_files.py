"""The files that a tokenizer's vocabulary lies in. Light: a plan asks what will be there."""

# Without one of these, transformers makes up an empty tokenizer from the model_type.
VOCABULARY_FILES = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "tekken.json", "vocab.model", "sentencepiece.model"),
)


def is_vocabulary(name: str) -> bool:
    """Whether a file of this name holds one, in any of the usual forms."""
    return name in VOCABULARY_FILES or name.endswith(".tiktoken")
