"""What an audit says of the bytes of quantised weights without their headers."""

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.audit.audit_report import audit_report
from headcount.audit.auditing import audit_model
from headcount.model.sizes import AuditRequest

SMALL = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 48, "vocab_size": 100},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
}


def stored(folder: Path, **more: Any) -> tuple[list[Any], Any]:
    """The facts on stored bytes, and what the document says of them."""
    file = folder / "config.json"
    file.write_text(json.dumps({**SMALL, **more}), "utf-8")
    report = audit_report(audit_model(str(file)), AuditRequest())
    facts = [fact for fact in report.facts if fact.key == "stored_bytes"]
    return facts, report.document.get("stored")


def test_bytes_follow_from_the_format(tmp_path: Path) -> None:
    """4 bit in groups of 16 with a scale and a bias of 16 bit; norms stay."""
    settings = {"group_size": 16, "bits": 4}
    (fact,), document = stored(tmp_path, quantization=settings, tie_word_embeddings=False)
    elements = 2 * 100 * 64 + 2 * (2 * 64 * (64 + 32) + 3 * 64 * 48)
    assert fact.value == elements * (4 + 32 / 16) / 8 + 2 * 5 * 64
    assert document["bytes"] == fact.value
    assert document["source"] == "config"


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    (fact,), document = stored(tmp_path, quantization_config={"quant_method": "of next year"})
    assert fact.value == "unknown"
    assert "of next year" in fact.note
    assert document["bytes"] is None
    assert "of next year" in document["why"]


def test_an_unknown_count_is_said(tmp_path: Path) -> None:
    settings = {"quant_method": "awq", "bits": 4}
    facts, document = stored(tmp_path, model_type="of_next_year", quantization_config=settings)
    assert facts[0].value == "unknown"
    assert "number of parameters" in document["why"]


def test_a_word_in_place_of_settings_is_not_an_unknown_count(tmp_path: Path) -> None:
    (fact,), _ = stored(tmp_path, quantization_config="gptq")
    assert (fact.value, fact.note) == (
        "unknown",
        "what the config says of a quantisation is no object of settings",
    )


def test_plain_weights_have_no_such_line(tmp_path: Path) -> None:
    assert stored(tmp_path) == ([], None)


@pytest.mark.parametrize(
    ("model", "gib"),
    # Sums over the headers of all their files (public index file ids 62826164383 and 62727537601);
    # the second has three layers more, which predict further tokens.
    [("kimi-k3", 1453.66), ("mimo-v2.5-pro", 962.40)],
)
def test_published_sizes(model: str, gib: float) -> None:
    document = audit_report(audit_model(model), AuditRequest()).document
    assert document["stored"]["bytes"] == pytest.approx(gib * 2**30, rel=0.005)
