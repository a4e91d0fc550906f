"""How patterns are taken: as the class computes them, one at a time, and checked."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from decoders import TOKENS, Decoder, patterns, returned
from headcount.heads.attentions import check_patterns, decoder_attentions
from headcount.heads.patterns import check_square, pattern_place, run_for_patterns
from headcount.model.errors import UnsupportedModelError

pytestmark = pytest.mark.needs_convert


@pytest.mark.parametrize("name", ["gpt2", "openai-gpt", "opt", "mistral", "gemma2", "mixtral"])
def test_patterns_are_those_of_the_class_and_none_is_kept(
    build: Callable[..., Any], name: str
) -> None:
    """Of classes that return tuples and lists, with windows and soft caps."""
    model = build(name)
    model.set_attn_implementation("eager")
    ids = torch.randint(1, 300, (2, TOKENS), generator=torch.Generator().manual_seed(0))
    decoder = Decoder(model, {}, {"input_ids": ids})
    found, expected = patterns(decoder), returned(decoder)
    assert len(found) == len(expected) == 2
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_last_of_that_shape_is_the_pattern() -> None:
    """T5 returns its biases before."""
    hidden, biases, pattern = torch.rand(2, 5, 8), torch.rand(2, 4, 5, 5), torch.rand(2, 4, 5, 5)
    assert pattern_place((hidden, biases, pattern), 5) == 2
    assert pattern_place([hidden, pattern, None], 5) == 1
    assert pattern_place((hidden, torch.rand(2, 4, 9, 5)), 5) is None
    assert pattern_place(pattern, 5) is None


def test_what_no_softmax_gives_is_refused(build: Callable[..., Any]) -> None:
    model = build("gpt2")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[0, 0] = float("nan")
    ids = torch.randint(1, 300, (2, TOKENS))
    with pytest.raises(UnsupportedModelError, match=r"h\.1\.attn: .*not what a softmax gives"):
        run_for_patterns(model, lambda path, pattern: None, queries=TOKENS, input_ids=ids)


def test_hooks_go_when_patterns_are_taken(build: Callable[..., Any]) -> None:
    model = build("gpt2")
    model.set_attn_implementation("eager")
    ids = torch.randint(1, 300, (2, TOKENS))
    run_for_patterns(model, lambda path, pattern: None, queries=TOKENS, input_ids=ids)
    hooks = [hook for module in model.modules() for hook in module._forward_hooks.values()]
    with torch.no_grad():
        output = model(input_ids=ids, output_attentions=True)
    assert len(output.attentions) == 2 and output.attentions[0] is not None
    assert not [hook for hook in hooks if hook.__module__.startswith("headcount")]


def test_patterns_that_belong_to_no_head_are_refused(llama_spec: Any) -> None:
    attentions = decoder_attentions(llama_spec, "model", has_encoder=False)
    check_patterns(attentions, [4, 4], "model", "llama")
    with pytest.raises(UnsupportedModelError, match=r"returns 1 attention patterns \(heads: 4\)"):
        check_patterns(attentions, [4], "model", "llama")
    with pytest.raises(UnsupportedModelError, match=r"config describes 2 \(4, 4\)"):
        check_patterns(attentions, [4, 8], "model", "llama")
    with pytest.raises(UnsupportedModelError, match="9 keys for 5 queries"):
        check_square("layer", torch.rand(1, 4, 5, 9))


@pytest.fixture
def llama_spec(build: Callable[..., Any]) -> Any:
    from against_record import spec_of
    from tiny_truth import written

    return spec_of(written(build("llama").config))
