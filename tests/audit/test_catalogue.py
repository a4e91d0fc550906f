"""The catalogue: found by any name, complete, and saying where its figures are from."""

import json
from pathlib import Path

import pytest

from headcount.audit import audit_model, catalogue
from headcount.audit.catalogue import CatalogueRow, find_row, read_entry, search
from headcount.audit.errors import UnknownModelError, UnsupportedModelError
from headcount.audit.family.table import FAMILIES

ROWS = catalogue.catalogue()
FOLDER = Path(catalogue.__file__).parent


def test_the_index_is_that_of_the_models() -> None:
    lines = (FOLDER / "models.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(ROWS) == 318
    for row in ROWS:
        entry = read_entry(row)
        assert (entry.id, entry.aliases) == (row.id, row.aliases)
        assert row.parameters
        assert entry.built_parameters in (None, row.parameters)
        assert entry.sources, "every config says where it is from"


def test_no_name_is_given_twice() -> None:
    names = [name.casefold() for row in ROWS for name in row.names]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["llama-3-8b", "LLAMA-3-8B", "meta-llama/meta-llama-3-8b"])
def test_names_are_case_insensitive(name: str) -> None:
    row = find_row(name)
    assert row is not None
    assert row.id == "meta-llama/Meta-Llama-3-8B"


def test_search_takes_words_in_any_order() -> None:
    found = {row.id for row in search("8b qwen3")}
    assert "Qwen/Qwen3-8B" in found
    assert all("qwen3" in row.id.casefold() for row in search("qwen3 instruct"))
    assert search("no such model") == ()


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownModelError, match="llama-3-8b"):
        audit_model("lama-3-8b")


def test_published_counts_that_differ_are_explained() -> None:
    unexplained = [
        row.id
        for row in ROWS
        if (entry := read_entry(row)).published_parameters and entry.built_parameters
        if entry.published_parameters != entry.built_parameters and not entry.notes
    ]
    assert unexplained == []


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_model_is_audited_or_refused_by_its_type(row: CatalogueRow) -> None:
    entry = read_entry(row)
    if entry.config.get("model_type", row.model_type) in FAMILIES or row.model_type is None:
        spec = audit_model(row.id).spec
        assert spec.layers
        assert spec.parameters
        assert spec.attention_parameters < spec.parameters
        return
    with pytest.raises(UnsupportedModelError, match=json.dumps(row.model_type)[1:-1]):
        audit_model(row.id)


def test_what_is_refused_is_recurrent_or_hybrid() -> None:
    """Every type whose layers are attention alone, or latent attention, has a row."""
    refused = {row.model_type for row in ROWS if row.model_type not in FAMILIES} - {None}
    assert refused == {
        *("deepseek_v32", "glm_moe_dsa", "deepseek_v4"),  # an indexer's or a compressed cache
        *("mamba", "falcon_mamba", "recurrent_gemma", "minimax"),
        *("jamba", "zamba", "zamba2", "falcon_h1", "nemotron_h"),
        *("qwen3_next", "qwen3_5", "qwen3_5_moe"),
    }
