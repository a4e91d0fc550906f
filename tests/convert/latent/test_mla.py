"""`--home mla`: a latent and one key that rotates, in DeepSeek's own class.

Sources that are MLA after all are made by hand: of each frequency the keys of all heads are
multiples of one complex number of the input, and keys and values beside that are of low rank.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DeepseekV3ForCausalLM

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from conversions import contents, generated, load_whole
from headcount.audit import audit_model
from headcount.cli import main
from headcount.convert.calibrate import calibrated_layers as calibrated
from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.errors import CannotConvertError, HeadCountError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.model.mixers import LatentAttention
from headcount.running.measured_cache import measured_cache_bytes

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]

SIZES = {
    **{"hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 96, "intermediate_size": 32},
    **{"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8},
    **{"max_position_embeddings": 64, "initializer_range": 0.3},
}
RANK, ROTATED = 5, 8
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rms_norm_eps": 1e-6}),
    "another epsilon": ("llama", {"rms_norm_eps": 1e-4}),
    "tied": ("llama", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True}),
    "a K/V head per query head": ("llama", {"num_key_value_heads": 6}),
    "mistral": ("mistral", {"sliding_window": None}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.4,
                "logits_scaling": 2.0, "attention_multiplier": 0.2}),
    "helium": ("helium", {}),
    "ernie4_5": ("ernie4_5", {"use_bias": False, "tie_word_embeddings": False}),
}  # fmt: skip
RUNGS: dict[str, dict[str, Any]] = {
    "fast": {},
    "good": {"refit": "mlp"},
    "best": {"refit": "mlp", "reconstruct": 20},
}
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9], [11, 3, 90, 21, 65, 77, 30, 4]])
LIMIT = 1e-5  # of logits: DeepSeek's class makes its norms in float32, whatever the weights are
PAIRS = ("helium", "ernie4_5")  # neighbouring rows rotate together; else row i and i + d / 2


def build(name: str, folder: Path, *, by_hand: bool = True, dtype: Any = torch.float64) -> Any:
    """The source `name`, saved in `folder`; `by_hand`: it is MLA after all."""
    torch.manual_seed(0)
    model_type, changes = SOURCES[name]
    config = CONFIG_MAPPING[model_type](**{**SIZES, **changes})
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    for layer in model.model.layers:
        attention = layer.self_attn
        if by_hand:
            attention.k_proj.weight.data = shared_keys(attention.k_proj.weight, name in PAIRS)
            rows, width = attention.v_proj.weight.shape
            attention.v_proj.weight.data = (
                torch.randn(rows, RANK, dtype=dtype) @ torch.randn(RANK, width, dtype=dtype) * 0.1
            )
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight.data = torch.rand_like(norm.weight) + 0.5
    model.model.norm.weight.data = torch.rand_like(model.model.norm.weight) + 0.5
    model.save_pretrained(folder)
    return model


def shared_keys(like: torch.Tensor, in_pairs: bool) -> torch.Tensor:
    """Keys of which every head's number at a frequency is a multiple of one: k_hf = a_hf z_f."""
    heads, half = like.shape[0] // 8, 4
    numbers = torch.randn(half, like.shape[1], dtype=torch.complex128) * 0.5
    multiples = torch.randn(heads, half, dtype=torch.complex128)
    keys = multiples[..., None] * numbers
    parts = torch.stack([keys.real, keys.imag], 2 if in_pairs else 1)
    return parts.flatten(1, 2).flatten(0, 1).to(like.dtype)


def mla(source: Path, target: Path, size: Any, **options: Any) -> ConversionReport:
    request = ConversionRequest(
        source=source, target=target, num_key_value_heads=None, latent=size, home="mla", **options
    )
    return convert(request, progress=False)


def padded(model: Any) -> Any:
    """What a model goes on with where the first row has pads before it."""
    mask = torch.ones_like(TOKENS)
    mask[0, :3] = 0
    return generated(model, TOKENS, tokens=7, attention_mask=mask)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_that_is_mla_after_all_comes_back(name: str, tmp_path: Path) -> None:
    source = build(name, tmp_path / "source")
    report = mla(tmp_path / "source", tmp_path / "out", RANK + ROTATED)
    result = load_whole(tmp_path / "out", dtype=torch.float64)
    assert type(result) is DeepseekV3ForCausalLM
    with torch.no_grad():
        before, after = source(TOKENS).logits, result(TOKENS).logits
        assert (before - after).abs().max() <= LIMIT
        expected, found = padded(source), padded(result)
    assert torch.equal(expected.sequences, found.sequences)
    assert all(layer.key < 1e-4 and layer.value < 1e-4 for layer in report.layers)


def test_what_is_kept_is_what_the_audit_says(tmp_path: Path) -> None:
    build("llama", tmp_path / "source", dtype=torch.float32)
    report = mla(tmp_path / "source", tmp_path / "out", RANK + ROTATED)
    audit = audit_model(str(tmp_path / "out"))
    mixers = [mixer for layer in audit.spec.layers for mixer in layer.mixers]
    latents = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    assert latents == mixers
    assert {(m.kv_lora_rank, m.qk_rope_head_dim) for m in latents} == {(RANK, ROTATED)}
    assert not [f for f in audit.findings if f.severity in ("error", "warning")]
    result = load_whole(tmp_path / "out")
    with torch.no_grad():
        output = padded(result)
    tokens = TOKENS.shape[1] + 7 - 1
    predicted = audit.spec.cache_bytes(tokens=tokens, batch_size=2, bits=32)
    assert predicted == 2 * 2 * tokens * (RANK + ROTATED) * 4
    assert measured_cache_bytes(output["cache"]) == predicted
    held = sum(parameter.numel() for parameter in result.parameters())
    assert audit.spec.parameters == held
    assert {layer.latent_rank for layer in report.plan.layers} == {RANK + ROTATED}


def test_the_norm_of_the_latent_only_scales(tmp_path: Path) -> None:
    """Whatever the latent: doubled inputs give doubled latents, where a norm gives equal ones."""
    build("another epsilon", tmp_path / "source")
    mla(tmp_path / "source", tmp_path / "out", RANK + ROTATED)
    result = load_whole(tmp_path / "out", dtype=torch.float64)
    assert result.config.rms_norm_eps == 1e-6
    attention = result.model.layers[0].self_attn
    hidden = torch.randn(1, 9, result.config.hidden_size, dtype=torch.float64)
    with torch.no_grad():
        one, two = (
            attention.kv_a_layernorm(attention.kv_a_proj_with_mqa(h)[..., :RANK])
            for h in (hidden, 2 * hidden)
        )
    torch.testing.assert_close(two, 2 * one, rtol=1e-6, atol=0)
    assert one.abs().max() > 0.01


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (512, "512 elements"),  # vLLM runs it
        (600, "vLLM does not serve it: 600 elements of a token (536 + 64) are not of a size that"),
        (600, "(320, 512, 576); --latent 576 or 512 or 320 would be"),
    ],
)
def test_sizes_that_vllm_runs_are_offered(tmp_path: Path, size: int, said: str) -> None:
    config = LLAMA_CONFIG | {"hidden_size": 1024, "head_dim": 64, "num_key_value_heads": 8}
    source = write_model(tmp_path / "src", config, llama_shapes(config))
    request = ConversionRequest(
        source=source, target=tmp_path / "out", num_key_value_heads=None, latent=size, home="mla"
    )
    notes = " ".join(plan_conversion(request).notes)
    assert (said in notes) == (size == 600) and ("vLLM" in notes) == (size == 600)


@pytest.mark.parametrize("quality", ["fast", "good", "best"])
def test_text_fits_it_better(
    quality: str, save_model: SaveModel, text_file: Path, tmp_path: Path
) -> None:
    source = save_model("llama", num_key_value_heads=4)
    options: dict[str, Any] = {"calibration": str(text_file), **RUNGS[quality]}
    report = mla(source, tmp_path / "out", 24, **options)
    load_whole(tmp_path / "out")
    for layer in report.record["layers"]:
        measured = layer["rewritten"]
        assert 0 < measured["latent"]["rotated_error"] < 1
        errors = list(measured["calibration"].get("output_error", {}).values())
        assert errors == sorted(errors, reverse=True)
        assert len(errors) == {"fast": 0, "good": 2, "best": 3}[quality]
    mla(source, tmp_path / "again", 24, **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


def test_a_run_that_goes_on_makes_the_same_layers(
    save_model: SaveModel, text_file: Path, tmp_path: Path
) -> None:
    """With the first layer from an earlier run the second becomes what it became, to the bit."""
    request = ConversionRequest(
        source=save_model("llama", num_key_value_heads=4),
        target=tmp_path / "out",
        num_key_value_heads=None,
        latent=24,
        home="mla",
        calibration=str(text_file),
        refit="mlp",
    )
    rewriting = plan_conversion(request).rewriting
    assert rewriting is not None

    def layers(done: Any) -> list[Any]:
        return list(
            calibrated.calibrated_layers(
                rewriting.source,
                rewriting.heads,
                rewriting.ladder,
                str(text_file),
                rewriting.calibration_tokens,
                done,
                progress=False,
                ranks=rewriting.ranks,
                mla=rewriting.mla,
            )
        )

    first = layers(lambda index: None)
    second = layers(lambda index: first[0] if index == 0 else None)
    assert first[1].tensors.keys() == second[1].tensors.keys()
    for name, value in first[1].tensors.items():
        assert torch.equal(value, second[1].tensors[name]), name


@pytest.mark.parametrize(
    ("model_type", "changes", "said"),
    [
        ("qwen2", {}, "layers of llama, mistral"),
        ("qwen3", {}, "layers of llama, mistral"),
        ("llama", {"attention_bias": True}, "biases (attention_bias)"),
        ("llama", {"hidden_act": "gelu"}, "computes gelu"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "kind 'linear'"),
        ("mistral", {"sliding_window": 8}, "window"),
    ],
)
def test_what_the_class_does_not_compute_is_refused(
    model_type: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    config = CONFIG_MAPPING[model_type](**{**SIZES, **changes})
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "source")
    with pytest.raises(CannotConvertError, match="leave out --home mla") as error:
        mla(tmp_path / "source", tmp_path / "out", 24)
    assert said in str(error.value)


def test_sizes_and_types_that_it_cannot_have(tmp_path: Path) -> None:
    build("llama", tmp_path / "source", dtype=torch.float32)
    for size in (ROTATED, 49):
        with pytest.raises(HeadCountError, match="--latent can be 9 to 48 with --home mla"):
            mla(tmp_path / "source", tmp_path / "out", size)
    with pytest.raises(CannotConvertError, match="--dtype bfloat16"):
        mla(tmp_path / "source", tmp_path / "out", 16, dtype="float16")
    mla(tmp_path / "source", tmp_path / "out", 16, dtype="bfloat16")
    result = load_whole(tmp_path / "out")
    with torch.no_grad():
        assert result(TOKENS).logits.isfinite().all()


def test_it_is_reported_checked_and_verified(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama", tokens="none"), tmp_path / "out"

    def run(*words: object, status: int = 0) -> Any:
        result = CliRunner().invoke(main, [str(word) for word in words])
        assert result.exit_code == status, result.output
        return result

    options = ("--latent", "24", "--home", "mla")
    assert "a latent of" in run("convert", source, target, *options, "--dry-run").stdout
    report = run("convert", source, target, *options, "--check", "--format", "json")
    found = json.loads(report.stdout)["check"]
    assert found["measured_cache_bytes"] == found["predicted_cache_bytes"] > 0
    run("convert", source, "--verify", target)
    again = run("convert", source, target, *options).stdout
    assert "already done" in again
    latent = json.loads((target / "conversion.json").read_text())["layers"][0]["rewritten"][
        "latent"
    ]
    (row,) = (line for line in again.splitlines() if line.split()[:1] == ["0"])
    assert row.endswith(f"{100 * latent['rotated_error'] ** 0.5:.1f} %")
    assert "Not turned: " in again and "Fitted to text" not in again
    assert "vLLM does not serve it: 24 elements of a token (" in again
    asked = ("--device", "h100", "--context", "32", "--engine")
    assert "does not start: its latent attention" in run("plan", target, *asked, "vllm").stdout
    assert "does not start" not in run("plan", target, *asked, "sglang").stdout
    again = run("convert", target, tmp_path / "again", "--latent", "8", status=2)
    assert "latent attention (MLA)" in again.output
