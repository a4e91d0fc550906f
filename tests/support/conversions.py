"""Converting in a test, and looking at what came out."""

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.request import ConversionRequest


def run(source: Path, target: Path, kv: int = 2, **options: Any) -> ConversionReport:
    """Converts without a progress bar."""
    request = ConversionRequest(source=source, target=target, num_key_value_heads=kv, **options)
    return convert(request, progress=False)


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file in `folder`."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def without_blanks(path: Path) -> tuple[bytes, bytes]:
    """Header and tensors of a safetensors file. The blanks between them differ: they say nothing,
    and large files have as many as it takes to share blocks with their source."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    return data[8:start].rstrip(b" "), data[start:]


def load_whole(folder: Path, auto_class: Any = AutoModelForCausalLM, **options: Any) -> Any:
    """The model, after asserting that no weight was missing, left over or of another shape."""
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **options)
    assert not any(info.values()), info
    return model.eval()
