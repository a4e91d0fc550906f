"""The loss, against numpy and against torch's own functions; in parts as at once."""

from typing import Any

import numpy as np
import pytest

from causal_models import VOCABULARY, build_model

pytestmark = pytest.mark.needs_convert


def rows(count: int = 3, tokens: int = 9) -> Any:
    import torch

    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (count, tokens + 1), generator=generator)


def read(ids: Any) -> Any:
    import torch

    from headcount.uptrain.text_rows import TextPart

    part = TextPart(ids=ids)
    (numbers,) = part.forwards(torch.arange(len(part)))
    return part.reading(numbers)


def models(name: str = "llama", **config: Any) -> tuple[Any, Any]:
    import torch

    student = build_model(name, seed=0, **config).to(torch.float64)
    teacher = build_model(name, seed=1, **config).to(torch.float64)
    return student, teacher.requires_grad_(False)


def log_softmax(logits: Any) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def expected(student: Any, teacher: Any, batch: Any, temperature: float) -> tuple[Any, Any, Any]:
    """Per token: KL at that temperature, cross-entropy of the student and of the teacher."""
    logits = [
        model(input_ids=batch[:, :-1]).logits.detach().numpy() for model in (student, teacher)
    ]
    mine, theirs = (log_softmax(x / temperature) for x in logits)
    kl = (np.exp(theirs) * (theirs - mine)).sum(-1)
    losses = [
        -np.take_along_axis(log_softmax(x), batch[:, 1:, None].numpy(), -1)[..., 0] for x in logits
    ]
    return kl, losses[0], losses[1]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_the_loss_is_the_divergence_and_what_is_added(name: str, temperature: float) -> None:
    from headcount.uptrain.distillation import Distillation, Objective

    student, teacher = models(name)
    objective = Objective(temperature=temperature, cross_entropy=0.3)
    loss = Distillation(student, objective)(read(rows()), teacher)
    kl, cross_entropy, _ = expected(student, teacher, rows(), temperature)
    wanted = temperature**2 * kl.mean() + 0.3 * cross_entropy.mean()
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-9)


def test_hidden_states_are_compared_layer_by_layer() -> None:
    from headcount.uptrain.distillation import Distillation, Objective

    student, teacher = models()
    batch = rows()
    loss = Distillation(student, Objective(hidden_loss=2.0))(read(batch), teacher)
    without = Distillation(student, Objective())(read(batch), teacher)
    states = [
        model(input_ids=batch[:, :-1], output_hidden_states=True).hidden_states[1:]
        for model in (student, teacher)
    ]
    assert len(states[0]) == 2
    terms = [
        (((a - b) ** 2).sum(-1) / (b**2).sum(-1)).mean().item()
        for a, b in zip(*states, strict=True)
    ]
    assert float((loss - without).detach()) == pytest.approx(2 * np.mean(terms), rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_logits_in_parts_give_the_same_loss_and_the_same_gradients(name: str) -> None:
    from headcount.uptrain.distillation import Distillation, Objective

    student, teacher = models(name)
    objective = Objective(cross_entropy=0.5, hidden_loss=0.1)
    found = []
    for elements in (2**24, 3 * 2 * VOCABULARY):  # two positions at a time
        module = Distillation(student, objective, chunk_elements=elements)
        assert len(module._spans(read(rows()))) == (1 if elements == 2**24 else 5)
        module.zero_grad()
        loss = module(read(rows()), teacher)
        loss.backward()
        found.append([loss.item(), *(p.grad.clone() for p in student.parameters())])
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    for whole, parts in zip(found[0][1:], found[1][1:], strict=True):
        assert float((whole - parts).abs().max()) <= 1e-10 * max(1.0, float(whole.abs().max()))
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize("elements", [2**24, 4 * VOCABULARY])
def test_scores_are_sums_over_the_tokens(elements: int) -> None:
    from headcount.uptrain.distillation import Distillation, Objective

    student, teacher = models()
    module = Distillation(student, Objective(temperature=3.0), chunk_elements=elements)
    sums = module(read(rows()), teacher, scores=True)
    kl, mine, theirs = expected(student, teacher, rows(), 1.0)
    assert sums.tolist()[:3] == pytest.approx([theirs.sum(), mine.sum(), kl.sum()], rel=1e-9)
    assert not sums.requires_grad
    first = [m(input_ids=rows()[:, :-1]).logits.argmax(-1) for m in (student, teacher)]
    assert sums[3] == (first[0] == first[1]).sum()
