"""llama.cpp's plan against buffers that it printed: in published logs, and when it was asked."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.audit.auditing import audit_model
from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.plan.command import planned as model_planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.llama_cpp.building import built
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest
from held_buffers import HEAD, LARGE, SMALL, answers, compute_errors, planned_of
from planned_buffers import model_of, request_of

MIB, GIB = 2**20, 2**30

# Which llama.cpp did not start of what it had made of key-values alone, however it was asked
NOT_ASKED = frozenset({"jina-bert-v2", "gemma4 with experts", "rwkv6qwen2"})


def plan_of(name: str, **asked: Any) -> Plan:
    asked.setdefault("device", find_device("h100"))
    return plan_model(model_planned(audit_model(name)), PlanRequest(engine="llama.cpp", **asked))


def compute(plan: Plan) -> float:
    """MiB."""
    return next(term.bytes for term in plan.taken if term.key == "activations") / MIB


def sums(found: dict[str, float]) -> tuple[float, float]:
    """MiB of caches on the device and on the host."""
    device = found.get("KV device", 0) + found.get("RS device", 0)
    host = found.get("caches host", found.get("KV host", 0) + found.get("RS host", 0))
    return device, host


def test_every_cache_is_exact() -> None:
    """To the digits that are printed, of which a sum of caches has half of one each."""
    for name, run, found in answers(SMALL):
        assert sums(planned_of(name, run)) == pytest.approx(sums(found), abs=0.025), (name, run)
    assert len(SMALL) > 140


def test_caches_of_real_sizes_are_exact() -> None:
    """States are allocated even without memory for the rest, and printed by place."""
    for name, run, found in answers(LARGE):
        printed = sum(found.get(key, 0.0) for key in ("KV", "RS device", "RS host"))
        assert sum(sums(planned_of(name, run))) == pytest.approx(printed, abs=0.04), (name, run)


def test_logits_to_sample_from_are_exact() -> None:
    for name, run, found in answers(LARGE):
        assert planned_of(name, run)["output host"] == pytest.approx(found["output host"], abs=0.01)


def test_every_model_buffer_is_within_one_in_a_hundred() -> None:
    for name, run, found in answers(SMALL):
        for place in ("model device", "model host"):
            own = planned_of(name, run).get(place, 0.0)
            assert own == pytest.approx(found.get(place, 0.0), rel=0.01, abs=0.02), (name, run)


def test_compute_buffers_of_real_sizes() -> None:
    """Of the device with all of a model and with a part of it, and of the host beside it or alone:
    graphs were learnt from tiny models (tools/record_llama_graphs.py)."""
    for place, whole, least in (
        *(("device", True, 100), ("device", False, 30)),
        *(("host", True, 100), ("host", False, 30)),
    ):
        errors = compute_errors(LARGE, place, whole=whole)
        assert len(errors) > least
        assert max(error for error, _ in errors) <= 0.01, (place, whole)


def test_starts_that_end_in_an_assertion_are_refused() -> None:
    """And no others are."""
    aborted = {
        (line["name"], run)
        for line in SMALL
        for run, found in line["answers"].items()
        if line["name"] not in NOT_ASKED and not isinstance(found, dict)
    }
    assert aborted == {(name, run) for name, run in _starts() if _is_refused(name, run)}
    assert len(aborted) > 20


def _starts() -> Iterator[tuple[str, str]]:
    asked = (line for line in SMALL if line["name"] not in NOT_ASKED)
    return ((line["name"], run) for line in asked for run in line["answers"])


def _is_refused(name: str, run: str) -> bool:
    model = model_of(next(line for line in SMALL if line["name"] == name))
    try:
        return bool(plan_model(model, request_of(HEAD["runs"][run])).refusals)
    except HeadcountError:
        return True


def test_compute_buffers_of_every_architecture() -> None:
    """Tiny models, in which every tensor counts."""
    beyond = {
        (name, run, place)
        for name, run, found in answers(SMALL)
        for place in ("device", "host")
        if (size := found.get(f"compute {place}"))
        and abs(planned_of(name, run)[f"compute {place}"] / size - 1) > 0.01
    }
    assert beyond == set()


@pytest.mark.parametrize(
    ("name", "outputs", "mib"),
    [
        ("qwen2.5-3b", 512, 300.75),
        ("gemma-2-2b", 512, 504.5),
        ("qwen2.5-3b", 4, 84.51),
        ("gemma-2-2b", 4, 83.02),
        ("gpt-oss-20b", 4, 95.77),
    ],
)
def test_compute_buffer_from_a_config(name: str, outputs: int, mib: float) -> None:
    """Logits of a micro-batch took 512 x 151,936 x 4 B before b9464; since then the server computes
    those of a token for each slot. As printed for a file of these sizes."""
    before = find_engine("llama.cpp").releases.parse("b9453")
    asked = {} if outputs == 4 else {"parallel": 1, "version": before}
    assert compute(plan_of(name, context=8192, **asked)) == pytest.approx(mib, rel=0.001)


CONFIGS = {
    **{name: name for name in ("llama-3-8b", "qwen2.5-3b", "gemma-2-2b", "qwen3-8b", "phi-4")},
    **{name: name for name in ("qwen3-30b-a3b", "gpt-oss-20b", "gemma-3-12b")},
    "mixtral": "mixtral-8x7b",
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("run", ["large: server", "large: four streams", "large: part of it"])
def test_a_config_is_planned_as_its_file(name: str, run: str) -> None:
    """The same model by its config of the catalogue: caches exact, compute within 1 %."""
    asked = request_of(HEAD["runs"][run])
    model = model_planned(audit_model(CONFIGS[name]))
    found = plan_model(model, replace(asked, device=find_device("h100")))
    (answer,) = (line["answers"][run] for line in LARGE if line["name"] == name)
    kept = found.kv_cache_bytes + sum(t.bytes for t in found.host_terms if t.key == "kv_cache")
    assert kept / MIB == pytest.approx(answer["KV"], abs=0.02)
    assert compute(found) == pytest.approx(answer["compute device"], rel=0.01)


def test_weights_of_gpt_oss_120b_have_no_padding() -> None:
    """60.9 GiB, as its files have; the embedding of 1.08 GiB stays with the host."""
    found = plan_of("gpt-oss-120b", context=8192)
    host = next(term.bytes for term in found.host_terms if term.key == "weights")
    assert found.weights is not None
    assert found.weights.total_bytes / GIB == pytest.approx(60.9, rel=0.005)
    assert found.taken[0].bytes + host == found.weights.total_bytes
    assert host == 201_088 * 2880 * 2


def test_the_server_has_four_slots_over_one_cache() -> None:
    """Gemma-2-2B: 13 of 26 layers have a window of 4,096: 4 x 4,096 + 512 cells."""
    cell = 2 * 4 * 256 * 2
    alone = plan_of("gemma-2-2b", context=32_768)
    assert alone.kv_cache_bytes == 13 * cell * (32_768 + 4 * 4096 + 512)
    one = plan_of("gemma-2-2b", context=32_768, parallel=1)
    assert one.kv_cache_bytes == 13 * cell * (32_768 + 4096 + 512)
    each = plan_of("gemma-2-2b", context=8192, parallel=4)
    assert each.kv_cache_bytes == 13 * cell * 4 * (8192 + 4096 + 512)
    shared = plan_of("gemma-2-2b", context=8192, batch_size=6, kv_unified=True)
    assert shared.kv_cache_bytes == 13 * cell * (6 * 8192 + 6 * 4096 + 512)
    whole = plan_of("gemma-2-2b", context=32_768, swa_full=True)
    assert whole.kv_cache_bytes == 26 * cell * 32_768


def test_cells_of_gpt_oss_120b() -> None:
    """ollama/ollama#16480, 131,072 tokens and 2 sequences: 18 layers of 9,216 MiB, and 18 with a
    window of 1,280 cells each, 90 MiB; the micro-batch was 1,024."""
    found = plan_of("gpt-oss-120b", context=131_072, parallel=2, ubatch_size=1024)
    assert found.kv_cache_bytes == (9216 + 90) * MIB


def test_state_of_qwen3_27b() -> None:
    """lmstudio-ai/lmstudio-bug-tracker#1862: 262,144 cells x 16 layers are 16,384 MiB, and the
    recurrent state of 4 sequences 598.5 MiB. Qwen3.5-27B has that geometry."""
    found = plan_of("Qwen/Qwen3.5-27B", context=262_144)
    assert found.kv_cache_bytes == (16_384 + 598.5) * MIB


@pytest.mark.parametrize(
    ("name", "per_block"), [("f16", 64), ("q8_0", 34), ("q4_0", 18), ("q5_1", 24), ("fp32", 128)]
)
def test_blocks_of_32_have_a_scale(name: str, per_block: int) -> None:
    found = plan_of("llama-3-8b", context=8192, kv_dtype=name)
    assert found.bytes_per_token == 32 * (8 * 256 // 32) * per_block


def test_keys_and_values_of_different_types() -> None:
    found = plan_of("llama-3-8b", context=8192, cache_type_k="q8_0", cache_type_v="q4_0")
    assert found.bytes_per_token == 32 * (8 * 128 // 32) * (34 + 18)
    assert found.workload.kv_dtype == "q8_0/q4_0"
    with pytest.raises(HeadcountError, match="flash attention"):
        plan_of("llama-3-8b", cache_type_v="q4_0", flash_attn="off")
    with pytest.raises(HeadcountError, match="one type for both"):
        plan_of("deepseek-v3", cache_type_k="q8_0")


def test_the_context_is_padded_to_256() -> None:
    sizes = [plan_of("llama-3-8b", context=n).kv_cache_bytes for n in (1000, 1024, 1025)]
    assert sizes[0] == sizes[1] < sizes[2]


def test_types_are_listed() -> None:
    with pytest.raises(HeadcountError, match="q8_0"):
        plan_of("llama-3-8b", kv_dtype="fp8")


def test_layers_on_the_device() -> None:
    """20 of 33: the output and 19 of 32 layers of Llama-3-8B."""
    found = plan_of("llama-3-8b", context=8192, gpu_layers=20)
    layer = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    output = 128_256 * 4096 * 2
    assert found.taken[0].bytes == pytest.approx(19 * layer + output, rel=1e-4)
    assert found.kv_cache_bytes == 19 * 8192 * 2 * 8 * 128 * 2
    host = {term.key: term.bytes for term in found.host_terms}
    assert host["weights"] == pytest.approx(13 * layer + output, rel=1e-4)
    assert host["kv_cache"] == 13 * 8192 * 2 * 8 * 128 * 2
    none = plan_of("llama-3-8b", context=8192, gpu_layers=0)
    assert (none.taken[0].bytes, none.kv_cache_bytes, compute(none)) == (0, 0, 0)
    head = plan_of("llama-3-8b", context=8192, gpu_layers=1)
    assert head.taken[0].bytes == pytest.approx(output, rel=1e-4) and head.kv_cache_bytes == 0
    assert compute(head) == pytest.approx(4 * (4096 + 128_256) * 4 / MIB, rel=0.01)
    kept = plan_of("llama-3-8b", context=8192, no_kv_offload=True)
    assert kept.kv_cache_bytes == 0


def test_layers_whose_weights_the_config_does_not_tell_want_the_file() -> None:
    with pytest.raises(HeadcountError, match=r"--gpu-layers 5: .*of a gemma3n: name its GGUF file"):
        plan_of("gemma-3n-e4b", context=512, gpu_layers=5)


def test_a_tied_output_is_a_copy_of_the_embedding_alone() -> None:
    """Gemma 4 E2B has a second embedding of 35 layers x 256 elements, which stays with the host."""
    found = plan_of("gemma-4-e2b", context=8192)
    host = next(term.bytes for term in found.host_terms if term.key == "weights")
    assert found.weights is not None
    copied = found.taken[0].bytes + host - found.weights.total_bytes
    assert (host, copied) == (262_144 * (1536 + 35 * 256) * 2, 262_144 * 1536 * 2)


def test_a_search_makes_a_graph_once() -> None:
    """Of slots over one stream, and of a stream of each, however many contexts it tries."""
    built.cache_clear()
    found = plan_of("llama-3-8b", context=8192, gpu_layers=20)
    assert found.limits.max_context and found.largest_batch(1024)
    assert built.cache_info().misses == 2


def test_experts_on_the_host() -> None:
    """Qwen3-30B-A3B: 128 experts of 3 x 768 x 2,048 in each of 48 layers."""
    whole = plan_of("qwen3-30b-a3b", context=8192)
    found = plan_of("qwen3-30b-a3b", context=8192, n_cpu_moe=20)
    experts = 128 * 3 * 768 * 2048 * 2
    assert whole.taken[0].bytes - found.taken[0].bytes == 20 * experts
    every = plan_of("qwen3-30b-a3b", context=8192, cpu_moe=True)
    assert whole.taken[0].bytes - every.taken[0].bytes == 48 * experts
    assert every.kv_cache_bytes == whole.kv_cache_bytes


def test_the_command_starts_what_was_planned() -> None:
    words = "plan qwen3-30b-a3b --engine llama.cpp --device h100 --context 8k --batch-size 6"
    words += " -ngl 30 --n-cpu-moe 4 --ubatch-size 1024 --cache-type-k q8_0 --cache-type-v q5_1"
    words += " --flash-attn on --kv-unified --no-kv-offload --format json"
    ran = CliRunner().invoke(main, words.split(), catch_exceptions=False)
    engine = json.loads(ran.stdout)["engine"]
    assert engine["launch_command"].endswith(
        "-ngl 30 --n-cpu-moe 4 --no-kv-offload -c 49152 --parallel 6 --kv-unified"
        " --ubatch-size 1024 --cache-type-k q8_0 --cache-type-v q5_1 --flash-attn on"
    )
    assert [term["key"] for term in engine["host"]] == [
        *("weights", "kv_cache", "activations", "outputs")
    ]
    plain = plan_of("qwen3-30b-a3b", context=8192, parallel=2, swa_full=True).launch_command
    assert plain and plain.endswith("-ngl 999 -c 16384 --parallel 2 --swa-full")


def test_cells_that_would_fit_are_not_said_to_be_logged() -> None:
    """llama-server makes, and logs, those of its -c, whatever else fits the device."""
    asked = ["qwen3-32b", "--dtype", "q4_k_m", "--device", "rtx-5090", "--context", "40960"]
    words = {
        name: CliRunner().invoke(main, ["plan", *asked, "--engine", name, *more]).output
        for name, more in (("llama.cpp", ["--kv-dtype", "q8_0"]), ("vllm", []))
    }
    assert "-c 40960" in words["llama.cpp"]
    assert "81,920 (tokens of all whole requests that would fit)" in words["llama.cpp"]
    assert "tokens, as the engine logs it" in words["vllm"]


def test_another_engine_has_none_of_these_flags() -> None:
    with pytest.raises(HeadcountError, match=r"vllm has no --gpu-layers: .*--engine llama\.cpp"):
        plan_model(
            model_planned(audit_model("llama-3-8b")),
            PlanRequest(engine="vllm", device=find_device("h100"), gpu_layers=3),
        )


def test_host_memory_has_a_line_of_its_own() -> None:
    words = "plan llama-3-8b --engine llama.cpp --device 8GiB --context 8k -ngl 10"
    text = CliRunner().invoke(main, words.split(), catch_exceptions=False).stdout
    assert "Beside it, in host memory" in text
    assert "fits: 1 of" in text
