"""Audits of folders that other classes than the usual ones saved: heads, halves, single stacks."""

import importlib
from pathlib import Path

import pytest

from headcount.audit import audit_model

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")

CLASSES = {
    "bart": ("BartForCausalLM", "BartForSequenceClassification"),
    "bert": ("BertForSequenceClassification", "BertForQuestionAnswering"),
    "clip": ("CLIPForImageClassification",),
    "clip_text_model": ("CLIPTextModelWithProjection",),
    "clip_vision_model": ("CLIPVisionModel",),
    "gpt2": ("GPT2DoubleHeadsModel", "GPT2ForTokenClassification"),
    "llama": ("LlamaForSequenceClassification",),
    "musicgen_decoder": ("MusicgenForCausalLM",),
    "prophetnet": ("ProphetNetDecoder", "ProphetNetEncoder"),
    "siglip": ("SiglipForImageClassification",),
    "t5": ("T5EncoderModel", "T5ForTokenClassification"),
    "whisper": ("WhisperForAudioClassification", "WhisperForCausalLM"),
}
SEED = 100


@pytest.mark.parametrize(
    ("model_type", "name"), [(one, name) for one, names in CLASSES.items() for name in names]
)
def test_what_another_class_saved_is_sound(model_type: str, name: str, tmp_path: Path) -> None:
    classes, whole = map(importlib.import_module, ("classes_truth", "whole_models"))
    config = classes.labelled(classes.total_config(model_type, SEED), SEED)
    model = classes.instance(name, config)
    whole.save(model, tmp_path)
    audit = audit_model(str(tmp_path))
    assert [finding for finding in audit.findings if finding.severity != "note"] == []
    assert audit.spec.parameters == sum(one.numel() for one in model.parameters())
    read = {layer.stack for layer in audit.spec.layers}
    assert len(read) == (2 if name == "BartForSequenceClassification" else 1)
