"""The scoring routine against brute force: each token alone, with exactly its window before it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from headcount.evaluate.errors import EvaluationFailedError
from headcount.evaluate.loss import score_text
from headcount.evaluate.windows import cut_windows

pytestmark = pytest.mark.needs_convert

Build = Callable[..., Any]
TOKENS = 28


def _ids(tokens: int = TOKENS) -> Tensor:
    return torch.randint(0, 320, (tokens,), generator=torch.Generator().manual_seed(7))


def _start(token: int, window: int, stride: int) -> int:
    """Where the first window begins that reaches `token`, counted without the code under test."""
    start = 0
    while start + window < token:
        start += stride
    return start


@torch.inference_mode()
def _next_token(model: Any, ids: Tensor, window: int, stride: int) -> Tensor:
    """Log-probabilities for every token but the first: [tokens - 1, vocabulary]."""
    rows = []
    for token in range(1, len(ids)):
        context = ids[_start(token, window, stride) : token]
        rows.append(model(context[None], use_cache=False).logits[0, -1].double().log_softmax(-1))
    return torch.stack(rows)


@torch.no_grad()
def _nudged(model: Any) -> Any:
    """`model`, changed so little that it ranks the same token first now and then."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "gemma2", "opt"])
@pytest.mark.parametrize(
    ("window", "stride"), [(27, 13), (10, 10), (13, 5)], ids=["one window", "tiles", "overlap"]
)
def test_losses_equal_brute_force(build: Build, name: str, window: int, stride: int) -> None:
    model, ids = build(name), _ids()
    expected = -_next_token(model, ids, window, stride).gather(-1, ids[1:, None]).squeeze(-1)
    cuts = cut_windows(len(ids), window=window, stride=stride)
    scores = score_text(model, ids, cuts, chunk=7)
    torch.testing.assert_close(scores.losses, expected, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize(("window", "stride"), [(10, 10), (13, 5)], ids=["tiles", "overlap"])
def test_every_window_begins_with_bos(build: Build, window: int, stride: int) -> None:
    """Brute force again: each token alone, after BOS in the place of its window's first token."""
    model, ids = build("llama"), _ids()
    expected = []
    for token in range(1, TOKENS):
        start = _start(token, window, stride)
        context = torch.cat([ids[:1], ids[start + 1 : token]])
        logits = model(context[None], use_cache=False).logits[0, -1]
        expected.append(-logits.double().log_softmax(-1)[ids[token]].detach())
    cuts = cut_windows(len(ids), window=window, stride=stride)
    scores = score_text(model, ids, cuts, chunk=7, bos=True)
    torch.testing.assert_close(scores.losses, torch.stack(expected), atol=5e-5, rtol=1e-5)
    without = score_text(model, ids, cuts, chunk=7).losses
    assert torch.equal(scores.losses[:window], without[:window])
    assert (scores.losses[window:] - without[window:]).abs().max() > 0.01


def test_a_window_of_one_token_predicts_from_the_token_before(build: Build) -> None:
    model, ids = build("gpt2"), _ids()
    scores = score_text(model, ids, cut_windows(TOKENS, window=1, stride=1), chunk=64)
    log_probs = model(ids[:-1, None]).logits[:, 0].double().log_softmax(-1)
    expected = -log_probs.gather(-1, ids[1:, None]).squeeze(-1)
    torch.testing.assert_close(scores.losses, expected, atol=5e-5, rtol=1e-5)


def test_the_stride_matters_here(build: Build) -> None:
    """Else the test above could not tell one window from another."""
    ids = _ids()
    losses = [
        score_text(build("llama"), ids, cut_windows(TOKENS, window=10, stride=s), chunk=64).losses
        for s in (10, 5)
    ]
    assert (losses[0] - losses[1]).abs().max() > 0.1
    assert torch.equal(losses[0][:10], losses[1][:10])


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_divergence_equals_brute_force(build: Build, name: str) -> None:
    model, original, ids = build(name), _nudged(build(name)), _ids()
    q, p = (_next_token(m, ids, 10, 4) for m in (model, original))
    scores = score_text(
        model, ids, cut_windows(TOKENS, window=10, stride=4), chunk=5, original=original
    )
    assert scores.divergence is not None
    assert scores.original_losses is not None
    torch.testing.assert_close(
        scores.divergence.kl, (p.exp() * (p - q)).sum(-1), atol=5e-5, rtol=1e-5
    )
    assert torch.equal(scores.divergence.top1, p.argmax(-1) == q.argmax(-1))
    assert 0 < scores.divergence.top1.sum() < TOKENS - 1
    torch.testing.assert_close(
        scores.original_losses, -p.gather(-1, ids[1:, None]).squeeze(-1), atol=5e-5, rtol=1e-5
    )


def test_a_model_does_not_diverge_from_itself(build: Build) -> None:
    model = build("llama")
    scores = score_text(
        model, _ids(), cut_windows(TOKENS, window=16, stride=8), chunk=64, original=model
    )
    assert scores.divergence is not None
    assert scores.divergence.kl.abs().max() == 0
    assert scores.divergence.top1.all()


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "opt"])
def test_logits_never_cover_more_than_a_chunk(build: Build, name: str) -> None:
    model = build(name)
    shapes: list[tuple[int, ...]] = []
    model.get_output_embeddings().register_forward_hook(
        lambda module, inputs, output: shapes.append(tuple(output.shape))
    )
    score_text(model, _ids(), cut_windows(TOKENS, window=20, stride=10), chunk=6)
    assert {shape[:-1] for shape in shapes} <= {(1, rows) for rows in range(1, 7)}
    assert sum(shape[1] for shape in shapes) == TOKENS - 1


def test_each_window_runs_the_layers_once(build: Build) -> None:
    model = build("llama")
    calls: list[int] = []
    model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    score_text(model, _ids(), cut_windows(TOKENS, window=20, stride=10), chunk=6)
    assert len(calls) == 2


def test_scoring_leaves_the_model_as_it_was(build: Build) -> None:
    model, ids = build("llama"), _ids(20)
    before = model(ids[None]).logits
    score_text(model, ids, cut_windows(20, window=16, stride=8), chunk=4)
    assert torch.equal(model(ids[None]).logits, before)
    torch.testing.assert_close(model(ids[None, :5]).logits, before[:, :5])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_fails(build: Build, value: float) -> None:
    model = build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 3] = value
    with pytest.raises(EvaluationFailedError, match=r"the model's loss of token 1 is nan") as info:
        score_text(model, _ids(), cut_windows(TOKENS, window=16, stride=8), chunk=4)
    assert info.value.exit_code == 1


@pytest.mark.parametrize("bos", [False, True])
def test_all_that_a_window_reads_is_kept_on_demand(build: Build, bos: bool) -> None:
    """Each window by itself gives the same as the whole text cut there."""
    model, original, ids = build("llama"), build("llama", seed=1), _ids()
    cuts = cut_windows(len(ids), window=12, stride=5)
    whole = score_text(model, ids, cuts, chunk=5, bos=bos, original=original, whole=True)
    plain = score_text(model, ids, cuts, chunk=64, bos=bos, original=original)
    assert plain.windows == ()
    close = partial(torch.testing.assert_close, atol=5e-5, rtol=1e-5)
    close(whole.losses, plain.losses)
    scored = torch.cat([one.model[one.scored] for one in whole.windows])
    close(scored, plain.losses)
    for one, cut in zip(whole.windows, cuts, strict=True):
        own = ids[cut.start : cut.stop + 1].clone()
        if bos:
            own[0] = ids[0]
        alone = cut_windows(len(own), window=12, stride=12)
        for losses, by in ((one.model, model), (one.original, original)):
            close(losses, score_text(by, own, alone, chunk=64).losses)
