"""The parts that fit: least squares with held-out rows, temperatures, rows of states and text."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headcount.convert.calibrate.calibration_text import cut_rows
from headcount.convert.calibrate.normal_equations import NormalEquations
from headcount.convert.calibrate.state_rows import new_rows
from headcount.convert.calibrate.temperature import best_temperatures, divergences
from headcount.model.errors import HeadcountError
from headcount.running.text import Text, packaged_text, read_text

pytestmark = pytest.mark.needs_convert


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_fit_is_that_of_numpy() -> None:
    a, r = _random(200, 6), _random(200, 3, seed=1)
    r = r + a @ _random(6, 3, seed=2) + 5
    equations = NormalEquations(6, 3, bias=True, dtype=torch.float64)
    for i in range(0, 200, 40):
        equations.add(a[i : i + 40], r[i : i + 40])
    equations.hold(a[:20], r[:20])
    fit = equations.solve([1e-12])
    wide = np.concatenate([a.numpy(), np.ones((200, 1))], 1)
    wanted, *_ = np.linalg.lstsq(wide, r.numpy(), rcond=None)
    assert np.allclose(fit.change.numpy(), wanted, atol=1e-8)
    left = r[:20].numpy() - wide[:20] @ wanted
    assert fit.after == pytest.approx(float((left**2).sum()))
    assert fit.before == pytest.approx(float(r[:20].square().sum()))


def test_what_does_not_hold_for_other_rows_is_not_taken() -> None:
    a = _random(20, 10)
    equations = NormalEquations(10, 2, bias=False, dtype=torch.float64)
    equations.add(a, _random(20, 2, seed=1))  # nothing to be found in it
    equations.hold(_random(200, 10, seed=2), _random(200, 2, seed=3))
    fit = equations.solve([1e-6])
    assert fit.ridge == 0 and fit.after == fit.before and not fit.change.any()


def test_features_that_are_never_there_are_no_trouble() -> None:
    equations = NormalEquations(3, 2, bias=False, dtype=torch.float32)
    equations.add(torch.zeros(5, 3), torch.ones(5, 2))
    equations.hold(torch.zeros(2, 3), torch.ones(2, 2))
    assert not equations.solve([1e-3]).change.any()


def test_temperatures_undo_a_known_scale() -> None:
    scores = _random(2, 3, 12, 12) * 3
    known = torch.tensor([0.5, 1.0, 2.5], dtype=torch.float64)
    original = scores.softmax(-1)

    def divergence(scale: torch.Tensor) -> torch.Tensor:
        return divergences(
            original, (scores / known[:, None, None] * scale[:, None, None]).softmax(-1)
        )

    assert torch.allclose(best_temperatures(divergence, 3), known, rtol=2e-3)


def test_rows_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    template, values = torch.empty(5, 4), _random(6, 5, 4).float()
    memory = new_rows(6, template, held=2, budget=10**6)
    disk = new_rows(6, template, held=2, budget=100, folder=tmp_path)
    assert disk.on_disk and not memory.on_disk
    for rows in (memory, disk):
        for part in (slice(2, 4), slice(0, 2), slice(4, 6)):
            rows[part] = values[part]
        rows[slice(2, 4)] = values[0:2]
        assert torch.equal(rows[slice(0, 2)], values[0:2])
        assert torch.equal(rows[slice(1, 4)], torch.cat([values[1:2], values[0:2]]))
        rows.close()
    assert not list(tmp_path.iterdir())


def test_the_text_of_the_package_has_nothing_of_that_of_evaluate() -> None:
    own = {
        line
        for line in packaged_text("headcount.convert.calibrate", "builtin").content.splitlines()
        if len(line) > 40
    }
    assert len(own) > 500
    assert not own & set(read_text(None).content.splitlines())


@pytest.mark.parametrize(("tokens", "rows", "length"), [(4096, 16, 256), (300, 4, 75), (64, 4, 16)])
def test_batches_are_equal_and_some_are_held_out(tokens: int, rows: int, length: int) -> None:
    text = Text(name="x", content="", sha256="")
    cut = cut_rows(torch.arange(tokens), longest=256, least=32, seed=0, text=text)
    assert cut.ids.shape == (rows, length)
    assert sorted(cut.ids.flatten().tolist()) == list(range(rows * length))
    assert len({batch.stop - batch.start for batch in cut.batches}) == 1
    assert cut.held and cut.fitted and not set(map(str, cut.held)) & set(map(str, cut.fitted))


def test_too_few_tokens_are_refused() -> None:
    text = Text(name="x", content="", sha256="")
    with pytest.raises(HeadcountError, match="x: 31 tokens are too few"):
        cut_rows(torch.arange(31), longest=256, least=32, seed=0, text=text)
