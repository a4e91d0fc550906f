"""MiniCPM's models of images: around hybrid language models, and those whose code is their own."""

from headcount.model.errors import UnsupportedModelError
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture
from ..attention.layers import build_layers
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..config_view import ConfigView
from ..decoders.qwen import QWEN2, QWEN3

# The language model of each `version`: MiniCPM-V 2.5 is a Llama, 2.6 a Qwen2, 4.0 a MiniCPM4, 4.5 a
# Qwen3; files of before 2.5 do not state one and are MiniCPMs.
_BY_VERSION = {
    **dict.fromkeys(("None", "2", "2.0", "2.5", "4", "4.0"), LLAMA_ATTENTION),
    **{"2.6": QWEN2.attention, "4.5": QWEN3.attention},
}


def by_version(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The layers of the language model, whose keys stand at the top of the file.

    Raises UnsupportedModelError for a version that is not known."""
    version = str(view.get("version"))
    if version not in _BY_VERSION:
        raise UnsupportedModelError(
            f"{view.where}: MiniCPM-V of version {version[:20]} is not known: which language model"
            " it has is told by its version alone"
        )
    return build_layers(_BY_VERSION[version], view)


ARCHITECTURES = (
    MULTIMODAL.relative("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "jev"),
    Architecture(
        types=("minicpmv", "minicpmo"),
        attention=AttentionShape(build=by_version),
        uncounted="its image tower and its resampler are not counted",
    ),
)
