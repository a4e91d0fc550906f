"""Who decides whether the output head is the embedding: (the whole config, its language model)."""

from collections.abc import Callable

from .config_view import ConfigView

TyingRule = Callable[[ConfigView, ConfigView], bool]


def config_says(view: ConfigView, text: ConfigView) -> bool:
    """The config says it, in its file or by its class's default; a wrapper speaks for all."""
    return view.flag("tie_word_embeddings")


def either_says(view: ConfigView, text: ConfigView) -> bool:
    """The wrapper or the language model says it (Qwen2-VL)."""
    return config_says(view, text) or text.flag("tie_word_embeddings")


def text_says(view: ConfigView, text: ConfigView) -> bool:
    """The language model is a whole class with a head of its own (Llama 4)."""
    return text.flag("tie_word_embeddings")


def never(view: ConfigView, text: ConfigView) -> bool:
    """The class cannot tie them (Llama 3.2 Vision), whatever the file says."""
    return False


def always(view: ConfigView, text: ConfigView) -> bool:
    """transformers 5 ties them whatever the file says (T5)."""
    return True


def head_is_stored_apart(view: ConfigView, text: ConfigView) -> bool:
    """Whether files of a model that is tied by its class's default alone most likely hold an output
    head: where the language model's own config unties it, by its file or its class, which was what
    counted before transformers 5 (Mistral Small 3.1)."""
    says = "tie_word_embeddings"
    is_nested = text.config is not view.config
    by_default = is_nested and says not in view.config and view.flag(says)
    return by_default and not text.flag(says)
