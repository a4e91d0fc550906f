"""An output that was fitted to a text, held against its record and its source."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conversions import run
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.sources.safetensors import read_header

pytestmark = pytest.mark.needs_convert


def test_what_was_fitted_is_vouched_for_by_its_digest(
    make_model: Callable[..., Path], prose: Path, tmp_path: Path
) -> None:
    source, out = make_model("llama"), tmp_path / "out"
    fitted = {"method": "merge", "refit": "mlp", "calibration_tokens": 512}
    run(source, out, calibration=str(prose), **fitted)
    recorded = read_recorded(out)
    found = verify(recorded, source, sample=None, seed=0)
    assert not found.differences
    assert found.counts["by_digest_only"] == len(recorded.rewritten) > 3 * 4
    parts = ("copied", "recomputed", "by_digest_only")
    assert sum(found.counts.get(part, 0) for part in parts) == len(recorded.tensors)
    name = "model.layers.1.self_attn.k_proj.weight"
    (tensor,) = [t for t in read_header(out / "model.safetensors").tensors if t.name == name]
    data = bytearray((out / "model.safetensors").read_bytes())
    data[tensor.offsets[0]] ^= 1
    (out / "model.safetensors").write_bytes(data)
    assert [one.where for one in verify(recorded, source, sample=None, seed=0).differences] == [
        name
    ]
