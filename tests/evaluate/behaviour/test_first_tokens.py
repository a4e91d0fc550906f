"""The same words behind different first tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headcount.evaluate.behaviour.first_tokens import (
    choose_first_tokens,
    first_token_losses,
    first_token_rows,
)

pytestmark = pytest.mark.needs_convert


def test_special_and_frequent_tokens_come_first_then_others() -> None:
    ids = [1] * 9 + [2] * 5 + [3] * 4 + list(range(10, 30))
    chosen = choose_first_tokens(ids, [0], count=6, seed=0)
    assert chosen[:3] == (0, 1, 2)
    assert len(set(chosen)) == 6 and set(chosen[3:]) <= {3, *range(10, 30)}
    assert choose_first_tokens([4, 4, 5], [], count=6, seed=0) == (4, 5)


@torch.no_grad()
def test_losses_equal_brute_force(build: Callable[..., Any]) -> None:
    model, original = build("llama"), build("llama", seed=1)
    bodies = torch.tensor([[9, 8, 7, 6, 5], [11, 12, 13, 14, 15]])
    rows = first_token_rows((3, 200), bodies)
    found = first_token_losses([model, original], rows, lambda ids: f"<{ids[0]}>")
    assert [(one.id, one.text) for one in found] == [(3, "<3>"), (200, "<200>")]
    for one in found:
        for expected, by in ((one.model, model), (one.against, original)):
            losses = []
            for body in bodies.tolist():
                for at in range(1, 5):
                    context = torch.tensor([[one.id, *body[:at]]])
                    scores = by(context, use_cache=False).logits[0, -1].double().log_softmax(-1)
                    losses.append(-scores[body[at]].item())
            assert expected == pytest.approx(sum(losses) / 8, abs=5e-5)
        assert one.against is not None and one.delta == one.model - one.against


def test_a_sink_that_broke_stands_out(build: Callable[..., Any]) -> None:
    """Only the embedding of one token is changed, so only what it begins is worse or better."""
    model, original = build("llama", tie_word_embeddings=False), build("llama")
    with torch.no_grad():
        model.load_state_dict(original.state_dict())
        model.model.embed_tokens.weight[3].mul_(-5)
    rows = first_token_rows((3, 4, 5), torch.tensor([[9, 8, 7, 6, 10]]))
    broken, *whole = first_token_losses([model, original], rows, str)
    assert broken.delta is not None and abs(broken.delta) > 0.01
    assert [one.delta for one in whole] == [0, 0]
