"""Calibration spread over two processes of a launcher: the bytes of one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conversions import contents
from several_processes import in_one, in_two

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
FEW = ("--calibration-tokens", "2k")


@pytest.mark.parametrize(
    "options",
    [
        ("--latent", "1/4", "--quality", "good", *FEW),
        ("--kv-heads", "2", "--quality", "best", "--reconstruct", "3", "--temperature", *FEW),
    ],
)
def test_two_processes_write_what_one_writes(
    make_model: MakeModel, prose: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    words = (*options, "--calibration", prose)
    alone = in_one("convert", make_model(), tmp_path / "one", *words)
    assert alone.returncode == 0, alone.stderr
    done = in_two("convert", make_model(), tmp_path / "two", *words)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    clean = "converted and audited clean"
    assert done.stdout.count(clean) == alone.stdout.count(clean) > 0
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}
