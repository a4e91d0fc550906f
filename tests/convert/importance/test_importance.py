"""What heads are worth, layer by layer, against whole models of transformers with hooks."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from conversions import load_whole
from headcount.convert.calibrate.calibration_text import CalibrationText
from headcount.convert.calibrate.layered_model import LayeredModel
from headcount.convert.importance.ablation import ablated
from headcount.convert.importance.estimate import estimated
from headcount.convert.importance.head_importance import Scores, least_important
from headcount.convert.importance.rounds import chosen_in_rounds
from headcount.convert.importance.text_run import TextRun
from headcount.convert.importance.weights import importance_by_weights
from headcount.convert.plan.request import HeadsOfLayers
from headcount.convert.plan.source import read_source
from headcount.convert.stream.reader import SourceReader
from headcount.model.mixers import Attention
from pruned_models import FAMILIES, Family

pytestmark = pytest.mark.needs_convert
ROWS, LENGTH = 4, 12
IDS = torch.randint(3, 64, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
TEXT = CalibrationText(
    ids=IDS, batches=(slice(0, 2), slice(2, 4)), held=(), sha256="", found=IDS.numel()
)
EVERY = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.name}-{f.key_value_heads}")
TO_MEAN = pytest.mark.parametrize("to_mean", [True, False], ids=["mean", "zero"])


@pytest.fixture
def run(family: Family, tmp_path: Path) -> Iterator[TextRun]:
    source = read_source(family.build(tmp_path / "model"))
    with SourceReader(source.checkpoint.files) as reader:
        made = TextRun(LayeredModel(source, reader), TEXT)
        made.forward()
        yield made
        made.close()


class Whole:
    """The whole model, with a gate on each head."""

    def __init__(self, folder: Path, family: Family) -> None:
        self.model: Any = load_whole(folder, attn_implementation="eager")
        self.modules = [m for n, m in self.model.named_modules() if n.endswith(family.output)]
        self.heads = family.heads

    def means(self) -> list[torch.Tensor]:
        """[H, dv] of each layer."""
        found: list[torch.Tensor] = []
        handles = [
            m.register_forward_pre_hook(lambda m, args: found.append(self._split(args[0])))
            for m in self.modules
        ]
        with torch.no_grad():
            self.model(IDS)
        for handle in handles:
            handle.remove()
        return [heads.flatten(0, 1).mean(0) for heads in found]

    def losses(self, gates: torch.Tensor, to: list[torch.Tensor]) -> torch.Tensor:
        """[B]: of every row, with gates [layers, B, T, H]."""
        handles = [
            m.register_forward_pre_hook(self._gate(gates[i], to[i]))
            for i, m in enumerate(self.modules)
        ]
        logits = self.model(IDS).logits
        for handle in handles:
            handle.remove()
        rows = [nn.functional.cross_entropy(logits[b, :-1], IDS[b, 1:]) for b in range(ROWS)]
        return torch.stack(rows)

    def _split(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(ROWS, LENGTH, self.heads, -1)

    def _gate(self, gates: torch.Tensor, to: torch.Tensor) -> Any:
        def change(module: Any, args: Any) -> Any:
            heads = self._split(args[0])
            mixed = heads * gates[..., None] + to * (1 - gates[..., None])
            return (mixed.reshape(args[0].shape), *args[1:])

        return change

    def to(self, to_mean: bool) -> list[torch.Tensor]:
        means = self.means()
        return means if to_mean else [torch.zeros_like(mean) for mean in means]


@EVERY
@TO_MEAN
def test_the_estimate_follows_from_slopes_of_the_whole_models_loss(
    family: Family, run: TextRun, to_mean: bool, tmp_path: Path
) -> None:
    whole = Whole(tmp_path / "model", family)
    to = whole.to(to_mean)
    gates = torch.ones(len(to), ROWS, LENGTH, family.heads, requires_grad=True)
    (slopes,) = torch.autograd.grad(whole.losses(gates, to).sum(), gates)
    found = estimated(run, ablated_to_mean=to_mean)
    curvature = (LENGTH - 1) * slopes.square().sum(2)
    wanted = (curvature / 2 - slopes.sum(2)).mean(1)
    assert wanted.abs().max() > 1e-3 and (curvature / 2).max() > 1e-3
    for index, scores in found.items():
        assert torch.allclose(torch.tensor(scores), wanted[index], rtol=1e-3, atol=1e-5)


@EVERY
@TO_MEAN
def test_ablated_heads_cost_what_the_whole_model_loses(
    family: Family, run: TextRun, to_mean: bool, tmp_path: Path
) -> None:
    whole = Whole(tmp_path / "model", family)
    to = whole.to(to_mean)
    every = torch.ones(len(to), ROWS, LENGTH, family.heads)
    found = ablated(run, ablated_to_mean=to_mean)
    with torch.no_grad():
        before = whole.losses(every, to).mean()
        for index in range(len(to)):
            for head in (0, family.heads - 1):
                gates = every.clone()
                gates[index, ..., head] = 0
                cost = float(whole.losses(gates, to).mean() - before)
                assert found[index][head] == pytest.approx(cost, rel=1e-3, abs=1e-5)


@EVERY
def test_of_what_is_left_the_estimate_is_that_of_the_whole_model_without_the_rest(
    family: Family, run: TextRun, tmp_path: Path
) -> None:
    whole, gone = Whole(tmp_path / "model", family), {0: (1,), 1: (0, 2)}
    to = whole.to(to_mean=False)
    gates = torch.ones(len(to), ROWS, LENGTH, family.heads)
    for index, heads in gone.items():
        gates[index, ..., list(heads)] = 0
    gates.requires_grad_()
    losses = whole.losses(gates, to)
    (slopes,) = torch.autograd.grad(losses.sum(), gates)
    wanted = ((LENGTH - 1) * slopes.square().sum(2) / 2 - slopes.sum(2)).mean(1)
    run.forward(gone)
    assert run.loss() == pytest.approx(losses.mean().item(), rel=1e-5)
    for index, scores in estimated(run, ablated_to_mean=False).items():
        for head, score in enumerate(scores):
            of_gone = head in gone.get(index, ())
            assert score == (
                0 if of_gone else pytest.approx(float(wanted[index, head]), rel=1e-2, abs=1e-5)
            )


@EVERY
def test_what_loses_less_on_the_text_goes(family: Family, run: TextRun, tmp_path: Path) -> None:
    whole = Whole(tmp_path / "model", family)
    to = whole.to(to_mean=False)

    def choose(scores: Scores, share: Fraction) -> HeadsOfLayers:
        """Two of each layer, one after the other."""
        count = int(2 * share)
        return {
            index: tuple(sorted(sorted(range(len(own)), key=own.__getitem__)[:count]))
            for index, own in scores.items()
        }

    def added(pruned: HeadsOfLayers) -> float:
        gates = torch.ones(len(to), ROWS, LENGTH, family.heads)
        before = whole.losses(gates, to).mean()
        for index, heads in pruned.items():
            gates[index, ..., list(heads)] = 0
        return (whole.losses(gates, to).mean() - before).item()

    one_round = choose(estimated(run, ablated_to_mean=False), Fraction(1))
    run.forward()
    found = chosen_in_rounds(run, choose)
    assert found.added[1] == pytest.approx(added(one_round), rel=1e-2, abs=1e-5)
    assert found.added[found.rounds] == min(found.added.values())
    assert added(found.pruned) == pytest.approx(found.added[found.rounds], rel=1e-2, abs=1e-5)
    assert all(len(heads) == 2 for heads in found.pruned.values())


@pytest.mark.parametrize("family", FAMILIES[:2], ids=["mha", "gqa"])
def test_of_heads_that_give_little_the_estimate_is_the_exact_cost(
    family: Family, tmp_path: Path
) -> None:
    """What is left out is small of the second order in what they give."""
    folder = family.build(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        tensors[name] *= 1e-3 if "o_proj.weight" in name else 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    source = read_source(folder)
    with SourceReader(source.checkpoint.files) as reader:
        run = TextRun(LayeredModel(source, reader), TEXT)
        run.forward()
        exact = ablated(run, ablated_to_mean=False)
        estimate = estimated(run, ablated_to_mean=False)
        run.close()
    for index, costs in exact.items():
        size = max(map(abs, costs))
        assert min(costs) < -0.1 * size or max(costs) > 0.1 * size
        assert estimate[index] == pytest.approx(costs, abs=0.1 * size)


@pytest.mark.parametrize("family", FAMILIES[:2], ids=["mha", "gqa"])
def test_the_criterion_without_text_is_the_size_of_each_ov_circuit(
    family: Family, tmp_path: Path
) -> None:
    folder = family.build(tmp_path / "model")
    found = importance_by_weights(read_source(folder)).scores
    layers = load_whole(folder).model.layers
    size = family.heads // family.key_value_heads
    for index, layer in enumerate(layers):
        attention = layer.self_attn
        outputs = attention.o_proj.weight.double().unflatten(1, (family.heads, -1))
        values = attention.v_proj.weight.double().unflatten(0, (family.key_value_heads, -1))
        bias = attention.v_proj.bias
        if bias is not None:
            shifts = bias.double().unflatten(0, (family.key_value_heads, -1))[..., None]
            values = torch.cat([values, shifts], dim=-1)
        sizes = torch.stack(
            [(outputs[:, h] @ values[h // size]).norm() for h in range(family.heads)]
        )
        assert torch.allclose(torch.tensor(found[index]).double(), sizes / sizes.max(), rtol=1e-3)


def _mixer(heads: int, key_value_heads: int) -> Attention:
    return Attention(
        hidden_size=8,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=2,
        v_head_dim=2,
    )


def test_the_least_important_heads_go_in_shapes_that_all_layers_can_have() -> None:
    """Of 4 heads in 2 pairs 2 go: a whole pair, or one of each, whichever loses least of all."""
    mixers = {0: _mixer(4, 2), 1: _mixer(4, 2)}
    shapes = dict.fromkeys(mixers, ((1, 2), (2, 1)))
    pairs = {0: (5.0, 4.0, 1.0, 0.0), 1: (0.0, 1.0, 9.0, 9.0)}
    assert least_important(mixers, pairs, shapes) == {0: (2, 3), 1: (0, 1)}
    each = {0: (5.0, 0.0, 5.0, 1.0), 1: (0.0, 4.0, 9.0, 1.0)}
    assert least_important(mixers, each, shapes) == {0: (1, 3), 1: (0, 3)}
    equal = dict.fromkeys(mixers, (1.0,) * 4)
    assert least_important(mixers, equal, shapes) == dict.fromkeys(mixers, (2, 3))
