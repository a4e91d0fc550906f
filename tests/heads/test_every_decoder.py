"""Patterns of every decoder that transformers builds: as many as it has attentions, and as it
returns them itself."""

import pytest
import torch

from against_record import spec_of
from decoders import REFUSED, TOKENS, jobs, patterns, returned, tiny_decoder
from headcount.heads.attentions import check_patterns, decoder_attentions
from headcount.model.errors import HeadcountError

pytestmark = [pytest.mark.needs_convert, pytest.mark.slow]


def compare(model_type: str, file: str) -> None:
    """Raises HeadcountError where there are no patterns."""
    decoder = tiny_decoder(model_type, file)
    spec = spec_of(decoder.config)
    has_encoder = bool(decoder.model.config.is_encoder_decoder)
    attentions = decoder_attentions(spec, model_type, has_encoder=has_encoder)
    found = patterns(decoder)
    check_patterns(attentions, [one.shape[1] for one in found], model_type, model_type)
    expected = [one for one in returned(decoder) if one.dim() == 4 and one.shape[2] == TOKENS]
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    has_sink = any("sink" in name for name, _ in decoder.model.named_parameters())
    for one in found:
        rows = one.sum(dim=-1)
        assert rows.max() <= 1 + 1e-5
        assert has_sink or rows.min() >= 1 - 1e-5


@pytest.mark.parametrize(("model_type", "file"), [*jobs()])
def test_patterns_are_those_that_transformers_returns(model_type: str, file: str) -> None:
    reason = REFUSED.get(model_type) or REFUSED.get(f"{model_type}/{file}")
    if reason is None:
        compare(model_type, file)
        return
    with pytest.raises((HeadcountError, AssertionError), match=reason):
        compare(model_type, file)
