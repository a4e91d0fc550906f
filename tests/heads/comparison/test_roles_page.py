"""docs/roles-kept.md says what holds."""

import re
from pathlib import Path

import pytest

from planted_heads import plant

PAGE = (Path(__file__).parents[3] / "docs" / "roles-kept.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.needs_convert


def test_the_page_has_every_key_of_the_document(tmp_path: Path) -> None:
    from headcount.heads.comparison.comparison_document import comparison_document
    from headcount.heads.comparison.comparison_run import NamedFolder, compare_heads
    from headcount.heads.heads_request import HeadsRequest
    from headcount.heads.roles import LETTERS

    plant("llama").model.save_pretrained(tmp_path)
    request = HeadsRequest(model=str(tmp_path), tokens=8, sequences=1)
    folder = NamedFolder(tmp_path, "model")
    document = comparison_document(compare_heads(request, folder, folder))
    layer, role = document["layers"][0], document["roles"]["induction"]
    parts = (document, document["model"], document["heads"], role, role["score"], layer)
    parts += (layer["heads"][0], layer["key_value_heads"][0], document["cost"])
    keys = {key for part in (*parts, document["cost"]["model"]) for key in part}
    block = PAGE.partition("In JSON:")[2].partition("\n\n`roles` has")[0]
    quoted = {*re.findall(r'"(\w+)"', block)}
    assert keys | {*LETTERS} == quoted


def test_the_page_has_the_verdicts() -> None:
    from headcount.heads.comparison.comparison import RoleChange

    def verdict(had: int, kept: int, gained: int) -> str:
        counts = {"had": had, "kept": kept, "gained": gained, "gone": 0}
        return RoleChange(role="induction", score_before=None, score_after=None, **counts).verdict

    found = [verdict(2, 2, 0), verdict(2, 1, 0), verdict(2, 0, 1), verdict(0, 0, 1)]
    assert f'"verdict": "{"|".join(found)}"' in PAGE
