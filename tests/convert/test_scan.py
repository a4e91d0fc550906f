"""`audit --scan`: what the values of the weights show."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG, header_bytes, llama_shapes, write_model
from headcount.cli import main

pytestmark = pytest.mark.needs_convert

K = "model.layers.{}.self_attn.k_proj.weight"
V = "model.layers.{}.self_attn.v_proj.weight"
MHA = {**LLAMA_CONFIG, "num_key_value_heads": 8}


def random_model(folder: Path, config: dict[str, Any] = MHA, **changes: Any) -> Path:
    """A model of random values; `changes` maps a tensor's name to what is done to it."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    folder.mkdir(parents=True)
    tensors = {
        name: torch.randn(shape).to(torch.bfloat16) for name, shape in llama_shapes(config).items()
    }
    for name, change in changes.items():
        tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def scan(folder: Path) -> dict[str, Any]:
    run = CliRunner().invoke(main, ["audit", str(folder), "--scan", "--format", "json"])
    assert run.exit_code in (0, 1), run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def codes(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["code"], finding["where"]) for finding in report["findings"]}


def repeated(distinct: int) -> Any:
    """8 heads, of which runs of neighbours are equal."""
    return lambda w: (
        w.reshape(8, 4, -1)[:: 8 // distinct].repeat_interleave(8 // distinct, 0).reshape(w.shape)
    )


def test_a_random_model_has_no_findings_and_unlike_heads(tmp_path: Path) -> None:
    report = scan(random_model(tmp_path / "m"))
    assert codes(report) == set()
    assert report["scan"]["tensors"] == len(llama_shapes())
    assert report["scan"]["odd_tensors"] == []
    for layer in report["scan"]["layers"]:
        assert layer["repeated"] is None
        assert abs(layer["key_similarity"]) < 0.2


def test_nan_infinity_and_zeros(tmp_path: Path) -> None:
    def put(value: float, count: int) -> Any:
        def change(weight: Any) -> Any:
            weight.view(-1)[:count] = value
            return weight

        return change

    changes = {
        K.format(0): put(math.nan, 3),
        V.format(1): put(-math.inf, 2),
        "model.layers.2.mlp.down_proj.weight": put(0.0, 48 * 32),
    }
    report = scan(random_model(tmp_path / "m", **changes))
    assert codes(report) == {
        ("H701", K.format(0)),
        ("H702", V.format(1)),
        ("H703", "model.layers.2.mlp.down_proj.weight"),
    }
    by_name = {tensor["name"]: tensor for tensor in report["scan"]["odd_tensors"]}
    assert by_name[K.format(0)]["nans"] == 3
    assert by_name[V.format(1)]["infinities"] == 2
    assert report["scan"]["layers"][0]["key_similarity"] is None  # NaN is no JSON


@pytest.mark.parametrize("distinct", [1, 2, 4])
def test_repeated_heads_are_counted(tmp_path: Path, distinct: int) -> None:
    changes = {name.format(i): repeated(distinct) for name in (K, V) for i in range(3)}
    report = scan(random_model(tmp_path / "m", **changes))
    assert codes(report) == {("H704", "layers 0-2")}
    assert [layer["repeated"] for layer in report["scan"]["layers"]] == [distinct] * 3
    expected = 1.0 if distinct == 1 else (8 / distinct - 1) / 7  # equal pairs among all pairs
    assert report["scan"]["layers"][0]["key_similarity"] == pytest.approx(expected, abs=0.15)


def test_keys_alone_or_one_layer_alone_are_not_repeated_heads(tmp_path: Path) -> None:
    keys = {K.format(i): repeated(2) for i in range(3)}
    assert codes(scan(random_model(tmp_path / "keys", **keys))) == set()
    layer = {K.format(0): repeated(2), V.format(0): repeated(2)}
    assert codes(scan(random_model(tmp_path / "layer", **layer))) == set()


def test_strided_equal_heads_cannot_be_merged(tmp_path: Path) -> None:
    """Heads 0, 2, 4, 6 alike and 1, 3, 5, 7 alike: groups are runs, so that is no GQA."""
    stride: Any = lambda w: w.reshape(8, 4, -1)[:2].repeat(4, 1, 1).reshape(w.shape)  # noqa: E731
    changes = {name.format(i): stride for name in (K, V) for i in range(3)}
    report = scan(random_model(tmp_path / "m", **changes))
    assert codes(report) == set()


def test_the_table_for_people(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["audit", str(random_model(tmp_path / "m")), "--scan"])
    assert "K/V heads by their weights" in run.stdout
    assert "30 tensors were scanned" in run.stdout


def test_what_has_no_weights_here_is_refused() -> None:
    run = CliRunner().invoke(main, ["audit", "gpt2", "--scan"])
    assert run.exit_code == 2
    assert "needs a folder or a file" in run.stderr


def test_codes_are_left_out(tmp_path: Path) -> None:
    folder = write_model(tmp_path, LLAMA_CONFIG, llama_shapes())
    config = {**LLAMA_CONFIG, "quantization_config": {"quant_method": "fp8"}}
    (folder / "config.json").write_text(json.dumps(config))
    report = scan(folder)
    assert report["scan"]["tensors"] == len(llama_shapes())
    assert {code for code, _ in codes(report)} == {"H602", "H703", "H704"}


def sparse_model(folder: Path, layers: int, width: int) -> Path:
    """All keys in one file, all values in another: zeros that take no room on the disk."""
    config = {
        **LLAMA_CONFIG,
        **{"hidden_size": width, "num_key_value_heads": 8, "num_hidden_layers": layers},
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    weight_map = {}
    for name, file in ((K, "k.safetensors"), (V, "v.safetensors")):
        size = width * width * 2
        header = {
            name.format(i): {
                "dtype": "BF16",
                "shape": [width, width],
                "data_offsets": [i * size, (i + 1) * size],
            }
            for i in range(layers)
        }
        start = header_bytes(header)
        with (folder / file).open("wb") as out:
            out.write(start)
            out.truncate(len(start) + layers * size)
        weight_map |= dict.fromkeys(header, file)
    index = json.dumps({"weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(index)
    return folder


PEAK = """
import sys
from pathlib import Path
from headcount.audit.auditing import audit_model
from headcount.convert.scan import reading

def anonymous():  # KiB that are no pages of a file, such as those of torch's libraries
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])

sizes = []
look = reading._look
reading._look = lambda *tensor: (sizes.append(anonymous()), look(*tensor))[1]
audit = audit_model(sys.argv[1])
before = anonymous()
facts = reading.scan(audit, progress=False)
print(len(facts.layers), (max(*sizes, anonymous()) - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path) -> None:
    """160 MiB of weights in tensors of 2 MiB, with k and v of a layer far apart."""
    folder = sparse_model(tmp_path / "m", layers=40, width=1024)
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True
    )
    layers, mebibytes = map(int, run.stdout.split())
    assert layers == 40
    assert mebibytes < 40  # all keys alone are 80


def test_the_heat_map_is_one_html_page(tmp_path: Path) -> None:
    changes = {name.format(i): repeated(2) for name in (K, V) for i in range(3)}
    folder = random_model(tmp_path / "m", **changes)
    out = tmp_path / "scan.html"
    run = CliRunner().invoke(
        main, ["audit", str(folder), "--scan", "--format", "html", "-o", str(out)]
    )
    assert run.exit_code == 0, run.stderr
    page = out.read_text()
    assert page.count('class="number heat"') == 3 * 5  # two similarities, three counts of heads
    assert page.count('style="--share: 0.600">0.0000<') == 3 * 2  # 4 and 2 K/V heads lose nothing
    assert "H704" in page


@pytest.mark.parametrize("same", [True, False])
def test_a_tied_head_is_held_against_the_embedding(tmp_path: Path, same: bool) -> None:
    config = {**MHA, "tie_word_embeddings": True}
    folder = random_model(tmp_path / "m", config)
    if same:
        rewrite(folder, lambda all: all | {"lm_head.weight": all["model.embed_tokens.weight"] + 0})
    report = scan(folder)
    assert ("H705", "lm_head.weight") in codes(report) or same
    assert {code for code, _ in codes(report)} == ({"H107"} if same else {"H107", "H705"})
    tied = {"name": "lm_head.weight", "to": "model.embed_tokens.weight", "elements": 40 * 32}
    assert report["scan"]["tied"] == [{**tied, "same": same}]
    told = CliRunner().invoke(main, ["audit", str(folder), "--scan"]).stdout
    counted = f"{int(same)} of 1 copies of tied matrices hold the same values."
    assert counted in " ".join(told.split())


def test_a_tied_head_of_another_type_is_cast_first(tmp_path: Path) -> None:
    """As transformers does on loading: equal values in two types are tied."""
    import torch

    folder = random_model(tmp_path / "m", {**MHA, "tie_word_embeddings": True})
    rewrite(folder, lambda all: all | {"lm_head.weight": all["model.embed_tokens.weight"].float()})
    (tied,) = scan(folder)["scan"]["tied"]
    assert tied["same"] is True
    rewrite(folder, lambda all: all | {"lm_head.weight": all["lm_head.weight"] * torch.tensor(2.0)})
    (tied,) = scan(folder)["scan"]["tied"]
    assert tied["same"] is False


def rewrite(folder: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
