"""Plans computed by hand, published constants, and that limits are exact inverses of the sum."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config_specs import read_spec
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec
from headcount.plan.devices import find_device, parse_device
from headcount.plan.engines.registry import ENGINES
from headcount.plan.limits import largest
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.plan.what_if.rows import variant_plans

MakePlan = Callable[..., Plan]
GIB = 2**30

# Bytes of one token in every layer, before any window is full.
FIRST_TOKEN = {"gpt-oss-120b": 73_728, "gpt-oss-20b": 49_152}


@pytest.mark.parametrize(("name", "expected"), FIRST_TOKEN.items())
def test_published_bytes_of_a_token_in_all_layers(plan: MakePlan, name: str, expected: int) -> None:
    assert plan(name, context=1).pool.needed(1, 1) == expected


def test_llama_3_8b_by_hand(plan: MakePlan) -> None:
    found = plan("llama-3-8b", context=8192, device=find_device("h100"))
    weights, cache, runtime, activations = found.terms
    assert weights.bytes == 8_030_261_248 * 2 == 16_060_522_496
    assert cache.bytes == 32 * 8192 * 8 * (128 + 128) * 2 == GIB
    assert runtime.bytes == 15 * GIB // 100
    assert activations.bytes == 8192 * (4 + 12) * 4096 * 2 == GIB
    assert found.budget_bytes == int(find_device("h100").usable_memory * 0.9)
    assert found.fits is True
    assert found.free_bytes == found.budget_bytes - 16_060_522_496 - 2 * GIB - 15 * GIB // 100


def test_llama_3_70b_wants_two_80_gb_devices(plan: MakePlan) -> None:
    for device in ("h100", "a100-80gb"):
        alone = plan("llama-3-70b", context=8192, device=find_device(device))
        pair = plan("llama-3-70b", context=8192, device=find_device(device), tp=2)
        assert alone.fits is False
        assert pair.fits is True
        assert pair.terms[0].bytes == 70_553_706_496
        assert pair.terms[1].bytes == alone.terms[1].bytes // 2 == 80 * 8192 * 4 * 256 * 2


def test_deepseek_v3_wants_eight_h200(plan: MakePlan) -> None:
    """671 B parameters, fp8 but for embedding, head, routers and norms, and a layer that predicts
    the token after the next: total_size of the published index."""
    h200, h100 = find_device("h200"), find_device("h100")
    published = 688_586_727_753
    assert plan("deepseek-v3").weights.total_bytes == pytest.approx(published, rel=1e-4)
    assert plan("deepseek-v3", tp=8, context=32_768, device=h200).fits is True
    assert plan("deepseek-v3", tp=8, context=32_768, device=h100).fits is False
    at_16_bit = plan("deepseek-v3", tp=8, dtype="bfloat16", context=32_768, device=h200)
    assert at_16_bit.weights.total_bytes == 2 * 671_026_404_352
    assert at_16_bit.fits is False


def test_a_window_keeps_no_more_than_itself(plan: MakePlan) -> None:
    """Mistral-7B v0.1: all 32 layers see 4,096 tokens."""
    found = plan("mistral-7b-v0.1")
    rank = found.pool
    assert rank.needed(4095, 1) == 4095 * 131_072
    assert rank.needed(4096, 1) == 4096 * 131_072
    assert rank.needed(32_768, 3) == 3 * 4096 * 131_072
    assert found.bytes_per_token == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_as_long_as_the_request_costs_each_token(plan: MakePlan, engine: str) -> None:
    """Mistral-7B v0.1: 32 layers of 8 K/V heads of 128 and a window of 4,096 tokens."""
    h100 = find_device("h100")
    for context, each in ((4095, 131_072), (4096, 131_072), (4097, 0)):
        found = plan("mistral-7b-v0.1", engine=engine, device=h100, context=context)
        assert found.bytes_per_token == each, context


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_that_never_fills_costs_each_token(plan: MakePlan, engine: str) -> None:
    """Phi-3.5-mini: 32 layers of 32 K/V heads of 96, at 16 bit; its window of 262,144 tokens is
    beyond its 131,072 positions."""
    each = 32 * 2 * 32 * 96 * 2
    h100 = find_device("h100")
    for context in (None, 4096):
        found = plan("phi-3.5-mini", engine=engine, device=h100, context=context)
        assert found.bytes_per_token == each == 393_216


def test_a_context_without_limit_is_the_models_maximum_or_none(
    plan: MakePlan, read_model: Callable[[str], ModelSpec]
) -> None:
    limits = plan("mistral-7b-v0.1", device=find_device("h100")).limits
    assert limits is not None
    assert (limits.max_context, limits.context_is_capped) == (32_768, True)
    endless = replace(read_model("mistral-7b-v0.1"), max_position_embeddings=None)
    request = PlanRequest(device=find_device("h100"))
    unlimited = plan_model(PlannedModel(model_id="endless", spec=endless), request).limits
    assert unlimited is not None
    assert (unlimited.max_context, unlimited.context_is_capped) == (None, False)


def total(plan: Plan, context: int, batch_size: int) -> int:
    assert plan.budget is not None
    taken = plan.budget.taken(context, batch_size)
    return sum(term.bytes for term in taken) + plan.pool.needed(context, batch_size)


@pytest.mark.parametrize(
    ("name", "device", "request_"),
    [
        ("llama-3.1-8b", "rtx-4090", {"context": 8192}),
        ("llama-3.1-8b", "rtx-4090", {"context": 8192, "batch_size": 3, "kv_dtype": "fp8"}),
        ("llama-3-70b", "a100-80gb", {"tp": 4, "batch_size": 16}),
        ("google/gemma-3-27b-it", "h100", {"context": 100_000, "batch_size": 1}),
        ("gpt-oss-120b", "h100", {"context": 131_072}),
        ("deepseek-v2-lite", "rtx-a6000", {"context": 65_536, "batch_size": 2}),
        ("flan-t5-xl", "t4", {"context": 4096}),
        ("bloom-7b1", "l4", {"context": 2048}),
    ],
)
def test_limits_are_exact(
    plan: MakePlan, name: str, device: str, request_: dict[str, object]
) -> None:
    found = plan(name, device=find_device(device), **request_)
    limits, budget = found.limits, found.budget_bytes
    assert limits is not None
    assert limits.max_context is not None
    assert limits.max_batch_size is not None
    assert budget is not None
    context, batch = found.workload.context, found.workload.batch_size
    assert found.fits == (limits.max_batch_size >= batch) == (limits.max_context >= context)
    assert limits.max_batch_size >= 1
    assert total(found, context, limits.max_batch_size) <= budget
    assert total(found, context, limits.max_batch_size + 1) > budget
    assert total(found, limits.max_context, batch) <= budget
    if not limits.context_is_capped:
        assert total(found, limits.max_context + 1, batch) > budget


@given(limit=st.integers(0, 10**9), ceiling=st.none() | st.integers(1, 10**7))
def test_largest_finds_the_last_that_fits(limit: int, ceiling: int | None) -> None:
    expected = limit if ceiling is None else min(limit, ceiling)
    assert largest(lambda n: n <= limit, ceiling=ceiling) == expected


def test_largest_without_end_is_none() -> None:
    assert largest(lambda n: True, ceiling=None) is None
    assert largest(lambda n: True, ceiling=1) == 1


@given(
    name=st.sampled_from(
        ["gpt2", "llama-3-8b", "gemma-2-9b", "deepseek-v2-lite", "t5-small", "bert-base-uncased"]
    ),
    context=st.integers(1, 200_000),
    batch_size=st.integers(1, 500),
    tp=st.sampled_from([1, 2, 4]),
    kv_dtype=st.sampled_from(["float32", "bfloat16", "fp8", "int4"]),
    size=st.integers(1, 200),
)
def test_total_is_the_sum_of_terms_and_fits_says_whether_it_is_within(
    plan: MakePlan,
    name: str,
    context: int,
    batch_size: int,
    tp: int,
    kv_dtype: str,
    size: int,
) -> None:
    memory = plan(
        name,
        context=context,
        batch_size=batch_size,
        tp=tp,
        kv_dtype=kv_dtype,
        device=parse_device(f"{size}GiB"),
    )
    assert memory.total_bytes == sum(term.bytes for term in memory.terms)
    assert all(term.bytes >= 0 for term in memory.terms)
    assert memory.free_bytes == int(size * GIB * 0.9) - memory.total_bytes
    assert memory.fits == (memory.free_bytes >= 0)


@pytest.mark.parametrize(
    "name",
    [
        "llama-3-8b",
        "google/gemma-3-27b-it",
        "gpt-oss-20b",
        "deepseek-v3",
        "whisper-small",
        "gemma-3n-e4b",
    ],
)
def test_the_cache_is_that_of_the_spec(
    plan: MakePlan, read_model: Callable[[str], ModelSpec], name: str
) -> None:
    """Equal layers are counted once; the sum must be the one over all layers."""
    spec = read_model(name)
    for context in (1, 127, 128, 129, 5000):
        for kv_dtype, bits in (("bfloat16", 16), ("int4", 4)):
            rank = plan(name, context=context, kv_dtype=kv_dtype).pool
            whole = spec.cache_bytes(tokens=context, batch_size=7, bits=bits, engine="serving")
            assert rank.needed(context, 7) == whole


def test_an_encoder_keeps_nothing(plan: MakePlan) -> None:
    found = plan("bert-base-uncased", device=find_device("t4"))
    weights, cache, _, activations = found.terms
    assert weights.bytes == 2 * 109_514_298
    assert cache.bytes == 0
    assert activations.bytes == 512 * (4 + 12) * 768 * 2
    assert variant_plans(found) == ()
    limits = found.limits
    assert limits is not None
    assert limits.max_context == 512
    left = int(0.9 * 14.56 * GIB) - 2 * 109_514_298 - 0.15 * GIB
    assert limits.max_batch_size == pytest.approx(left / activations.bytes, abs=2)  # not in steps


def test_cross_attention_keeps_the_encoders_tokens(plan: MakePlan) -> None:
    """T5-small: 6 decoder layers with self- and cross-attention, 8 heads of 64."""
    per_token = 6 * 8 * (64 + 64) * 2
    rank = plan("t5-small", encoder_tokens=100).pool
    assert rank.needed(10, 1) == (10 + 100) * per_token
    assert plan("t5-small").pool.needed(10, 1) == (10 + 512) * per_token


def test_stored_bytes_win_unless_a_dtype_is_asked_for(plan: MakePlan) -> None:
    stored = plan("gpt2", weights_bytes=548_105_171)
    assert stored.weights.total_bytes == 548_105_171
    assert plan("gpt2", weights_bytes=548_105_171, dtype="fp16").weights.total_bytes == (
        2 * 124_439_808
    )


def test_int4_is_what_files_of_that_name_hold(plan: MakePlan) -> None:
    """Integers of the linear layers with a 16-bit scale for each 128 and a shape for each matrix,
    the rest at 16 bit: 5.38 GiB of Llama-3-8B in W4A16 on loading, buffers included."""
    found = plan("llama-3-8b", dtype="int4").weights
    linear = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    assert found.total_bytes == (
        linear // 2 + 2 * linear // 128 + 32 * 7 * 16 + 2 * (8_030_261_248 - linear)
    )
    assert found.total_bytes == pytest.approx(5.38 * GIB, rel=0.02)
    assert "6,979,321,856 parameters x 4.125 bit" in found.formula
    assert "1,050,939,392 x 16 bit" in found.formula


@pytest.mark.parametrize("name", ["int4", "int8", "fp8", "nf4", "awq", "gptq", "q4_k_m"])
def test_a_dtype_is_one_answer_with_every_engine(plan: MakePlan, name: str) -> None:
    """deepseek-v2-lite has experts, qwen2.5-0.5b a tied embedding, phi-2 biases."""
    for model in ("llama-3-8b", "deepseek-v2-lite", "qwen2.5-0.5b", "phi-2"):
        sizes = {
            plan(model, dtype=name, engine=engine, device=find_device("h100")).weights.total_bytes
            for engine in ("generic", "transformers", "vllm", "sglang", "llama.cpp")
        }
        assert len(sizes) == 1, model


def test_unknown_parameters_are_refused(read_model: Callable[[str], ModelSpec]) -> None:
    spec = replace(read_model("gpt2"), parameters=None)
    with pytest.raises(HeadcountError, match="--parameters 7b"):
        plan_model(PlannedModel(model_id="some/model", spec=spec), PlanRequest())
    known = plan_model(
        PlannedModel(model_id="some/model", spec=spec, weights_bytes=10**9), PlanRequest()
    )
    assert known.terms[0].bytes == 10**9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"context": 0}, "context is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"tp": 0}, "tp is 0"),
        ({"utilisation": 0.0}, "utilisation is 0.0"),
        ({"utilisation": 1.01}, "utilisation is 1.01"),
        ({"utilisation": float("nan")}, "utilisation is nan"),
    ],
)
def test_impossible_requests_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        PlanRequest(**values)  # type: ignore[arg-type]


def test_unknown_dtypes_are_refused(plan: MakePlan) -> None:
    with pytest.raises(HeadcountError, match="'int3' is not a known dtype"):
        plan("gpt2", kv_dtype="int3")


@pytest.mark.parametrize("option", ["dtype", "kv_dtype"])
def test_the_error_lists_each_known_name_once(plan: MakePlan, option: str) -> None:
    with pytest.raises(HeadcountError, match="known are") as caught:
        plan("gpt2", **{option: "int3"})
    listed = re.split(r", (?:and for a cache )?", str(caught.value).partition("known are ")[2])
    assert len(listed) > 10
    assert len({*listed}) == len(listed)


def test_cache_follows_the_dtype_that_is_computed_in(plan: MakePlan) -> None:
    spec = read_spec(
        {"model_type": "gpt2", "dtype": "float32", "n_layer": 1, "n_head": 2, "n_embd": 8}, "here"
    )
    spec = replace(spec, parameters=1000)

    def kv_dtype(**request: str) -> str:
        found = plan_model(PlannedModel(model_id="x", spec=spec), PlanRequest(**request))  # type: ignore[arg-type]
        return found.workload.kv_dtype

    assert kv_dtype() == "float32"
    assert kv_dtype(dtype="fp16") == "float16"
    assert kv_dtype(dtype="int8") == "float32"
    assert kv_dtype(dtype="fp16", kv_dtype="fp8") == "float8_e4m3fn"
    assert plan("gpt2").workload.kv_dtype == "bfloat16"
