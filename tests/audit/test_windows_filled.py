"""What windows hold after every number of tokens, against a cache that is filled token by token."""

from collections import deque
from collections.abc import Callable, Iterator

import pytest

from headcount.model.mixers import Attention, CompressedAttention, LatentAttention, Mixer
from headcount.model.mixers.state import State

TOKENS = range(40)
WINDOWS = range(1, 10)


def filled(limit: int) -> Iterator[int]:
    """How many tokens the newest `limit` are, before each token."""
    held: deque[int] = deque(maxlen=limit)
    for token in TOKENS:
        yield len(held)
        held.append(token)


def attention(window: int) -> Attention:
    return Attention(
        hidden_size=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=3,
        v_head_dim=5,
        window=window,
    )


def latent(window: int) -> LatentAttention:
    return LatentAttention(
        hidden_size=12,
        num_attention_heads=4,
        q_lora_rank=None,
        kv_lora_rank=6,
        qk_nope_head_dim=3,
        qk_rope_head_dim=2,
        v_head_dim=3,
        window=window,
    )


def one_key(window: int) -> CompressedAttention:
    return CompressedAttention(
        hidden_size=12,
        num_attention_heads=4,
        head_dim=3,
        q_lora_rank=2,
        o_lora_rank=2,
        o_groups=1,
        window=window,
    )


def test_state_with_a_limit() -> None:
    for limit in WINDOWS:
        state = State(per_token=3, limit=limit)
        assert [state.elements(tokens) for tokens in TOKENS] == [3 * n for n in filled(limit)]


@pytest.mark.parametrize("make", [attention, latent, one_key])
@pytest.mark.parametrize("window", WINDOWS)
def test_growth_is_that_of_the_last_token(make: Callable[[int], Mixer], window: int) -> None:
    """Of an engine, which keeps the window: a full one costs nothing more, any other the token."""
    mixer = make(window)
    kept = [mixer.key_value_elements(tokens, 0, "serving") for tokens in TOKENS]
    for within in TOKENS[1:]:
        grown = mixer.growing_elements("serving", within)
        assert grown == kept[within] - kept[within - 1], within
    assert mixer.growing_elements("serving") == kept[-1] - kept[-2] == 0


# transformers keeps the newest window - 1 tokens, as the next query adds itself, and the one key of
# DeepSeek-V4 twice; an engine that allocates beforehand keeps the window.
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("make", "width", "times"),
    [(attention, 2 * (3 + 5), 1), (latent, 6 + 2, 1), (one_key, 3, 2)],
)
def test_at_every_length(make: Callable[[int], Mixer], width: int, times: int, window: int) -> None:
    mixer = make(window)
    said = [mixer.key_value_elements(tokens) for tokens in TOKENS]
    assert said == [held * width * times for held in filled(window - 1)]
    said = [mixer.key_value_elements(tokens, 0, "vllm") for tokens in TOKENS]
    assert said == [held * width for held in filled(window)]
