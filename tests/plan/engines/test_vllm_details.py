"""What vLLM does with layouts, groups, stages and windows; expected numbers by hand."""

from typing import Any

import pytest

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, LatentAttention, Mixer, Recurrent
from headcount.model.mixers.state import State
from headcount.model.spec import Layer, ModelSpec
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.kv_formats import kv_format
from headcount.plan.engines.layers import LayerCache, stage_of_layers, staged_caches
from headcount.plan.engines.version import Version
from headcount.plan.engines.vllm.blocks import BlockRequest, LayerGroup, block_table
from headcount.plan.engines.vllm.defaults import in_flight_tokens
from headcount.plan.engines.vllm.hybrid import as_allocated
from headcount.plan.engines.vllm.pool import VllmPool
from headcount.plan.engines.vllm.states import state_rule
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import plan_model
from headcount.plan.request import PlanRequest

GIB = 2**30
parse_version = ENGINE.releases.parse
OLD, NEW = parse_version("0.11.0"), parse_version("0.33.0")


def model(*mixers: Mixer) -> ModelSpec:
    layers = tuple(Layer(index=i, mixers=(mixer,)) for i, mixer in enumerate(mixers))
    return ModelSpec(
        model_type="made",
        layers=layers,
        hidden_size=4096,
        vocab_size=1000,
        dtype="bfloat16",
        max_position_embeddings=None,
        encoder_tokens=0,
        tie_word_embeddings=False,
    )


GQA = Attention(
    hidden_size=4096, num_attention_heads=32, num_key_value_heads=4, head_dim=128, v_head_dim=128
)
MLA = LatentAttention(
    hidden_size=7168,
    num_attention_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
FULL = LayerCache(kind="full", token_bytes=100)
WINDOW = LayerCache(kind="sliding", token_bytes=100, window=1024)


@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("auto", 4 * 256 * 2),
        ("bf16", 4 * 256 * 2),
        ("fp8", 4 * 256),
        ("fp8_e5m2", 4 * 256),
        ("fp8_per_token_head", 4 * (256 + 8)),
        ("int8_per_token_head", 4 * (256 + 8)),
        ("int4_per_token_head", 4 * (64 + 64 + 8)),
        ("nvfp4", 4 * 2 * (64 + 8)),
        ("fp4_e2m1", 4 * 2 * (64 + 8)),
        ("mxfp8", 4 * 2 * (128 + 4)),
    ],
)
def test_a_token_takes_what_its_dtype_and_scales_do(name: str, token_bytes: int) -> None:
    (cache,) = staged_caches(model(GQA), tp=1, kv=kv_format(name, compute_bits=16)).caches
    assert cache == LayerCache(kind="full", token_bytes=token_bytes)


@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [("auto", 576 * 2), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)],
)
@pytest.mark.parametrize("tp", [1, 8, 128])
def test_a_latent_is_whole_on_every_rank(name: str, token_bytes: int, tp: int) -> None:
    (cache,) = staged_caches(model(MLA), tp=tp, kv=kv_format(name, compute_bits=16)).caches
    assert cache == LayerCache(kind="latent", token_bytes=token_bytes)


def test_an_indexer_keeps_fp8_keys_with_a_scale_and_sparse_mla_its_own_fp8_layout() -> None:
    from dataclasses import replace

    sparse = replace(MLA, states=(State(per_token=128),))
    for name, latent in (("auto", 1152), ("fp8", 656)):
        caches = staged_caches(model(sparse), tp=8, kv=kv_format(name, compute_bits=16)).caches
        assert [cache.token_bytes for cache in caches] == [latent, 132]


@pytest.mark.parametrize(("tp", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (32, 1)])
def test_a_rank_has_at_least_one_key_value_head(tp: int, heads: int) -> None:
    (cache,) = staged_caches(model(GQA), tp=tp, kv=kv_format("bf16", compute_bits=16)).caches
    assert cache.token_bytes == heads * 256 * 2


def test_a_layer_that_reads_anothers_cache_keeps_nothing() -> None:
    from dataclasses import replace

    reader = replace(GQA, has_key_value=False)
    caches = staged_caches(
        model(GQA, reader, GQA), tp=1, kv=kv_format("bf16", compute_bits=16)
    ).caches
    assert len(caches) == 2


def test_a_window_as_long_as_the_chunk_is_chunked() -> None:
    from dataclasses import replace

    local = replace(GQA, window=8192)
    kv = kv_format("bf16", compute_bits=16)
    assert [c.kind for c in staged_caches(model(local), tp=1, kv=kv, chunk=8192).caches] == [
        "chunked"
    ]
    assert [c.kind for c in staged_caches(model(local), tp=1, kv=kv).caches] == ["sliding"]


@pytest.mark.parametrize(
    ("cache", "blocks"),
    [
        (FULL, 625),
        (WINDOW, 192 + 1),  # 1023 + 2048 tokens, and a window may begin inside a block
        (LayerCache(kind="chunked", token_bytes=1, window=1024), 192),
        (LayerCache(kind="sliding", token_bytes=1, window=20_000), 626),
        (LayerCache(kind="state", state_bytes=1), 1),
        (LayerCache(kind="cross", token_bytes=1), 94),
    ],
)
def test_blocks_of_a_request_go_by_the_kind(cache: LayerCache, blocks: int) -> None:
    group = LayerGroup(cache=cache, layers=1, block_size=16)
    assert (
        group.blocks_of(BlockRequest(tokens=10_000, in_flight=2048, encoder_tokens=1500)) == blocks
    )


def test_context_ranks_share_the_tokens_of_full_layers() -> None:
    table = block_table([FULL] * 4, version=OLD)
    alone = BlockRequest(tokens=10_000, in_flight=0)
    four = BlockRequest(tokens=10_000, in_flight=0, context_ranks=4)
    assert (table.blocks_of(alone), table.blocks_of(four)) == (625, 157)
    assert table.logged_tokens(1000, four, OLD) == 4 * table.logged_tokens(1000, alone, OLD)


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("turboquant_k8v4", 128 + 64 + 4),
        ("turboquant_4bit_nc", 64 + 2 + 64 + 4),
        ("turboquant_k3v4_nc", 48 + 2 + 64 + 4),
        ("turboquant_3bit_nc", 48 + 2 + 48 + 4),
    ],
)
def test_packed_caches_leave_the_first_and_last_two_layers_of_dense_models(
    name: str, slot: int
) -> None:
    kv = kv_format(name, compute_bits=16)
    sizes = [n.token_bytes for n in staged_caches(model(*[GQA] * 6), tp=1, kv=kv).caches]
    plain = 4 * 256 * 2
    assert sizes == [plain, plain, 4 * slot, 4 * slot, plain, plain]
    mixer = Recurrent(form="gated delta net", hidden_size=64, weights=0)
    hybrid = staged_caches(model(GQA, mixer, GQA), tp=1, kv=kv).caches
    assert [n.token_bytes for n in hybrid] == [4 * slot, 4 * slot]


def test_packed_groups_of_32_have_a_byte_of_scale_and_leave_the_same_layers() -> None:
    """136 bytes a slot of 128 + 128 (vllm/v1/attention/ops/ultraquant/format.py)."""
    kv = kv_format("ultraquant_4bit", compute_bits=16)
    sizes = [n.token_bytes for n in staged_caches(model(*[GQA] * 6), tp=1, kv=kv).caches]
    plain = 4 * 256 * 2
    assert sizes == [plain, plain, 4 * 136, 4 * 136, plain, plain]


@pytest.mark.parametrize(
    ("version", "full", "windows", "widths"),
    [
        ("0.11.0", 12, 13, [12, 12, 12]),  # the rarest kind's number; the rest is padding
        ("0.12.0", 12, 13, [13, 13]),
        ("0.12.0", 10, 14, [10, 10, 10]),
        ("0.17.1", 10, 14, [10, 10, 10]),
        ("0.18.0", 10, 14, [14, 14]),
        ("0.18.0", 10, 15, [10, 10, 10]),
    ],
)
def test_the_width_of_groups_changed_with_versions(
    version: str, full: int, windows: int, widths: list[int]
) -> None:
    layers = [FULL] * full + [WINDOW] * windows
    table = block_table(layers, version=parse_version(version))
    assert table.block_bytes == (widths[0] * 16 * 100,)
    assert len(table.groups) == len(widths)
    assert sum(group.layers for group in table.groups) == full + windows


def test_layers_that_differ_in_size_alone_are_one_group() -> None:
    wide = LayerCache(kind="full", token_bytes=300)
    table = block_table([FULL, wide, FULL], version=OLD)
    assert (len(table.groups), table.block_bytes) == (1, (16 * 500,))


def test_a_model_of_windows_alone_is_one_group_that_keeps_the_window() -> None:
    table = block_table([WINDOW] * 32, version=OLD)
    (group,) = table.groups
    assert group.cache.window == 1024
    assert table.block_bytes == (32 * 16 * 100,)
    assert table.blocks_of(BlockRequest(tokens=100_000, in_flight=2048)) == 193


def test_a_smaller_token_gets_a_longer_block() -> None:
    small = LayerCache(kind="sliding", token_bytes=50, window=512)
    table = block_table([FULL, FULL, small, small], version=OLD)
    assert [group.block_size for group in table.groups] == [16, 32]
    assert table.block_bytes == (2 * 16 * 100,)


def test_attention_blocks_grow_until_a_page_holds_the_state() -> None:
    state = LayerCache(kind="state", state_bytes=548_864)
    attention = LayerCache(kind="full", token_bytes=1024)
    layers = [state] * 36 + [attention] * 12
    assert block_table(layers, version=OLD).block_size == 544
    assert block_table(layers, version=OLD, block_size=128).block_size == 544
    assert block_table(layers, version=OLD, block_size=1000).block_size == 1000
    assert block_table(layers, version=NEW, block_size=128).block_size == 640
    assert block_table(layers, version=NEW, chunk=64).block_size == 576


def test_blocks_of_latents_beside_states_are_those_of_a_kimi_linear_log() -> None:
    """vllm-project/vllm#28228, on two ranks: 960 tokens, and 1.89 % of padding."""
    heads, head_dim, width, conv = 16, 128, 512 + 64, 4
    state = heads * head_dim * head_dim * 4 + (conv - 1) * 3 * heads * head_dim * 2
    latent = LayerCache(kind="latent", token_bytes=width * 2)
    layers = [LayerCache(kind="state", state_bytes=state)] * 20 + [latent] * 7
    assert block_table(layers, version=parse_version("0.11.1")).block_size == 960
    assert round(960 * width * 2 / state, 4) == 1.0189
    assert block_table(layers, version=parse_version("0.27")).block_size == 1024


def test_a_model_of_states_alone_has_as_many_requests_as_states() -> None:
    table = block_table([LayerCache(kind="state", state_bytes=1000)] * 10, version=OLD)
    request = BlockRequest(tokens=4096, in_flight=2048)
    blocks = table.num_blocks([50_000])
    assert (blocks, table.concurrency(blocks, request)) == (5, 5.0)
    assert table.logged_tokens(blocks, request, OLD) == 5 * 4096


@pytest.mark.parametrize(
    ("layers", "pp", "counts"),
    [(32, 1, [32]), (32, 4, [8, 8, 8, 8]), (61, 4, [15, 15, 16, 15]), (62, 4, [15, 16, 16, 15])],
)
def test_left_over_layers_go_before_the_last_stage(layers: int, pp: int, counts: list[int]) -> None:
    stages = stage_of_layers(layers, pp)
    assert [stages.count(stage) for stage in range(pp)] == counts
    assert list(stages) == sorted(stages)


def test_the_stage_with_the_fewest_blocks_decides() -> None:
    found = staged_caches(
        model(*[GQA] * 5), tp=1, stages=(0, 0, 0, 1, 1), kv=kv_format("bf16", compute_bits=16)
    )
    table = block_table(found.caches, version=OLD, stages=found.stages)
    page = 16 * 2048
    assert table.block_bytes == (3 * page, 2 * page)
    assert table.num_blocks([300 * page, 300 * page]) == 100
    assert table.num_blocks([900 * page, 100 * page]) == 50
    assert table.num_blocks([900 * page, -1]) == 0


def test_groups_are_dealt_to_stages_evenly() -> None:
    layers = ([WINDOW] * 5 + [FULL]) * 4
    stages = [index // 12 for index in range(24)]
    table = block_table(layers, version=OLD, stages=stages)
    assert len(table.groups) == 6
    assert table.block_bytes == (2 * 1600, 2 * 1600)


def test_tokens_in_flight_are_those_of_all_steps_under_way() -> None:
    assert in_flight_tokens(OLD, 8192, pp=4) == 8192
    assert in_flight_tokens(parse_version("0.25.1"), 8192) == 8192
    assert in_flight_tokens(parse_version("0.26.0"), 16384) == 2 * 16384
    assert in_flight_tokens(NEW, 8192, pp=2) == 3 * 8192
    assert in_flight_tokens(NEW, 8192, pp=2, runs_ahead=False) == 2 * 8192


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 2),
        ({"async_scheduling": False}, 1),
        ({"pp": 2}, 3),
        ({"pp": 2, "model_runner": "v1"}, 2),
        ({"model_runner": "v1"}, 2),
    ],
)
def test_a_step_ahead_wants_the_second_runner_or_one_stage(
    options: dict[str, Any], steps: int
) -> None:
    """VllmConfig.max_concurrent_batches of vllm/config/vllm.py."""
    plan = plan_model(
        planned(audit_model("llama-3-8b")),
        PlanRequest(
            engine=ENGINE.name,
            version=parse_version("0.28.0"),
            kv_memory=GIB,
            max_num_batched_tokens=1000,
            **options,
        ),
    )
    assert isinstance(plan.pool, VllmPool)
    assert plan.pool.in_flight == 1000 * steps


def recurrent(form: str) -> ModelSpec:
    mixer = Recurrent(form=form, hidden_size=64, weights=0)
    return model(GQA, mixer)


@pytest.mark.parametrize(
    ("version", "form", "caches", "mode", "blocks"),
    [
        ("0.19.0", "gated delta net", None, "none", 1),
        ("0.19.0", "gated delta net", True, "align", 2),
        ("0.19.0", "Mamba-2", True, "all", None),
        ("0.25.1", "gated delta net", None, "none", 1),
        ("0.26.0", "gated delta net", None, "align", 2),
        ("0.26.0", "gated delta net", False, "none", 1),
        ("0.28.0", "Mamba-2", None, "all", None),
        ("0.29.0", "Mamba-2", None, "align", 2),
        ("0.33.0", "Mamba-2", None, "align", 3),
        ("0.33.0", "Kimi delta attention", None, "align", 2),
    ],
)
def test_states_that_a_request_keeps_go_by_prefix_caching_and_version(
    version: str, form: str, caches: bool | None, mode: str, blocks: int | None
) -> None:
    rule = state_rule(recurrent(form), {}, parse_version(version), caches_prefixes=caches)
    assert (rule.mode, rule.blocks) == (mode, blocks)


def test_checkpoints_of_gated_delta_nets_need_the_kernel_of_new_devices() -> None:
    spec = recurrent("gated delta net")
    on = {key: state_rule(spec, {}, NEW, device=find_device(key)) for key in ("h100", "l40s")}
    assert [(rule.blocks, rule.chunk) for rule in on.values()] == [(3, 64), (2, 1)]


def test_in_mode_all_every_block_of_a_request_has_its_state() -> None:
    config = {"mamba_chunk_size": 256}
    rule = state_rule(recurrent("Mamba-2"), config, NEW, mode="all")
    assert (rule.mode, rule.blocks, rule.chunk) == ("all", None, 256)
    state, attention = LayerCache(kind="state", state_bytes=1000), FULL
    table = block_table([state, attention], version=NEW, chunk=rule.chunk)
    request = BlockRequest(tokens=1000, in_flight=0, state_blocks=rule.blocks)
    assert (table.block_size, table.blocks_of(request)) == (256, 4 + 4)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.11.0rc2", (0, 11, 0)),
        ("v0.9", (0, 9)),
        ("~0.12-0.15", (0, 12)),
        ("0.13.0+nv26.01", (0, 13, 0)),
        (">=0.21", (0, 33)),
        ("latest", (0, 33)),
    ],
)
def test_versions_are_read_as_people_write_them(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == Version(numbers, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.33.1", None),
        ("0.11.0", None),
        (">=0.21", None),
        ("0.40.0", "newer than 0.33"),
        ("0.6.2", "older than 0.8.5"),
        ("nightly", "no release: the rules of 0.33"),
    ],
)
def test_the_nearest_rules_stand_in_and_a_note_says_so(text: str, words: str | None) -> None:
    note = ENGINE.releases.note("vllm", parse_version(text))
    assert (note is None) == (words is None)
    assert words is None or words in (note or "")


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(HeadcountError, match=r"fp5.*\n.*fp8_e4m3.*turboquant_k8v4"):
        kv_format("fp5", compute_bits=16)


CHUNK = LayerCache(kind="chunked", token_bytes=100, window=8192)


@pytest.mark.parametrize(
    ("version", "layer", "kept"),
    [
        ("0.8.5", WINDOW, False),
        ("0.9.1", WINDOW, True),
        ("0.33", WINDOW, True),
        ("0.9.1", CHUNK, False),
        ("0.10.0", CHUNK, True),
        ("0.10.1", CHUNK, False),
        ("0.13.0", CHUNK, False),
        ("0.14.0", CHUNK, True),
    ],
)
def test_windows_beside_full_layers_need_the_hybrid_manager(
    version: str, layer: LayerCache, kept: bool
) -> None:
    found = parse_version(version)
    assert as_allocated([FULL, layer], found) == (FULL, layer if kept else FULL)
    assert as_allocated([FULL, layer], found, disabled=True) == (FULL, FULL)
    assert as_allocated([layer, layer], found, disabled=True) == (layer, layer)


PER_TOKEN = {
    "llama-3-8b": 131_072,
    "llama-3-70b": 327_680,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen2.5-7b": 57_344,
    "qwen2.5-0.5b": 12_288,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "gpt2": 36_864,
    "opt-125m": 36_864,
    "opt-2.7b": 327_680,
    "mistral-7b-v0.3": 131_072,
    "mistral-small-24b": 163_840,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "kimi-k2": 70_272,
    "glm-5": 100_152,
    "gpt-oss-120b": 73_728,
    "gpt-oss-20b": 49_152,
    "exaone-4.0-32b": 262_144,
}


@pytest.mark.parametrize(("name", "expected"), PER_TOKEN.items(), ids=PER_TOKEN)
def test_published_bytes_per_token_over_all_layers(name: str, expected: int) -> None:
    """Published for bfloat16; of GLM-5 with the indexer's 132 bytes per layer."""
    spec = audit_model(name).spec
    caches = staged_caches(spec, tp=1, kv=kv_format("bf16", compute_bits=16)).caches
    assert sum(cache.token_bytes for cache in caches) == expected


@pytest.mark.parametrize(
    ("version", "device", "tp", "inner"),
    [
        *(("0.10.1", "a100", tp, inner) for tp, inner in ((1, 2944), (2, 1536), (4, 768))),
        *(("0.11.0", "h100", tp, inner) for tp, inner in ((1, 2880), (2, 1472), (4, 768))),
        ("0.19.0", "a100", 4, 768),
        ("0.19.0", "a100", 8, 384),
    ],
)
def test_mxfp4_experts_are_padded_on_each_rank(
    version: str, device: str, tp: int, inner: int
) -> None:
    """gpt-oss-120b: round_up(intermediate_size_per_partition, 128) for Marlin, 64 for Triton, and
    hidden_size to 256 (create_weights of layers/quantization/mxfp4.py): 36 layers of 128 experts
    of three matrices, 17 bytes for 32 weights."""
    request = PlanRequest(
        engine="vllm",
        version=parse_version(version),
        device=find_device(device),
        context=8192,
        tp=tp,
    )
    plan = plan_model(planned(audit_model("gpt-oss-120b")), request)
    experts = 36 * 128 * 3 * 3072 * inner * 17 / 32
    others = 2_167_371_072 * 2 / tp  # attention, routers, biases, embedding and head
    assert plan.weights_bytes == pytest.approx(experts + others, abs=0.03 * GIB)
