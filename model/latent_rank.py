"""How many elements a layer keeps of a token, and how many a latent of them needs."""

from .mixers import Attention


def kept_elements(mixer: Attention) -> int:
    """The elements of keys and values of one token."""
    return mixer.num_key_value_heads * (mixer.head_dim + mixer.v_head_dim)


def full_rank(mixer: Attention) -> int:
    """The rank from which on nothing is lost: all that k and v read, or all that they make."""
    return min(mixer.in_features("k"), kept_elements(mixer))
