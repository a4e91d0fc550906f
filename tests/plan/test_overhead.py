"""The estimate of runtime and activations against start-up logs, and its own arithmetic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.plan.overhead import Overhead

GIB = 2**30

# Public vLLM start-up logs (0.9 to 0.13): hidden size, vocabulary, tp, max_num_seqs,
# max_num_batched_tokens, and the GiB that the budget lost beside weights and K/V memory.
LOGS = {
    "qwen3-8b on a100-40gb": (4096, 151_936, 1, 256, 2048, 1.58),
    "gpt-oss-20b on h100": (2880, 201_088, 1, 1024, 8192, 7.51),
    "llama-3.3-70b on 2 h100": (8192, 128_256, 2, 1024, 8192, 5.38),
    "qwen3-0.6b on h100": (1024, 151_936, 1, 1024, 8192, 5.69),
    "qwen3-32b on 2 h100": (5120, 151_936, 2, 1024, 8192, 6.18),
    "qwen3-vl-30b-a3b on h100-nvl": (2048, 151_936, 1, 1024, 8192, 6.16),
    "gemma-3-27b on mi300x": (5376, 262_208, 1, 1024, 8192, 10.87),
}


@pytest.mark.parametrize(
    ("hidden", "vocabulary", "tp", "sequences", "tokens", "logged"), LOGS.values(), ids=LOGS.keys()
)
def test_start_up_logs_are_met_within_a_tenth(
    hidden: int, vocabulary: int, tp: int, sequences: int, tokens: int, logged: float
) -> None:
    overhead = Overhead(
        hidden_size=hidden,
        vocab_size=vocabulary,
        element_bytes=2,
        encoder_tokens=0,
        tp=tp,
        in_steps=True,
    )
    estimate = overhead.total_bytes(tokens // sequences, sequences) / GIB
    assert estimate == pytest.approx(logged, rel=0.10)


DECODER = Overhead(
    hidden_size=1024,
    vocab_size=50_000,
    element_bytes=2,
    encoder_tokens=0,
    tp=1,
    in_steps=True,
)


def test_the_larger_of_forward_and_sampler_counts() -> None:
    few, many = DECODER.terms(8192, 1)[1], DECODER.terms(8192, 1000)[1]
    assert few.bytes == 8192 * 16 * 1024 * 2
    assert "forward" in few.formula
    assert many.bytes == 39 * 1000 * 50_000
    assert "sampler" in many.formula


def test_prompts_run_in_steps_but_encoders_see_them_whole() -> None:
    assert DECODER.step_tokens(100_000, 4) == 8192
    assert DECODER.step_tokens(100, 4) == 400
    encoder = replace(DECODER, in_steps=False, vocab_size=None)
    assert encoder.step_tokens(100_000, 4) == 400_000
    assert encoder.sampler_bytes(4) == 0
    assert replace(DECODER, encoder_tokens=5000).step_tokens(100, 4) == 20_000


def test_ranks_split_the_mlp_and_add_communication() -> None:
    pair = replace(DECODER, tp=4)
    assert pair.forward_bytes(1, 1) == (4 + 3) * 1024 * 2
    assert pair.runtime_bytes > DECODER.runtime_bytes


@given(st.integers(1, 10**6), st.integers(1, 5000), st.sampled_from([1, 2, 8]))
def test_more_tokens_or_sequences_never_need_less(context: int, batch: int, tp: int) -> None:
    overhead = replace(DECODER, tp=tp)
    here = overhead.total_bytes(context, batch)
    assert overhead.total_bytes(context + 1, batch) >= here
    assert overhead.total_bytes(context, batch + 1) >= here
    assert here == sum(term.bytes for term in overhead.terms(context, batch))
