"""vLLM's blocks, tokens and concurrency against start-up logs of real runs.

`start_up_logs.json` has the figures that the runs printed, by hand; `available` in a log is rounded
to 0.01 GiB, so a record gives a range. Where a log says `geometry`, the layers are built from it;
where the catalogue has the model, from its config too.
"""

from collections.abc import Iterator

import pytest

from headcount.plan.engines.layers import LayerCache
from headcount.plan.engines.vllm.blocks import BlockRequest, BlockTable, block_table
from headcount.plan.engines.vllm.defaults import default_step, in_flight_tokens
from start_up_logs import RECORDS, Record, block_size, device_of, ends, ids, parse_version, plan_of

WITH_TOKENS = [record for record in RECORDS if record.get("kv_tokens")]


def layers_of(geometry: Record, tp: int) -> Iterator[LayerCache]:
    if geometry["kind"] == "mla":
        width = geometry["kv_lora_rank"] + geometry["qk_rope_head_dim"]
        for size in (width * geometry["kv_elem_bytes"], geometry["indexer_bytes_per_token_layer"]):
            yield from [LayerCache(kind="latent", token_bytes=size)] * geometry["layers"]
        return
    heads = max(1, geometry["kv_heads"] // tp)
    token = heads * geometry["head_dim"] * 2 * geometry["kv_elem_bytes"]
    full = geometry.get("full_layers", geometry.get("layers"))
    yield from [LayerCache(kind="full", token_bytes=token)] * full
    window = geometry.get("window")
    sliding = LayerCache(kind="sliding", token_bytes=token, window=window)
    yield from [sliding] * geometry.get("swa_layers", 0)
    state = LayerCache(kind="state", state_bytes=geometry.get("state_bytes", 0))
    yield from [state] * geometry.get("mamba_layers", 0)


def table(record: Record) -> BlockTable:
    return block_table(
        list(layers_of(record["geometry"], record["tp"])),
        version=parse_version(record["vllm"]),
        block_size=block_size(record),
    )


def ask(record: Record) -> BlockRequest:
    version = parse_version(record["vllm"])
    step = default_step(version, device_of(record), record.get("usage", "server"))
    tokens = record.get("max_num_batched_tokens", step.max_num_batched_tokens)
    return BlockRequest(
        tokens=record["max_model_len"],
        in_flight=in_flight_tokens(version, tokens),
        state_blocks=record["geometry"].get("state_blocks", 1),
    )


FROM_GEOMETRY = [record for record in WITH_TOKENS if record.get("geometry")]


@pytest.mark.parametrize("record", FROM_GEOMETRY, ids=ids(FROM_GEOMETRY))
def test_geometry_gives_the_logged_figures(record: Record) -> None:
    found, request, version = table(record), ask(record), parse_version(record["vllm"])
    blocks = [found.num_blocks([free]) for free in ends(record)]
    tokens = [found.logged_tokens(n, request, version) for n in blocks]
    assert tokens == record.get("tokens_range", tokens)
    assert tokens[0] <= record["kv_tokens"] <= tokens[1]
    concurrency = [round(found.concurrency(n, request), 2) for n in blocks]
    assert concurrency == record.get("concurrency_range", concurrency)
    assert concurrency[0] <= record.get("concurrency", concurrency[0]) <= concurrency[1]
    if "num_gpu_blocks" in record:
        assert blocks[0] <= record["num_gpu_blocks"] <= blocks[1]
    if block_size(record) is None and "block_size" in record:
        assert found.block_size == record["block_size"]


IN_CATALOGUE = [record for record in WITH_TOKENS if record["catalogue"]]


@pytest.mark.parametrize("record", IN_CATALOGUE, ids=ids(IN_CATALOGUE))
def test_the_config_gives_the_logged_figures(record: Record) -> None:
    plans = [plan_of(record, kv_memory=free) for free in ends(record)]
    assert plans[0].kv_tokens <= record["kv_tokens"] <= plans[1].kv_tokens
    if "concurrency" in record:
        low, high = (round(plan.concurrency, 2) for plan in plans)
        assert low <= record["concurrency"] <= high
    if "num_gpu_blocks" in record:
        assert plans[0].num_blocks is not None and plans[1].num_blocks is not None
        assert plans[0].num_blocks <= record["num_gpu_blocks"] <= plans[1].num_blocks


def test_every_record_with_tokens_is_held_against_something() -> None:
    covered = {*ids(FROM_GEOMETRY), *ids(IN_CATALOGUE)}
    assert covered == set(ids(WITH_TOKENS))
    assert len(covered) == 25
