"""Settings of a quantisation that lie beside config.json."""

import json
from pathlib import Path

import pytest

from headcount.sources.path import read_path

CONFIG = {"model_type": "llama", "hidden_size": 64}
INNER = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}


def folder_with(path: Path, **files: object) -> Path:
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value), "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "written", "settings"),
    [
        (
            "hf_quant_config",
            {"producer": {"name": "modelopt"}, "quantization": INNER},
            {"quant_method": "modelopt", **INNER},
        ),
        ("quantize_config", {"bits": 4}, {"quant_method": "gptq", "bits": 4}),
        ("quant_config", {"w_bit": 4}, {"quant_method": "awq", "w_bit": 4}),
    ],
)
def test_they_are_read_as_the_configs(
    tmp_path: Path, name: str, written: object, settings: object
) -> None:
    folder_with(tmp_path, config=CONFIG, **{name: written})
    for path in (tmp_path, tmp_path / "config.json"):
        assert read_path(path).config == {**CONFIG, "quantization_config": settings}


@pytest.mark.parametrize(
    "own",
    [
        {"quantization_config": {"quant_method": "fp8"}},
        {"text_config": {"quantization_config": {"quant_method": "fp8"}}},
        {"quantization": {"bits": 4}},
    ],
)
def test_the_configs_own_come_first(tmp_path: Path, own: dict[str, object]) -> None:
    folder_with(tmp_path, config={**CONFIG, **own}, hf_quant_config={"quantization": INNER})
    assert read_path(tmp_path).config == {**CONFIG, **own}
