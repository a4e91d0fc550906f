"""Which devices of a long list a screen tells of: the best, and the fastest of each size."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.devices import find_device


def told(*asked: str, header: str = "Device") -> list[str]:
    """The devices of the rows that a terminal of 80 columns shows, in their order."""
    done = CliRunner().invoke(main, ["plan", *asked], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(header))
    rule = next(at for at, line in enumerate(lines[begin:], begin) if line.startswith("---"))
    end = next(at for at, line in enumerate(lines) if at > rule and line[:1] in ("", "…"))
    return [line.split()[0] for line in lines[rule + 1 : end]]


@pytest.mark.parametrize("engine", [(), ("--engine", "vllm")])
def test_of_each_amount_of_memory_the_fastest_is_told_of(engine: tuple[str, ...]) -> None:
    """l4, a10, a10g, a30, rtx-3090 and rtx-4090 all have 24 GB: six rows would say one thing."""
    best, *others = told("llama-3-8b", *engine)
    assert best == "l4" and others[0] == "rtx-4090" and "rtx-5090" in others
    assert not {"a10", "a10g", "a30"} & {*others}
    devices = [find_device(name) for name in (best, *others)]
    assert len({(device.memory, device.bandwidth) for device in devices}) == len(devices)


def test_of_the_best_s_own_amount_only_what_is_notably_faster_is_told_of() -> None:
    """The A100 SXM4 has 2,039 GB/s, the A100 PCIe 1,935; of 141 GB the H200 computes more than the
    H20."""
    assert told("llama-3-70b", "--engine", "vllm")[:2] == ["a100-80gb-pcie", "b200"]
    users = ("--target-users", "32", "--context", "8k")
    shown = told("llama-3-70b", "--engine", "vllm", *users)
    assert "h200" in shown and "h20-141gb" not in shown


def test_by_price_the_cheapest_come_first(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("l4,0.7\na10,0.6\na30,0.8\nrtx-3090,0.3\nrtx-4090,0.5\nh100,2\n")
    asked = ("llama-3-8b", "--engine", "vllm", "--prices", str(prices))
    assert told(*asked)[:3] == ["rtx-3090", "rtx-4090", "a10"]


def test_rows_of_several_models_stand_together() -> None:
    models = told("llama-3-8b", "mistral-7b", "--engine", "vllm", header="Model")
    first, last = models[0], models[-1]
    assert first != last and models == sorted(models, key=[first, last].index)
    assert abs(models.count(first) - models.count(last)) <= 1


def test_how_to_ask_for_a_device_is_said_where_none_was_named() -> None:
    many = CliRunner().invoke(main, ["plan", "gpt2"], env={"COLUMNS": "80"}).stdout
    assert "more rows (--details, --device h100)" in " ".join(many.split())
    models = ["plan", "gpt2", "llama-3-8b", "mistral-7b", "qwen3-8b", "gemma-3-4b"]
    devices = ["--device", "h100,l4,a10,a30", "--engine", "vllm"]
    named = CliRunner().invoke(main, [*models, *devices], env={"COLUMNS": "80"}).stdout
    assert "(--details)" in named and "--device" not in named


def test_what_is_started_several_times_says_so() -> None:
    asked = ["plan", "qwen3-32b", "--target-users", "64", "--context", "32k", "--device", "h200"]
    text = " ".join(CliRunner().invoke(main, asked, env={"COLUMNS": "80"}).stdout.split())
    assert "(tp 2, 3 replicas)" in text and "Start each of 3 with vllm serve" in text
    one = CliRunner().invoke(main, ["plan", "gpt2", "--engine", "vllm", "--device", "l4"]).stdout
    assert "Start with" in one and "Start each" not in one
