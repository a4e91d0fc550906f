"""Layers that run on another device than the CPU: nothing is left behind, and what comes of it is
what the CPU makes. The device is pretended: it computes as the CPU does, and refuses what a GPU
refuses."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

import pretended_gpu
from encoder_decoders import ENCODER_DECODERS
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
MakeModel = Callable[..., Path]
ON_GPU = ("--calibration-device", "cuda")
FEW = ("--calibration-tokens", "1k")
GOOD = ("--quality", "good", *FEW)
BEST = ("--quality", "best", "--reconstruct", "4", *FEW)
# Model, options, and whether it reads the text.
CASES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "heads of random tokens": ("llama", ("--kv-heads", "2", "--quality", "fast"), False),
    "heads, all rungs": ("llama", ("--kv-heads", "2", "--temperature", *BEST), True),
    "fused heads": ("gpt_neox", ("--kv-heads", "2", *GOOD), True),
    "heads with biases": ("gpt2", ("--kv-heads", "1", *GOOD), True),
    "latents of random tokens": ("gpt2", ("--latent", "1/4"), False),
    "latents, all rungs": ("llama", ("--latent", "1/4", *BEST), True),
    "mla, all rungs": ("llama", ("--latent", "1/2", "--home", "mla", *BEST), True),
    "ranks by a search": ("llama", ("--latent", "--budget", "1/4", *FEW), True),
    "heads by a search": ("llama", ("--budget", "1/2", "--quality", "fast", *FEW), True),
    "pruned in rounds": ("llama", ("--prune-heads", "2", "--across-layers", *GOOD), True),
    "own words": ("t5", ("--kv-heads", "2", *GOOD, "--calibration-tokens", "200"), True),
    "pairs": ("t5", ("--kv-heads", "2", *GOOD, "--calibration-tokens", "300"), True),
}
STOPPED = "heads, all rungs", "latents, all rungs", "mla, all rungs"
# Far below what any fit changes; the kernels of attention of the two are not the same.
SAME = 1e-3


@pytest.fixture(scope="module")
def sources(
    make_model: MakeModel,
    tmp_path_factory: pytest.TempPathFactory,
    byte_tokenizer: PreTrainedTokenizerBase,
) -> Mapping[str, Path]:
    found = {name: make_model(name) for name in ("llama", "gpt_neox", "gpt2")}
    torch.manual_seed(0)
    found["t5"] = tmp_path_factory.mktemp("t5")
    ENCODER_DECODERS["t5"](len(byte_tokenizer)).save_pretrained(found["t5"])
    byte_tokenizer.save_pretrained(found["t5"])
    return found


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn, path = random.Random(0), tmp_path_factory.mktemp("pairs") / "pairs.tsv"

    def text() -> str:
        return " ".join(drawn.choice(("a", "cat", "sat", "on", "mats")) for _ in range(6))

    path.write_text("".join(f"{text()}\t{text()}\n" for _ in range(40)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def commands(
    sources: Mapping[str, Path], prose: Path, pairs: Path
) -> Callable[[str, Path], list[str]]:
    """The words of a case, for a target."""

    def words(name: str, target: Path) -> list[str]:
        model, options, reads = CASES[name]
        text = ("--calibration", str(pairs if name == "pairs" else prose)) if reads else ()
        return ["convert", str(sources[model]), str(target), *options, *text]

    return words


@pytest.fixture(scope="module")
def on_device(
    commands: Callable[[str, Path], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Counter[str]]]:
    """A folder with what the device has made of every case, those of `STOPPED` also in two runs,
    and how many operations of which kind it computed for each run."""
    folder = tmp_path_factory.mktemp("device")
    first = [(name, folder / name, None) for name in CASES]
    stopped = [(name, folder / f"{name}, stopped", 1) for name in STOPPED]
    again = [(name, target, None) for name, target, _ in stopped]
    return folder, {**_ran(commands, [*first, *stopped]), **_ran(commands, again)}


def _ran(
    commands: Callable[[str, Path], list[str]], runs: Sequence[tuple[str, Path, int | None]]
) -> dict[str, Counter[str]]:
    """Runs cases on the device, with targets and after how many layers they stop, in a process."""
    given = [
        {"words": [*commands(name, target), *ON_GPU], "layers": layers}
        for name, target, layers in runs
    ]
    ran = subprocess.run(
        [sys.executable, pretended_gpu.__file__],
        input=json.dumps(given),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    counts = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    names = [target.name for _, target, _ in runs]
    return dict(zip(names, map(Counter, counts), strict=True))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: value for file in files for name, value in load_file(file).items()}


@pytest.mark.parametrize("name", CASES)
def test_layers_on_a_device_become_what_they_become_on_the_cpu(
    name: str,
    commands: Callable[[str, Path], list[str]],
    on_device: tuple[Path, dict[str, Counter[str]]],
    tmp_path: Path,
) -> None:
    done = CliRunner().invoke(main, commands(name, tmp_path / "out"))
    assert done.exit_code == 0, done.output
    folder, counts = on_device
    made, wanted = tensors(folder / name), tensors(tmp_path / "out")
    assert made.keys() == wanted.keys()
    source = tensors(Path(commands(name, tmp_path)[1]))
    for key, value in wanted.items():
        assert (made[key] - value).norm() <= SAME * value.norm(), key
    assert any(n not in source or v.shape != source[n].shape for n, v in wanted.items())
    assert counts[name]["mm"] + counts[name]["bmm"] > 50
    record = json.loads((folder / name / "conversion.json").read_text())
    assert record["request"]["calibration_device"] == "cuda"


@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_run_goes_on_with_its_layers_on_the_device(
    name: str, on_device: tuple[Path, dict[str, Counter[str]]]
) -> None:
    folder, counts = on_device
    whole, again = tensors(folder / name), tensors(folder / f"{name}, stopped")
    assert all(torch.equal(value, again[key]) for key, value in whole.items())
    solved = [counts[n]["linalg_cholesky_ex"] for n in (name, f"{name}, stopped")]
    assert 0 < solved[1] < solved[0]  # the layer that was there is not fitted again


def test_another_device_is_another_job(
    commands: Callable[[str, Path], list[str]], on_device: tuple[Path, dict[str, Counter[str]]]
) -> None:
    """Its sums are not those of the CPU to the last bit."""
    name = "heads of random tokens"
    done = CliRunner().invoke(main, commands(name, on_device[0] / name))
    told = "holds another conversion (--calibration-device: cuda then, cpu now): name another"
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_a_device_without_room_says_what_to_try(
    commands: Callable[[str, Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("headcount.convert.calibrate.layer_fit.LayerFit._sums_of", full)
    done = CliRunner().invoke(main, commands("heads, all rungs", tmp_path / "out"))
    assert done.exit_code == 2, done.output
    assert "out of memory: try a smaller --calibration-row-tokens" in done.stderr


def test_processes_of_a_launcher_have_their_own(
    commands: Callable[[str, Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headcount.running.placement.resolve_device", lambda *given: None)
    monkeypatch.setattr("headcount.convert.plan.planner.is_launched", lambda: True)
    words = [
        *commands("heads of random tokens", tmp_path / "out"),
        "--calibration-device",
        "cuda:1",
    ]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "gives each process its GPU" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kv-heads", "2", *ON_GPU), "--calibration-device cuda: no layer is run"),
        (("--kv-heads", "2", "--quality", "fast", *ON_GPU), "torch finds no such GPU; use"),
        (("--latent", "1/4", "--calibration-device", "tpu"), "'tpu' is no device: use cpu or cuda"),
        (("--latent", "1/4", "--calibration-device", "auto"), "'auto' is no device"),
        (("--latent", "1/4", "--calibration-device", "mps"), "run on cpu or cuda"),
    ],
)
def test_a_device_that_is_none_is_refused(
    options: tuple[str, ...],
    words: str,
    sources: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    done = CliRunner().invoke(
        main, ["convert", str(sources["llama"]), str(tmp_path / "out"), *options]
    )
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert "--torch-device" not in done.stderr
    assert not any(tmp_path.iterdir())
