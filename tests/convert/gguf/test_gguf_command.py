"""`convert --format gguf`: heads merged on the way, types, refusals, what is found beside it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytestmark = pytest.mark.needs_convert
gguf = pytest.importorskip("gguf")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from causal_models import build_model, make_tokenizer  # noqa: E402
from gguf_models import save  # noqa: E402
from gguf_record import converted, read_file  # noqa: E402
from headcount.audit import audit_model  # noqa: E402
from headcount.cli import main  # noqa: E402
from headcount.convert.conversion import convert  # noqa: E402
from headcount.convert.gguf.encoding import encoded  # noqa: E402
from headcount.convert.plan.errors import CannotConvertError  # noqa: E402
from headcount.convert.plan.planner import plan_conversion  # noqa: E402
from headcount.convert.plan.request import ConversionRequest  # noqa: E402
from headcount.convert.plan.rounding import rounding_of  # noqa: E402
from headcount.model.errors import HeadcountError  # noqa: E402


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf") / "llama"
    build_model("llama", num_key_value_heads=4, vocab_size=320).save_pretrained(folder)
    make_tokenizer(bos=True).save_pretrained(folder)
    return folder


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def _edited(source: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


def _tensors(path: Path) -> dict[str, Any]:
    reader = gguf.GGUFReader(path)
    return {
        one.name: torch.tensor(gguf.dequantize(one.data, one.tensor_type)) for one in reader.tensors
    }


def test_heads_are_merged_as_without_it(llama: Path, tmp_path: Path) -> None:
    """In one go and in two: the same file but for its name of the source."""
    once = run(llama, tmp_path / "once", "--kv-heads", 2, "--format", "gguf")
    assert once.exit_code == 0, once.output
    assert run(llama, tmp_path / "folder", "--kv-heads", 2).exit_code == 0
    assert run(tmp_path / "folder", tmp_path / "twice", "--format", "gguf").exit_code == 0
    one, two = (read_file(tmp_path / name / "model.gguf") for name in ("once", "twice"))
    assert one.tensors == two.tensors
    assert one.keys | {"general.name": ""} == two.keys | {"general.name": ""}
    assert one.keys["llama.attention.head_count_kv"] == 2


def test_the_audit_of_the_file_is_that_of_the_folder(llama: Path, tmp_path: Path) -> None:
    run(llama, tmp_path / "folder", "--kv-heads", 2)
    run(llama, tmp_path / "file", "--kv-heads", 2, "--format", "gguf")
    folder, file = (audit_model(str(tmp_path / name)) for name in ("folder", "file"))
    assert folder.spec.parameters == file.spec.parameters
    assert folder.attention_parameters == file.attention_parameters
    pairs = zip(folder.spec.layers, file.spec.layers, strict=True)
    for one, two in pairs:
        assert one.mixers[0].key_value_elements(100) == two.mixers[0].key_value_elements(100)
        assert folder.layer_parts(one) == file.layer_parts(two)


@pytest.mark.parametrize(
    ("dtype", "kind", "near"),
    [("float32", "F32", 0), ("float16", "F16", 2**-11), ("bfloat16", "BF16", 2**-8)],
)
def test_element_types(llama: Path, tmp_path: Path, dtype: str, kind: str, near: float) -> None:
    result = run(llama, tmp_path / "out", "--format", "gguf", "--dtype", dtype)
    assert result.exit_code == 0, result.output
    path = tmp_path / "out" / "model.gguf"
    written = read_file(path).tensors
    assert {written[f"blk.0.{name}.weight"][0] for name in ("attn_v", "ffn_up")} == {kind}
    assert written["blk.0.attn_norm.weight"][0] == "F32"
    source = load_file(llama / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    assert torch.allclose(_tensors(path)["blk.0.ffn_up.weight"], source, rtol=near, atol=0)


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        (("--format", "gguf", "--dtype", "q8_0"), "(float16, llama.cpp's default)"),
        (("--dtype", "bfloat16"), "(bfloat16)"),
        ((), "(float32)"),
    ],
)
def test_the_cache_is_told_in_the_type_that_the_result_has(
    llama: Path, tmp_path: Path, options: tuple[str, ...], cache: str
) -> None:
    """As an audit of the result says it."""
    done = run(llama, tmp_path / "out", "--kv-heads", 2, *options)
    config = json.loads((llama / "config.json").read_text())
    elements = config["num_hidden_layers"] * 2 * 2 * config["head_dim"]
    each = elements * (4 if "32" in cache else 2)
    assert f"{2 * each:,} B -> {each:,} B a token {cache}, 2 times smaller" in done.stdout
    (found,) = (tmp_path / "out").glob("model.[gs]*")
    place = found if found.suffix == ".gguf" else tmp_path / "out"
    said = CliRunner().invoke(main, ["audit", str(place), "--details"]).stdout
    assert f"{each:,} B" in said and cache.strip("()").partition(",")[0] in said


def test_q8_0_is_a_scale_and_rounded_quotients(llama: Path, tmp_path: Path) -> None:
    path = converted(llama, tmp_path / "out", dtype="q8_0")
    found = read_file(path)
    assert found.tensors["blk.0.attn_v.weight"][0] == "Q8_0"
    assert found.tensors["blk.0.ffn_down.weight"][0] == "F16"  # rows of 48
    assert found.keys["general.file_type"] == 7
    source = load_file(llama / "model.safetensors")["model.layers.0.self_attn.v_proj.weight"]
    blocks = source.reshape(-1, 32)
    scale = blocks.abs().amax(1, keepdim=True) / 127
    quotients = blocks * (1 / scale)
    rounded = quotients.sign() * (quotients.abs() + 0.5).floor()  # quantize_row_q8_0_ref of ggml
    wanted = rounded * scale.half().float()
    assert torch.equal(_tensors(path)["blk.0.attn_v.weight"].reshape(-1, 32), wanted)


def test_blocks_are_those_of_the_package_gguf() -> None:
    """Byte for byte, also of zeros, of halves and of what is nearly one."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(64, 96, generator=generator) * torch.logspace(-20, 4, 64)[:, None]
    rows[0] = 0
    rows[1, :32] = torch.arange(32) / 2  # quotients of n / 2
    rows[1, 31] = 127.0
    rows[2, :2] = torch.tensor([0.49999997, 127.0])
    wanted = gguf.quantize(rows.numpy(), gguf.GGMLQuantizationType.Q8_0).tobytes()
    assert b"".join(map(bytes, encoded(rows, "Q8_0"))) == wanted


def test_the_report_goes_with_it(llama: Path, tmp_path: Path) -> None:
    result = run(llama, tmp_path / "out", "--format", "gguf", "--format", "json", "--dry-run")
    document = json.loads(result.stdout)
    assert document["target"]["gguf"]["architecture"] == "llama"
    assert {one["action"] for one in document["tensors"]} == {"copy", "reorder"}
    assert not (tmp_path / "out").exists()
    lines = run(llama, tmp_path / "out", "--format", "gguf", "--dry-run").stdout
    assert "architecture llama" in lines


def test_the_record_holds(llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(llama, out, "--format", "gguf").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "conversion.json",
        "model.gguf",
    ]
    assert "already done" in run(llama, out, "--format", "gguf").stdout
    assert run("--verify", out, llama).exit_code == 0
    assert run(llama, out, "--format", "gguf", "--dtype", "float16").exit_code == 2
    assert run(llama, out, "--format", "gguf", "--dtype", "float16", "--overwrite").exit_code == 0
    file = out / "model.gguf"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert run("--verify", out, llama).exit_code == 1


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_its_card_is_about_llama_cpp(llama: Path, tmp_path: Path, has_tokenizer: bool) -> None:
    """And names no class of transformers, which reads no such file."""
    source = shutil.copytree(llama, tmp_path / "source")
    for path in () if has_tokenizer else source.glob("tokenizer*"):
        path.unlink()
    assert run(source, tmp_path / "out", "--kv-heads", 2, "--format", "gguf").exit_code == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "architecture `llama` of llama.cpp" in card and "Kept as" not in card
    assert ("llama-server -m FOLDER/model.gguf" in card) == has_tokenizer
    assert ("has no vocabulary" in card) != has_tokenizer
    assert ("pipeline_tag: text-generation" in card) == has_tokenizer
    assert "Not evaluated" in card and "without `--format gguf`" in card

    assert run(source, tmp_path / "same", "--format", "gguf").exit_code == 0
    same = (tmp_path / "same" / "README.md").read_text()
    # Without it there would be nothing to convert.
    assert "Not evaluated" in same and "without `--format gguf`" not in same


def test_the_same_bytes_with_any_number_of_workers(llama: Path, tmp_path: Path) -> None:
    files = [
        converted(llama, tmp_path / str(workers), workers=workers, num_key_value_heads=2)
        for workers in (1, 4)
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hidden_act": "gelu"}, "knows hidden_act 'silu'"),
    ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "'dynamic'"),
    ({"model_type": "opt"}, "llama.cpp has no architecture for opt"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED[:2])
def test_what_llama_cpp_does_not_compute(
    llama: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    result = run(_edited(llama, tmp_path / "in", **changes), tmp_path / "out", "--format", "gguf")
    assert result.exit_code == 2
    assert reason in result.output
    assert "convert without --format gguf" in result.output
    assert not (tmp_path / "out").exists()


def test_types_without_an_architecture(tmp_path: Path) -> None:
    build_model("opt").save_pretrained(tmp_path / "opt")
    result = run(tmp_path / "opt", tmp_path / "out", "--format", "gguf")
    assert result.exit_code == 2
    assert "llama.cpp has no architecture for opt" in result.output


def test_the_modelling_file_of_ours_has_none(llama: Path, tmp_path: Path) -> None:
    counts = ("--kv-heads", "0:2,1:1")
    result = run(llama, tmp_path / "out", *counts, "--format", "gguf")
    assert result.exit_code == 2
    assert "no architecture for headcount_llama" in result.output


def test_a_tensor_that_llama_cpp_has_no_place_for(tmp_path: Path) -> None:
    save("qwen2", tmp_path / "in")
    file = tmp_path / "in" / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.0.self_attn.o_proj.bias"] = torch.zeros(64)
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(HeadcountError, match=r"o_proj\.bias"):
        converted(tmp_path / "in", tmp_path / "out")


def test_a_window_that_llama_cpp_does_not_see_is_said(tmp_path: Path) -> None:
    save("mistral", tmp_path / "in")
    result = run(tmp_path / "in", tmp_path / "out", "--format", "gguf")
    assert "gives no window to 2 layers" in result.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dtype", "q8_0", "--kv-heads", "2"), "q8_0 is for --format gguf"),
        (("--format", "gguf", "--check"), "--check does not go with --format gguf"),
        (("--format", "gguf", "--max-shard-size", "1MB"), "--max-shard-size does not go"),
        (("--format", "gguf", "--format", "safetensors"), "two formats of one thing"),
        (("--format", "json"), "are needed"),
    ],
)
def test_options_that_do_not_go_together(
    llama: Path, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    result = run(llama, tmp_path / "out", *options)
    assert result.exit_code == 2
    assert reason in result.output


def test_the_target_is_a_folder(llama: Path, tmp_path: Path) -> None:
    result = run(llama, tmp_path / "out.gguf", "--format", "gguf")
    assert result.exit_code == 2
    assert "name it without .gguf" in result.output


def test_without_the_extra(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.convert.plan.planner.find_spec", lambda name: None)
    result = run(llama, tmp_path / "out", "--format", "gguf")
    assert result.exit_code == 2
    assert "pip install '.[gguf]'" in result.output


@pytest.mark.parametrize(
    ("dtype", "cast"), [(None, None), ("float16", "float16"), ("q8_0", "Q8_0")]
)
def test_what_is_rounded_is_said(llama: Path, tmp_path: Path, dtype: Any, cast: Any) -> None:
    request = ConversionRequest(
        source=llama,
        target=tmp_path / "out",
        num_key_value_heads=None,
        format="gguf",
        dtype=dtype,
    )
    assert rounding_of(plan_conversion(request)).cast == cast


@pytest.mark.parametrize(
    ("dtype", "number", "reason"),
    [
        ("float16", 1e6, "overflows float16"),
        ("q8_0", 1e9, "overflows float16"),  # the scale
        ("q8_0", float("nan"), "holds NaN or infinity"),
    ],
)
def test_numbers_that_the_type_cannot_hold(
    llama: Path, tmp_path: Path, dtype: str, number: float, reason: str
) -> None:
    _edited(llama, tmp_path / "in")
    file = tmp_path / "in" / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] = number
    save_file(weights, file, {"format": "pt"})
    result = run(tmp_path / "in", tmp_path / "out", "--format", "gguf", "--dtype", dtype)
    assert result.exit_code == 2
    assert reason in result.output
    assert not (tmp_path / "out").exists()


def test_requests_of_python(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="nothing is asked for"):
        ConversionRequest(source=llama, target=tmp_path / "out", num_key_value_heads=None)
    with pytest.raises(HeadcountError, match="format 'onnx' is not one of"):
        ConversionRequest(
            source=llama,
            target=tmp_path / "out",
            num_key_value_heads=2,
            format="onnx",  # type: ignore[arg-type]
        )
    with pytest.raises(CannotConvertError, match="no architecture for headcount_llama"):
        convert(
            ConversionRequest(
                source=llama,
                target=tmp_path / "out",
                num_key_value_heads={0: 2, 1: 1},
                format="gguf",
            )
        )
