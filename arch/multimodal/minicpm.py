"""MiniCPM's models of images: around hybrid language models, and those whose code is their own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headcount.model.errors import UnsupportedModelError
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layers import build_layers
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Head, Layers, find_head, lm_head
from ..body.image_towers import SIGLIP_TOWER, smolvlm_embeddings
from ..body.projectors import linear
from ..body.shared import DECODER, IMAGE
from ..body.towers import Tower
from ..body.uncounted import UncountedError
from ..config_view import ConfigView
from ..decoders.qwen import QWEN2, QWEN3

# The language model of each `version`: MiniCPM-V 2.5 is a Llama, 2.6 a Qwen2, 4.0 a MiniCPM4, 4.5 a
# Qwen3; files of before 2.5 do not state one and are MiniCPMs.
_BY_VERSION = {
    **dict.fromkeys(("None", "2", "2.0", "2.5", "4", "4.0"), LLAMA_ATTENTION),
    **{"2.6": QWEN2.attention, "4.5": QWEN3.attention},
}
# Of these the image tower is transformers' SigLIP; 2.0 has one of the library timm.
_WITH_SIGLIP = ("2.5", "2.6", "4", "4.0", "4.5")
# What the code means by a file without `vision_config` (configuration_minicpm.py).
_VISION = {
    **{"hidden_size": 1152, "image_size": 980, "intermediate_size": 4304},
    **{"num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14},
}
_CLASSES: Mapping[str, Head | None] = dict.fromkeys(("MiniCPMV", "MiniCPMO"), lm_head)
_TOWER = replace(SIGLIP_TOWER, body=replace(IMAGE, more=smolvlm_embeddings))


def version_of(view: ConfigView) -> str:
    """Without one, 2.0 is told from 2.5 by its sizes, as vLLM does (minicpmv.py)."""
    version = str(view.get("version"))
    if version == "None" and view.get("query_num") is not None:
        first = (view.get("hidden_size"), view.get("query_num")) == (2304, 64)
        return "2.0" if first else "2.5"
    return version


def by_version(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The layers of the language model, whose keys stand at the top of the file.

    Raises UnsupportedModelError for a version that is not known."""
    version = version_of(view)
    if version not in _BY_VERSION:
        raise UnsupportedModelError(
            f"{view.where}: MiniCPM-V of version {version[:20]} is not known: which language model"
            " it has is told by its version alone"
        )
    return build_layers(_BY_VERSION[version], view)


def resampler(tower: ConfigView, queries: int, out: int) -> int:
    """One attention of `queries` learned queries over the patches, three norms, and a matrix after
    them; a matrix in front brings the patches to the width `out` (resampler.py of MiniCPM-V)."""
    inputs = tower.integer("hidden_size")
    widened = 0 if inputs == out else inputs * out
    attention = 4 * linear(out, out)
    return queries * out + widened + attention + 3 * 2 * out + out * out


@dataclass(frozen=True, kw_only=True, slots=True)
class MiniCpmV:
    """The language model with its head, the image tower and the resampler."""

    language: Body
    tower: Tower
    classes: Mapping[str, Head | None] = field(default_factory=lambda: _CLASSES)

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        """All but the language model's attention. Raises UncountedError for a tower of timm, and
        where the file has sound or speech, too."""
        if version_of(view) not in _WITH_SIGLIP:
            raise UncountedError("its image tower is one of the library timm, not counted here")
        if any(view.flag(key) for key in ("init_audio", "init_tts")):
            raise UncountedError("its networks of sound and speech are not counted")
        inner = self.tower.view(view, "vision_config")
        if inner is None:
            raise UncountedError("its vision_config is null: the image tower is not counted")
        if view.flag("drop_vision_last_layer", absent=True):
            inner = inner.overridden({"num_hidden_layers": inner.integer("num_hidden_layers") - 1})
        head = find_head(self.classes, view, next(iter(self.classes)))
        language = self.language.trunk(view, layers) + head(self.language, view, tied)
        joined = resampler(inner, view.integer("query_num"), view.integer("hidden_size"))
        return language + self.tower.parameters(inner) + joined

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0


MINICPM_V = Architecture(
    types=("minicpmv",),
    config=ConfigKeys(defaults={"vision_config": _VISION}),
    attention=AttentionShape(build=by_version),
    body=MiniCpmV(language=DECODER, tower=_TOWER),
)
ARCHITECTURES = (
    MULTIMODAL.relative("minicpm_ocr", "minicpmv4_6", "minicpmv4_7", "jev"),
    MINICPM_V,
    MINICPM_V.relative(
        "minicpmo",
        config={"defaults": {"vision_config": _VISION, "init_audio": True, "init_tts": True}},
    ),
)
