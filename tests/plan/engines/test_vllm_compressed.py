"""vLLM's blocks of DeepSeek-V4, as `_get_packed_kv_cache_groups` and
`_get_kv_cache_bytes_per_block` of vllm/v1/core/kv_cache_utils.py (0.29.0, 0.32.0) give them for
the specs of its layers; before 0.29 by hand from the same file."""

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.engines.version import Version
from headcount.plan.engines.vllm.blocks import BlockTable
from headcount.plan.engines.vllm.compressed import compressed_table
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest

GIB = 2**30
parse_version = ENGINE.releases.parse


def plan(version: str, kv_dtype: str | None = None, pp: int = 1, context: int = 65_536) -> Plan:
    request = PlanRequest(
        engine="vllm",
        version=parse_version(version),
        kv_memory=40 * GIB,
        kv_dtype=kv_dtype,
        pp=pp,
        context=context,
        max_num_batched_tokens=8192,
    )
    return plan_model(planned(audit_model("deepseek-v4-flash")), request)


def one_stage(model: str, version: Version) -> BlockTable:
    spec = audit_model(model).spec
    table = compressed_table(spec, version, [0] * len(spec.layers))
    assert table is not None
    return table


@pytest.mark.parametrize(
    ("model", "version", "block_bytes"),
    [
        ("deepseek-v4-flash", "0.32.0", 1_002_240),
        ("deepseek-v4-flash", "0.29.0", 1_002_240),
        ("deepseek-v4-pro", "0.32.0", 1_435_968),
        ("deepseek-v4-pro", "0.29.0", 1_435_968),
        # 22 pages of 37,440, 21 of 8,640 and 20 of 1,728; then 22 of each
        ("deepseek-v4-flash", "0.26.0", 22 * 37_440 + 21 * 8_640 + 20 * 1_728),
        ("deepseek-v4-flash", "0.22.0", 22 * (37_440 + 8_640 + 1_728)),
    ],
)
def test_a_block_holds_the_pages_of_its_widest_group(
    model: str, version: str, block_bytes: int
) -> None:
    table = one_stage(model, parse_version(version))
    assert table.block_bytes == (block_bytes,)


@pytest.mark.parametrize(
    ("model", "groups"),
    [
        ("deepseek-v4-flash", [(64, 22), (64, 21), (256, 62), (4, 42), (8, 20)]),
        ("deepseek-v4-pro", [(64, 31), (64, 30), (256, 91), (8, 31), (4, 60)]),
    ],
)
def test_layers_are_grouped_by_the_tokens_that_they_keep(
    model: str, groups: list[tuple[int, int]]
) -> None:
    table = one_stage(model, parse_version("0.32.0"))
    assert [(group.block_size, group.layers) for group in table.groups] == groups


def test_a_request_takes_blocks_in_every_group() -> None:
    """65,536 tokens, two steps of 8,192 in flight: entries in blocks of 256; windows of 128 in two
    groups of blocks of 64; what waits, windows of 8 in blocks of 4 and of 128 in blocks of 8."""
    flight = 2 * 8192
    blocks = 256 + 2 * (-(-(127 + flight) // 64) + 1)
    blocks += -(-(7 + flight) // 4) + 1 + -(-(127 + flight) // 8) + 1
    found = plan("0.32.0")
    assert found.concurrency == (40 * GIB // 1_002_240) / blocks
    assert found.kv_tokens == int(found.concurrency * 65_536)
    assert found.workload.kv_dtype == "fp8_ds_mla"
    assert found.bytes_per_token > 0


def test_stages_have_blocks_of_their_own_layers() -> None:
    whole, halves = (plan("0.32.0", pp=pp).pool for pp in (1, 2))
    sizes = [pool.needed(65_536, 1) // 100 for pool in (whole, halves)]
    assert sizes[0] * 0.5 < sizes[1] < sizes[0]


def test_another_cache_is_counted_without_the_layout_and_says_so() -> None:
    assert any("without vLLM's layout" in note for note in plan("0.32.0", "bf16").pool.notes())
    assert not any("without vLLM's layout" in note for note in plan("0.32.0").pool.notes())
