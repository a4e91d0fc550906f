"""`uptrain` heals a model that keeps latents, and what it writes is one again."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from causal_models import build_model, make_tokenizer
from headcount.audit import audit_model
from headcount.cli import main
from headcount.model.mixers import LowRankAttention

from .conftest import Pair, Uptrain, document

pytestmark = pytest.mark.needs_convert


@pytest.fixture
def latent_pair(tmp_path: Path) -> Pair:
    """A Llama, and the same with a latent of an eighth of what it kept."""
    source = tmp_path / "original"
    build_model("llama", num_key_value_heads=4).save_pretrained(source)
    make_tokenizer(bos=False).save_pretrained(source)
    words = ("convert", str(source), str(tmp_path / "converted"), "--latent", "1/8")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr
    return Pair(source, tmp_path / "converted")


def test_a_latent_model_is_healed(uptrain: Uptrain, latent_pair: Pair, tmp_path: Path) -> None:
    found = document(uptrain(latent_pair, "--steps", "40"))
    assert found["after"]["kl_divergence"] < 0.9 * found["before"]["kl_divergence"]
    before, after = (audit_model(str(f)) for f in (latent_pair.converted, tmp_path / "out"))
    assert after.spec.layers == before.spec.layers
    assert all(isinstance(m, LowRankAttention) for la in after.spec.layers for m in la.mixers)
    assert not [finding for finding in after.findings if finding.severity == "error"]
    assert before.checkpoint is not None and after.checkpoint is not None
    kept = {t.name: t.shape for t in before.checkpoint.tensors.values()}
    assert {t.name: t.shape for t in after.checkpoint.tensors.values()} == kept
