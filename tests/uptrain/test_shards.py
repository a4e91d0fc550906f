"""Weights, gradients and optimizer that processes share (FSDP2): what is learned is what one
learns, to within the order in which numbers are added."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from causal_models import build_model, make_tokenizer
from conversions import contents
from headcount.cli import main
from several_processes import broken, in_two

from .conftest import MakePair, Pair, Uptrain, document
from .test_processes import LAUNCH, arguments, launched, same

pytestmark = pytest.mark.needs_convert
FSDP2 = ("--use_fsdp", "--fsdp_version", "2")
ACCELERATE = tuple(w for word in LAUNCH for w in (FSDP2 if word == "--multi_gpu" else (word,)))
STOPPING = """

from headcount.uptrain.learner import Learner

step = Learner.step


def stopping(self, number):
    if number == 9 and os.environ["RANK"] == "{rank}":
        {end}
    return step(self, number)


Learner.step = stopping
"""
COUNTING = """

from headcount.uptrain import sharding, training

save = training._Loop._checkpoint


def counted(self, progress):
    save(self, progress)
    learner = self.learner
    kept = [*learner.student.parameters(), *self._teacher_parameters()]
    kept += [m for s in learner._optimizer.state.values() for m in s.values() if m.dim()]
    own = sum(sharding.local(tensor).numel() for tensor in kept)
    path = os.path.join(os.environ["COUNTED"], f"{os.environ['RANK']}-{progress.step}")
    open(path, "w").write(f"{own} {sum(tensor.numel() for tensor in kept)}")


training._Loop._checkpoint = counted
training._Loop._teacher_parameters = lambda self: self.learner._teacher.parameters()
"""


def shared(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The JSON of a run of two processes that did share."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["processes"], found["sharded"]) == (2, True)
    return found


def test_accelerate_shares_weights_with_fsdp2(
    uptrain: Uptrain, pair: Pair, prose: Path, tmp_path: Path
) -> None:
    """Embeddings are tied. accelerate itself leaves FSDP out where there is no GPU."""
    done = launched(ACCELERATE, *arguments(pair, prose, tmp_path / "two", "--format", "json"))
    two, one = shared(done), document(uptrain(pair))
    assert not one["sharded"]
    same(one, two)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "two"}
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("out", "two")]
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mixtral", "latent"])
def test_every_kind_of_model_can_be_shared(
    make_pair: MakePair, uptrain: Uptrain, prose: Path, tmp_path: Path, name: str
) -> None:
    """GPT-2 has a modelling file of ours, as has the model that keeps latents."""
    terms = ("--hidden-loss", "0.3", "--cross-entropy", "0.2", "--gradient-accumulation", "2")
    heads = {} if name == "gpt2" else {"num_key_value_heads": 4}
    pair = latent_pair(tmp_path / "pair") if name == "latent" else make_pair(name, **heads)
    words = arguments(pair, prose, tmp_path / "two", *terms, "--shard", "--format", "json")
    same(document(uptrain(pair, *terms)), shared(in_two(*words)))


def latent_pair(folder: Path) -> Pair:
    """A Llama, and the same with a latent of an eighth of what it kept."""
    build_model("llama", num_key_value_heads=4).save_pretrained(folder / "original")
    make_tokenizer(bos=False).save_pretrained(folder / "original")
    words = ["convert", str(folder / "original"), str(folder / "converted"), "--latent", "1/8"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr
    return Pair(folder / "original", folder / "converted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "end", "said"),
    [
        (1, "os._exit(9)", "a process of this launch is gone"),
        (1, "self._gradients = lambda number: 1 / 0", "process 1: ZeroDivisionError"),
        (0, "raise KeyboardInterrupt", "step 8 of 12; the same command goes on from there"),
    ],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
    pair: Pair, prose: Path, tmp_path: Path, rank: int, end: str, said: str
) -> None:
    """Alone, too, to the same losses: a checkpoint does not say how many processes wrote it."""
    options = ("--checkpoint-every", "4", "--format", "json")
    whole = shared(in_two(*arguments(pair, prose, tmp_path / "whole", *options, "--shard")))
    words = arguments(pair, prose, tmp_path / "out", *options)
    script = broken(tmp_path / "stopping.py", STOPPING.format(rank=rank, end=end))
    stopped = in_two(*words, "--shard", script=script)
    assert stopped.returncode != 0 and said in stopped.stderr, stopped.stderr
    kept = tmp_path / ".out.uptraining"
    assert [path.name for path in kept.glob("checkpoint-*")] == ["checkpoint-000008"]
    copied = arguments(pair, prose, tmp_path / "alone", *options)
    shutil.copytree(kept, tmp_path / ".alone.uptraining")
    again = in_two(*words, "--shard")
    assert "from step 8" in again.stderr
    assert shared(again)["history"] == whole["history"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    alone = CliRunner().invoke(main, copied)
    assert "from step 8" in alone.stderr
    same(whole, document(alone))


@pytest.mark.slow
def test_a_process_holds_its_share_alone(
    pair: Pair, prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTED", str(tmp_path))
    script = broken(tmp_path / "counting.py", COUNTING)
    words = arguments(pair, prose, tmp_path / "out", "--shard", "--format", "json")
    shared(in_two(*words, script=script))
    counted = {path.name: path.read_text().split() for path in tmp_path.glob("?-*")}
    assert counted.keys() == {f"{rank}-{step}" for rank in range(2) for step in (3, 12)}
    for step in (3, 12):
        own, total = zip(*(map(int, counted[f"{rank}-{step}"]) for rank in range(2)), strict=True)
        assert sum(own) == total[0] == total[1]
        assert max(own) < 0.52 * total[0]


@pytest.mark.slow
def test_shares_are_computed_in_bfloat16_too(pair: Pair, prose: Path, tmp_path: Path) -> None:
    options = ("--dtype", "bfloat16", "--steps", "40", "--shard", "--format", "json")
    found = shared(in_two(*arguments(pair, prose, tmp_path / "out", *options)))
    assert found["after"]["kl_divergence"] < 0.95 * found["before"]["kl_divergence"]


def test_a_layer_that_shares_weights_is_left_to_the_whole() -> None:
    from headcount.uptrain.sharding import layer_units

    model = build_model("llama", tie_word_embeddings=True)
    layers = list(model.model.layers)
    assert layer_units(model) == layers[::-1]
    layers[0].mlp = layers[1].mlp
    assert layer_units(model) == layers[:1:-1]


def test_a_parameter_of_one_number_is_refused() -> None:
    import torch

    from headcount.model.errors import UnsupportedModelError
    from headcount.uptrain.sharding import Sharding

    model = build_model("llama")
    model.model.gain = torch.nn.Parameter(torch.ones(()))
    sharding = Sharding(mesh=None, dtype=torch.float32, reshard=True)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match=r"'model\.gain' is a single number"):
        sharding.shard(model)


ROWS = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from headcount.uptrain.sharding import local, own_rows

for rank, count in ((0, 3), (1, 3), (2, 3), (4, 5)):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    mesh = init_device_mesh("cpu", (count,))
    for rows in range(1, 12):
        whole = torch.arange(3 * rows).view(rows, 3)
        mine = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
        assert torch.equal(whole[own_rows(mine)], local(mine)), (rank, rows, own_rows(mine))
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_rows_of_a_process_are_those_that_torch_gives_it() -> None:
    """With torch's backend that talks to nobody, so that any process can be played."""
    done = subprocess.run([sys.executable, "-c", ROWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
