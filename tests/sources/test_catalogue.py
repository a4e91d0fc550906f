"""The catalogue: found by any name, complete, and saying where its figures are from."""

from pathlib import Path

import pytest

from headcount.audit import audit_model
from headcount.model.errors import UnknownModelError
from headcount.sources import catalogue
from headcount.sources.catalogue import CatalogueRow, find_row, read_entry, search_catalogue

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
    found = {row.id for row in search_catalogue("8b qwen3")}
    assert "Qwen/Qwen3-8B" in found
    assert all("qwen3" in row.id.casefold() for row in search_catalogue("qwen3 instruct"))
    assert search_catalogue("no such model") == ()


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
def test_every_model_is_audited(row: CatalogueRow) -> None:
    spec = audit_model(row.id).spec
    assert spec.layers
    assert spec.parameters
    assert spec.attention_parameters < spec.parameters
