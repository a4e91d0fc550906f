"""What `headcount explain` answers: a page a topic, with a model's own numbers in its formulas."""

_DEFAULT = "llama-3-8b"
_DEFAULTS = {
    "mha": "openai-community/gpt2",
    "mqa": "gemma-2b",
    "mla": "deepseek-v3",
    "window": "mistral-7b",
}
# The question of each topic, in the order in which they build on each other.
QUESTIONS = {
    "mha": "What are heads for, and why is 4 x d² the same for any number?",
    "w_o": "Why is the output projection W_o needed?",
    "head_dim": "What is head_dim, and when is heads x head_dim not hidden_size?",
    "cache": "What does the K/V cache keep, and what does a token of it cost?",
    "gqa": "What do fewer K/V heads than heads save?",
    "group": "Which heads share a K/V head, and what is group_size?",
    "mqa": "What does a single K/V head keep?",
    "mla": "What does a latent cache keep?",
    "window": "What does a sliding window keep?",
    "induction": "What is an induction head?",
}


def default_model(topic: str) -> str:
    """A model that has what the topic is about, where none is named."""
    return _DEFAULTS.get(topic, _DEFAULT)
