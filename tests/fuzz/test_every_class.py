"""Every class of transformers that the record of truth has is audited and planned."""

import json

import pytest

import fuzz_targets
from headcount.model.errors import HeadcountError
from truth_record import recorded


@pytest.mark.slow
def test_every_recorded_class_is_audited_and_planned() -> None:
    tried = 0
    for line in recorded("classes"):
        for name in line.get("classes", ()):
            config = {**line["config"], "architectures": [name]}
            try:
                fuzz_targets.read_config(json.dumps(config).encode())
            except HeadcountError:
                continue
            tried += 1
    assert tried > 2000
