"""docs/heads.md says what holds."""

import re
from pathlib import Path

import pytest

from headcount.heads.heads_request import Thresholds

PAGE = (Path(__file__).parents[2] / "docs" / "heads.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.needs_convert


def test_the_page_has_the_thresholds() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [A-Z+][^|]* \| ([\d.]+) \|$", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == Thresholds()._asdict()


def test_the_page_counts_the_decoders() -> None:
    from decoders import REFUSED, jobs

    refused = [one for one, file in jobs() if one in REFUSED or f"{one}/{file}" in REFUSED]
    every = len([*jobs()])
    assert f"{every - len(refused)} of the {every} tiny models" in PAGE


def test_the_page_counts_the_types_that_transformer_lens_scored() -> None:
    record = Path(__file__).with_name("transformer_lens.jsonl").read_text("utf-8").splitlines()
    assert f"of {len(record) - 1} types" in PAGE.replace("\n  ", " ")


def test_the_page_has_every_key_of_the_document(tmp_path: Path) -> None:
    from headcount.heads.atlas_document import atlas_document
    from headcount.heads.atlas_run import make_atlas
    from headcount.heads.heads_request import HeadsRequest
    from planted_heads import plant

    plant("llama").model.save_pretrained(tmp_path)
    request = HeadsRequest(model=str(tmp_path), tokens=8, sequences=1)
    document = atlas_document(make_atlas(request, tmp_path, "model"))
    layer = document["layers"][0]
    parts = (document, document["model"], document["cost"], document["settings"], layer)
    parts += (layer["uniform"], layer["heads"][0], layer["heads"][0]["scores"])
    keys = {key for part in (*parts, layer["key_value_heads"][0]) for key in part}
    block = PAGE.partition("## In JSON")[2]
    assert keys | {*document["roles"]} == {*re.findall(r'"(\w+)"', block)}
