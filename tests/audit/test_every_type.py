"""Every model_type that transformers has a language model for, against one that it builds and runs.

The record (test_truth.py) has some configs of each; here are more of them, read as given, as saved
and with every default written out. Nothing is typed by hand but the reasons for what is left out.
"""

import importlib

import pytest

from truth_record import recorded

pytestmark = [pytest.mark.needs_convert, pytest.mark.slow]

JOBS = dict.fromkeys(
    (line["model_type"], line["task"])
    for name in ("decoders", "encoder_decoders", "encoders", "multimodal")
    for line in recorded(name)
)


@pytest.mark.parametrize(("model_type", "task"), JOBS)
def test_four_configs(model_type: str, task: str) -> None:
    importlib.import_module("every_type").compare(model_type, task, 4)
