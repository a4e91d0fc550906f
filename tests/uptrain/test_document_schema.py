"""The document of `uptrain` against the schema that ships."""

import pytest

from headcount.library.schemas import schema_of

from .conftest import Pair, Uptrain, document

jsonschema = pytest.importorskip("jsonschema", reason="is in the extra test")
pytestmark = pytest.mark.needs_convert


def test_the_document_is_as_its_schema_says(uptrain: Uptrain, pair: Pair) -> None:
    found = document(uptrain(pair))
    validator = jsonschema.Draft202012Validator(schema_of("uptrain"))
    assert [error.message for error in validator.iter_errors(found)] == []
    assert not validator.is_valid({**found, "more": 1})
    for key in found:
        assert not validator.is_valid({k: v for k, v in found.items() if k != key}), key
