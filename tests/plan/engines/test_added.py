"""What a start adds to a model: numbers by hand from the engines' rules, or as published."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from vllm_drafts import DFLASH, EAGLE3

from headcount.audit.auditing import audit_model
from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.plan.budget import Term
from headcount.plan.command import planned, read_options
from headcount.plan.devices import parse_device
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.options.speculation import Algorithm, Speculation, parse_speculative_config
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest

GIB = 2**30


def plan(name: str, engine: str = "vllm", device: str = "h100", **request: Any) -> Plan:
    version = request.pop("version", None)
    asked = PlanRequest(
        engine=engine,
        device=parse_device(device),
        version=ENGINE.releases.parse(version) if version else None,
        **{"context": 4096, **request},
    )
    return plan_model(planned(audit_model(name)), asked)


def term(found: Plan, key: str, stage: int = 0) -> Term:
    return next(term for term in found.budgets[stage].fixed if term.key == key)


def mtp(tokens: int = 1) -> Speculation:
    return Speculation(method="mtp", tokens=tokens)


@pytest.fixture
def eagle3(tmp_path: Path) -> Speculation:
    folder = tmp_path / "draft-eagle3"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(EAGLE3))
    given = {"model": str(folder), "num_speculative_tokens": 3}
    return parse_speculative_config(json.dumps(given), lambda name: planned(audit_model(name)))


def test_a_head_of_eagle_has_a_layer_a_join_and_its_own_head(eagle3: Speculation) -> None:
    """850 MB are published: q, k and v read an embedding beside the hidden state."""
    found = plan("llama-3-8b", speculative_config=eagle3)
    assert eagle3.method == "eagle3"
    attention = (4096 + 2 * 1024) * 2 * 4096 + 4096 * 4096
    own = attention + 3 * 4096 * 14336 + 3 * 4096 * 4096 + 32000 * 4096
    assert term(found, "draft").bytes == 2 * own == pytest.approx(850e6, rel=0.002)
    # one layer more, of 8 K/V heads of 128 in 16 bit
    assert found.bytes_per_token == 33 * 8 * (128 + 128) * 2


def test_a_draft_is_on_the_last_stage_and_split_as_the_model_is(eagle3: Speculation) -> None:
    found = plan("llama-3-70b", speculative_config=eagle3, tp=2, pp=2)
    assert [any(t.key == "draft" for t in budget.fixed) for budget in found.budgets] == [
        False,
        True,
    ]
    split = 2 * (term(plan("llama-3-8b", speculative_config=eagle3), "draft").bytes // 2)
    joined = 2 * 3 * 4096 * 4096
    assert term(found, "draft", 1).bytes == (split - joined) // 2 + joined
    table = found.pool.table  # type: ignore[attr-defined]
    page = 16 * 4 * (128 + 128) * 2
    assert table.block_bytes == (40 * page, 41 * page)


def test_a_draft_of_dflash_has_its_layers_and_a_join(tmp_path: Path) -> None:
    """Qwen3-8B's, of 5 layers: q and o of 4096 x 4096, k and v of 1024, MLPs of 3 x 12288, in
    bfloat16, with a join of 5 hidden states of the model, whole on every rank (fc of
    qwen3_dflash.py); embedding and head are the model's."""
    folder = tmp_path / "Qwen3-8B-DFlash-b16"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DFLASH))
    text = json.dumps({"model": str(folder), "num_speculative_tokens": 15})
    draft = parse_speculative_config(text, lambda name: planned(audit_model(name)))
    assert draft.method == "dflash"
    found = plan("qwen3-8b", speculative_config=draft)
    layer = 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288)
    join = 5 * 4096 * 4096
    assert term(found, "draft").bytes == 2 * (5 * layer + join)
    assert found.bytes_per_token == (36 + 5) * 8 * (128 + 128) * 2
    split = plan("qwen3-8b", speculative_config=draft, tp=2)
    assert term(split, "draft").bytes == 5 * layer + 2 * join
    refused = plan("qwen3-8b", speculative_config=draft, version="0.19").refusals
    assert any("since 0.20" in text for text in refused)


def test_a_draft_model_is_whole() -> None:
    """Qwen3-0.6B beside Qwen3-32B: 751,632,384 parameters, its head tied; 28 layers of 8 heads."""
    draft = Speculation(method="draft_model", tokens=4, draft=planned(audit_model("qwen3-0.6b")))
    found = plan("qwen3-32b", speculative_config=draft)
    parameters = draft.draft.spec.parameters if draft.draft else 0
    assert term(found, "draft").bytes == 2 * (parameters or 0)
    assert found.bytes_per_token == (64 + 28) * 8 * (128 + 128) * 2
    assert not found.refusals
    assert any(
        "since 0.15" in text
        for text in plan("qwen3-32b", speculative_config=draft, version="0.12").refusals
    )
    other = Speculation(method="draft_model", tokens=4, draft=planned(audit_model("llama-3.2-1b")))
    assert any(
        "vocabulary" in text for text in plan("qwen3-32b", speculative_config=other).refusals
    )


def test_layers_that_predict_are_the_models_own() -> None:
    """DeepSeek-V3: 61 + 1 latents of 576 in 16 bit. The layer's weights are about 11.5 B in 8 bit
    (the 14 B of its README are with embedding and head)."""
    found = plan("deepseek-v3", device="h200", tp=8, speculative_config=mtp())
    assert found.bytes_per_token == 62 * 576 * 2
    joined = 2 * 7168 * 7168 * 2
    assert 8 * (term(found, "draft").bytes - joined) + joined == pytest.approx(11.5e9, rel=0.03)


def test_the_command_of_a_start_that_a_log_tells_of_names_what_drafts() -> None:
    told = Speculation(method="eagle", tokens=2)
    command = plan("qwen3-8b", speculative_config=told, kv_memory=GIB).launch_command
    assert command is not None and '"model": "<the draft>"' in command


def test_what_drafts_without_layers_takes_a_block_of_state_only() -> None:
    ngram = Speculation(method="ngram", tokens=3)
    plain, found = plan("qwen3-8b"), plan("qwen3-8b", speculative_config=ngram)
    assert found.kv_tokens == plain.kv_tokens
    hybrid = plan("qwen3-next", device="b200", speculative_config=ngram)
    assert hybrid.pool.states.blocks == 2 + 1 + 3  # type: ignore[attr-defined]


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(HeadcountError, match="names no layers that predict"):
        plan("llama-3-8b", speculative_config=mtp())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[1]", "an object is meant"),
        ('{"method": "rumour", "model": "x", "num_speculative_tokens": 1}', "is not known"),
        ('{"method": "mlp_speculator", "model": "x", "num_speculative_tokens": 1}', "V0 engine"),
        ('{"method": "mtp"}', "num_speculative_tokens"),
        ('{"method": "mtp", "num_speculative_tokens": true}', "num_speculative_tokens"),
        ('{"method": "eagle", "num_speculative_tokens": 2}', "needs a model"),
    ],
)
def test_a_config_of_drafts_that_says_too_little_is_an_error(text: str, why: str) -> None:
    with pytest.raises(HeadcountError, match=why):
        parse_speculative_config(text, lambda name: planned(audit_model(name)))


def test_a_rank_of_data_parallel_has_a_cache_of_its_own() -> None:
    """Requests are spread: 9 over 4 ranks are 3 on one."""
    one, four = plan("qwen3-8b"), plan("qwen3-8b", dp=4, batch_size=9)
    assert four.weights_bytes == one.weights_bytes
    assert four.kv_tokens == pytest.approx(one.kv_tokens, rel=0.05)
    assert four.concurrency == pytest.approx(4 * four.pool.concurrency(four.available, 4096))
    assert four.kv_cache_bytes == plan("qwen3-8b", batch_size=3).kv_cache_bytes
    assert four.request.ranks == 4


def test_data_parallel_attention_keeps_attention_whole() -> None:
    """DeepSeek-V3 with SGLang on 8 devices: of each layer 187,107,328 parameters of attention are
    on every rank, of the experts an eighth; a request's latents on one rank, not on all."""
    options: dict[str, Any] = {"engine": "sglang", "device": "h200", "tp": 8}
    split = plan("deepseek-v3", **options)
    whole = plan("deepseek-v3", **options, dp=8, enable_dp_attention=True, batch_size=8)
    assert whole.request.ranks == 8
    assert whole.needed(4096, 8) == split.needed(4096, 1)
    attention = sum(n.parameters().total for n in whole.spec.layers)
    embedding = 2 * 129_280 * 7168
    more = whole.weights_bytes - split.weights_bytes  # type: ignore[operator]
    latents = 61 * (7168 * (1536 + 576))  # on each rank either way
    assert more == pytest.approx(7 / 8 * (attention - latents + embedding), rel=0.02)
    with pytest.raises(HeadcountError, match="does not divide"):
        plan("deepseek-v3", **options, dp=3, enable_dp_attention=True)


def test_sglang_takes_a_drafts_layers_for_layers_of_the_model() -> None:
    """With the K/V heads of the model, whatever the draft's are (pool_configurator.py)."""
    found = plan("deepseek-v3", engine="sglang", device="h200", tp=8, speculative_algorithm=mtp(4))
    assert found.bytes_per_token == 62 * 576 * 2
    assert term(found, "draft").bytes > GIB
    given = Algorithm(name="NEXTN", steps=3).speculation(lambda name: planned(audit_model(name)))
    assert (given.method, given.tokens) == ("mtp", 4)
    assert given.given == "--speculative-algorithm NEXTN --speculative-num-steps 3"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ("--speculative-config", '{"model": "qwen3-0.6b", "num_speculative_tokens": 4}'),
            """--speculative-config '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4}'""",
        ),
        (
            ("--engine", "sglang", "--speculative-algorithm", "STANDALONE",
             "--speculative-draft-model-path", "qwen3-0.6b"),
            "--speculative-draft-model-path Qwen/Qwen3-0.6B",
        ),
    ],
)  # fmt: skip
def test_commands_name_a_draft_as_the_hub_does(words: tuple[str, ...], command: str) -> None:
    done = CliRunner().invoke(main, ["plan", "qwen3-8b", "--device", "h100", *words])
    assert not done.exit_code, done.stderr
    assert command in done.stdout


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_a_whole_model_is_no_head_of_eagle(method: str) -> None:
    given = {"method": method, "model": "qwen3-0.6b", "num_speculative_tokens": 2}
    algorithm = Algorithm(name=method.upper(), draft="qwen3-0.6b")
    for parse in (
        lambda find: parse_speculative_config(json.dumps(given), find),
        algorithm.speculation,
    ):
        with pytest.raises(HeadcountError, match=r"Qwen3-0\.6B is a whole"):
            parse(lambda name: planned(audit_model(name)))


@pytest.mark.parametrize(("engine", "variable"), [("vllm", "VLLM"), ("sglang", "SGLANG")])
def test_stages_have_the_layers_that_a_partition_gives(engine: str, variable: str) -> None:
    """Llama 3 70B: 80 layers of 855,654,400 parameters and norms, embedding and head of 128,256."""
    found = plan("llama-3-70b", engine=engine, pp=3, pp_layer_partition=(20, 30, 30))
    assert found.launch_command is not None
    assert f"{variable}_PP_LAYER_PARTITION=20,30,30 " in found.launch_command
    sizes = [2 * n * (855_638_016 + 2 * 8192) for n in (20, 30, 30)]
    ends = [2 * 128_256 * 8192, 0, 2 * (128_256 + 1) * 8192]
    for stage, size in enumerate(sizes):
        assert term(found, "weights", stage).bytes == pytest.approx(size + ends[stage], rel=0.002)
    needed = [found.pool.needed(4096, 1, stage) for stage in range(3)]
    assert [size // (4096 * 8 * 256 * 2) for size in needed] == [20, 30, 30]


def test_a_stage_weighs_what_its_layers_do() -> None:
    """DeepSeek-V3's first three layers are dense, 396 M parameters of 11.5 B of the others."""
    found = plan("deepseek-v3", device="b200", pp=2, tp=4)
    first, last = (term(found, "weights", stage).bytes for stage in (0, 1))
    layers = 31 - 3, 30  # experts of the first and the last stage
    assert last / first == pytest.approx(layers[1] / layers[0], rel=0.02)


@pytest.mark.parametrize("partition", [(20, 30), (20, 30, 31), (0, 40, 40), (80,)])
def test_a_partition_must_be_of_all_layers(partition: tuple[int, ...]) -> None:
    with pytest.raises(HeadcountError, match="80 layers"):
        plan("llama-3-70b", pp=3, pp_layer_partition=partition)


def test_weights_in_the_hosts_memory_leave_the_device() -> None:
    """Llama 3 8B: whole parameters of the first layers, of 436,207,616 each, until 4 GiB are
    reached: 9 layers of 8 parameters and q, k, v and o, gate and up, of the tenth."""
    plain = plan("llama-3-8b", device="l4")
    moved = plan("llama-3-8b", device="l4", cpu_offload_gb=4)
    qkv, o, gate_up, down = 6144 * 4096, 4096 * 4096, 2 * 14336 * 4096, 14336 * 4096
    layer, whole = 2 * (qkv + o + gate_up + down), 4 * GIB
    count, rest = divmod(whole, layer)
    left = next(n for n in (qkv, qkv + o, qkv + o + gate_up, layer // 2) if 2 * n >= rest)
    assert term(plain, "weights").bytes - term(moved, "weights").bytes == count * layer + 2 * left
    assert moved.available_bytes - plain.available_bytes == count * layer + 2 * left


def test_the_host_has_what_all_ranks_move() -> None:
    found = plan("llama-3-70b", device="l40s", tp=2, dp=2, cpu_offload_gb=40)
    one = plan("llama-3-70b", device="l40s", tp=2)
    moved = term(one, "weights").bytes - term(found, "weights").bytes
    assert 40 * GIB <= moved <= 40 * GIB + 2 * 2 * 28672 * 8192 // 2
    (host,) = found.host_terms
    assert host.bytes == 4 * moved
    assert not one.host_terms


def test_embeddings_and_head_stay_on_the_device() -> None:
    found = plan("llama-3-8b", device="l4", cpu_offload_gb=100)
    ends = 2 * 2 * 128_256 * 4096
    assert term(found, "weights").bytes == pytest.approx(ends, rel=0.01)
    old = plan("gemma-3-27b", cpu_offload_gb=10, version="0.19.0")
    assert any("since 0.20" in text for text in old.refusals)
    assert not plan("gemma-3-27b", cpu_offload_gb=10, version="0.20.2").refusals


def test_adapters_are_refused_where_vllm_refuses_them() -> None:
    def reasons(name: str, **more: Any) -> str:
        return " ".join(plan(name, enable_lora=True, **more).refusals)

    assert not reasons("llama-3-8b")
    assert "max-lora-rank 24" in reasons("llama-3-8b", max_lora_rank=24)
    assert "since 0.12" in reasons("gpt-oss-20b", version="0.11.0")
    assert "not taken" in reasons("mamba-2.8b")
    with pytest.raises(HeadcountError, match="needs --enable-lora"):
        plan("llama-3-8b", max_loras=2)


def test_adapters_of_some_matrices_have_buffers_for_what_is_loaded_with_them() -> None:
    """q_proj asks for q, k and v: A of 3 x 4,096 and B of 6,144 for each of 32 layers."""
    found = plan("llama-3-8b", enable_lora=True, max_lora_rank=8, lora_target_modules=("q_proj",))
    assert term(found, "adapters").bytes == 2 * 8 * 32 * (3 * 4096 + 6144)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_adapters_of_no_matrix_of_the_model_are_a_slip(engine: str) -> None:
    """Names are those of the parts, or of what is loaded as one."""
    options: dict[str, Any] = {"engine": engine, "enable_lora": True, "max_lora_rank": 16}
    with pytest.raises(HeadcountError, match=r"query_key_value: .* has no matrix .* q_proj"):
        plan("llama-3-8b", **options, lora_target_modules=("query_key_value",)).budget  # noqa: B018
    assert plan("llama-3-8b", **options, lora_target_modules=("qkv_proj",)).budget


def test_sglang_makes_buffers_of_the_modules_that_are_named() -> None:
    """8 adapters of rank 16 for q, k, v and o of 32 layers, cut over 2 ranks as the matrices are;
    with all also gate, up and down, the embedding whole, and of the head half of B."""
    options: dict[str, Any] = {
        "engine": "sglang",
        "enable_lora": True,
        "max_lora_rank": 16,
        "tp": 2,
    }
    some = plan("llama-3-8b", **options, lora_target_modules=("q_proj", "o_proj"))
    attention = 3 * 4096 + 6144 // 2 + 4096 // 2 + 4096
    assert term(some, "adapters").bytes == 2 * 8 * 16 * 32 * attention
    every = plan("llama-3-8b", **options, lora_target_modules=("all",))
    mlp = 2 * 4096 + 2 * 14336 // 2 + 14336 // 2 + 4096
    ends = 128_256 + 4096 + 4096 + 128_256 // 2
    assert term(every, "adapters").bytes == 2 * 8 * 16 * (32 * (attention + mlp) + ends)
    assert not every.refusals
    assert "--lora-target-modules all" in (every.launch_command or "")
    assert any("--lora-paths" in text for text in plan("llama-3-8b", **options).refusals)


def test_experts_have_no_buffers_before_0_12() -> None:
    old, new = (
        term(plan("mixtral-8x7b", device="h200", enable_lora=True, version=version), "adapters")
        for version in ("0.11.0", "0.12.0")
    )
    assert new.bytes > 10 * old.bytes


def test_an_encoder_that_no_prompt_may_use_is_not_loaded() -> None:
    """Qwen2.5-VL-7B has 676,550,144 parameters of vision (the rest of 8,292,166,656 is the text's
    7,615,616,512); before 0.15 they are loaded and not profiled."""
    from headcount.plan.options.modalities import parse_image_size, parse_limits

    none = parse_limits('{"image": 0, "video": 0}')
    whole = plan("qwen2.5-vl-7b")
    new = plan("qwen2.5-vl-7b", limit_mm_per_prompt=none)
    old = plan("qwen2.5-vl-7b", limit_mm_per_prompt=none, version="0.14.0")
    vision = 2 * (8_292_166_656 - 7_615_616_512)
    assert whole.weights_bytes - new.weights_bytes == pytest.approx(vision, rel=0.001)  # type: ignore[operator]
    assert old.weights_bytes == plan("qwen2.5-vl-7b", version="0.14.0").weights_bytes
    assert term(new, "activations").bytes < term(whole, "activations").bytes
    small = parse_image_size('{"max_pixels": 802816}')  # 1,024 tokens of 28 x 28 pixels
    assert (
        "8,192 tokens"
        in term(plan("qwen2.5-vl-7b", mm_processor_kwargs=small), "activations").formula
    )
    assert "16,384 tokens" in term(whole, "activations").formula


@pytest.mark.parametrize(("step", "profiled"), [(8192, 14 * 576), (512, 576)])
def test_as_many_images_are_profiled_as_a_step_holds(step: int, profiled: int) -> None:
    """LLaVA-1.5 makes (336 / 14)^2 = 576 tokens of an image; one is profiled if none fits."""
    found = plan("llava-1.5-7b", max_num_batched_tokens=step, version="0.19.0", max_num_seqs=8)
    assert f"encoder's {profiled:,} tokens" in term(found, "activations").formula


def test_the_command_line_has_the_engines_own_names(tmp_path: Path) -> None:
    words = [
        *(
            "plan",
            "deepseek-v3",
            "--device",
            "h200",
            "--data-parallel-size",
            "8",
            "--context",
            "8k",
        ),
        *("--enable-expert-parallel", "--num-redundant-experts", "32", "--format", "json"),
        *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
    ]
    done = CliRunner().invoke(main, words)
    assert not done.exit_code, done.stderr
    command = json.loads(done.stdout)["engine"]["launch_command"]
    for word in (
        *("--data-parallel-size 8", "--enable-expert-parallel", "--enable-eplb"),
        """--eplb-config '{"num_redundant_experts": 32}'""",
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""",
    ):
        assert word in command
    uneven = CliRunner().invoke(main, [*words[:-4], "--num-redundant-experts", "3", *words[-4:]])
    assert "do not spread evenly" in uneven.stdout


def test_a_log_says_what_its_start_added(tmp_path: Path) -> None:
    """14.99 GiB of Llama-3.1-8B and 184,713,216 B of buffers for two adapters of rank 16."""
    log = tmp_path / "start.log"
    log.write_text(
        "INFO vLLM API server version 0.32.0\n"
        "non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'max_model_len': 8192,"
        " 'enable_lora': True, 'max_loras': 2, 'max_lora_rank': 16}\n"
        f"INFO Model loading took {(2 * 8_030_261_248 + 184_713_216) / GIB + 0.03:.2f} GiB\n"
    )
    done = CliRunner().invoke(main, ["reconcile", str(log), "--format", "json"])
    rows = {row["figure"]: row for row in json.loads(done.stdout)["figures"]}
    assert rows["weights_bytes"]["agrees"] is True
    assert "2 adapters of rank 16" in rows["weights_bytes"]["why"]


def draft_in(tmp_path: Path, name: str, config: dict[str, Any], method: str) -> Speculation:
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(json.dumps(config))
    text = {"method": method, "model": str(tmp_path / name), "num_speculative_tokens": 3}
    found = read_options({"speculative_config": json.dumps(text)})["speculative_config"]
    assert isinstance(found, Speculation)
    return found


def test_heads_of_medusa_have_weights_and_no_cache(tmp_path: Path) -> None:
    """medusa.py of vLLM: five heads of a square matrix each, as FasterDecoding/medusa-vicuna-7b has
    them, and an output head for each of them."""
    config = {"medusa_num_heads": 5, "medusa_num_layers": 1, "vocab_size": 32000}
    drafts = draft_in(tmp_path, "heads", config, "medusa")
    for tp in (1, 2):
        alone = plan("llama-2-7b", tp=tp)
        found = plan("llama-2-7b", speculative_config=drafts, tp=tp)
        assert term(found, "draft").bytes == 2 * (5 * 4096**2 + 5 * 32000 * 4096 // tp)
        assert found.bytes_per_token == alone.bytes_per_token
    shared = draft_in(tmp_path, "one", {**config, "original_lm_head": True}, "medusa")
    found = plan("llama-2-7b", speculative_config=shared)
    assert term(found, "draft").bytes == 2 * (5 * 4096**2 + 32000 * 4096)
    assert found.launch_command is not None and "medusa" in found.launch_command


def test_a_draft_of_dspark_is_one_of_dflash_with_tables(tmp_path: Path) -> None:
    """qwen3_dspark.py of vLLM: markov_w1 and markov_w2, uncut, and a confidence head in float32."""
    flash = draft_in(tmp_path, "flash", DFLASH, "dflash")
    config = {
        **DFLASH,
        **{"architectures": ["Qwen3DSparkModel"], "markov_rank": 256},
        **{"enable_confidence_head": True, "confidence_head_with_markov": True},
    }
    spark = draft_in(tmp_path, "spark", config, "dspark")
    asked = [plan("qwen3-8b", speculative_config=each, tp=2) for each in (flash, spark)]
    terms = [term(found, "draft").bytes for found in asked]
    tables, confidence = 2 * 256 * 151936 * 2, (4096 + 256 + 1) * 4
    assert terms[1] - terms[0] == tables + confidence
    assert asked[0].bytes_per_token == asked[1].bytes_per_token
    old = plan("qwen3-8b", speculative_config=spark, version="0.24.0")
    assert any("DSpark are taken since 0.28" in text for text in old.refusals)


def test_heads_are_named_for_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="is heads of Medusa, and method is eagle"):
        draft_in(tmp_path, "heads", {"model_type": "medusa"}, "eagle")
    with pytest.raises(HeadcountError, match="is no heads of Medusa"):
        draft_in(tmp_path, "flash", DFLASH, "medusa")
    with pytest.raises(HeadcountError, match="V0 engine alone"):
        draft_in(tmp_path, "mlp", {"model_type": "mlp_speculator"}, "draft_model")
    spark = draft_in(tmp_path, "spark", DFLASH, "dspark")
    with pytest.raises(HeadcountError, match="markov_rank"):
        plan("qwen3-8b", speculative_config=spark)
