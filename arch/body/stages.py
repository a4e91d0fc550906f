"""Image encoders of several stages: each merges patches of the one before, and is twice as wide."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidConfigError

from ..built_classes import label_count
from ..config_view import ConfigView
from .body import Layers, find_head, no_head
from .feed_forward import matrices
from .image_embeddings import area, patch_count, sides

_MERGED = 4  # patches that become one, of twice the width


def stage_depths(view: ConfigView) -> tuple[int, ...]:
    """The layers of each stage. Raises InvalidConfigError for none, and for too many."""
    depths = view.integers("depths", minimum=1)
    if not depths:
        raise InvalidConfigError(f"{view.where}: depths must be a list with the layers of a stage")
    if sum(depths) > limits.LAYERS.most:
        raise InvalidConfigError(limits.LAYERS.refusal(f"{view.where}: depths", sum(depths)))
    return depths


def stage_widths(view: ConfigView) -> tuple[int, ...]:
    first = view.integer("embed_dim")
    return tuple(first * 2**stage for stage in range(len(stage_depths(view))))


def merged_patches(view: ConfigView) -> int:
    """What the last stage gives of an image: sides are padded to whole patches, and halved between
    stages, rounded up."""
    count = 1
    for size, patch in zip(sides(view, "image_size"), sides(view, "patch_size"), strict=True):
        side = -(-size // patch)
        for _ in stage_depths(view)[1:]:
            side = -(-side // 2)
        count *= side
    return count


Head = Callable[[Any, ConfigView, bool], int]


def image_classifier(body: Any, view: ConfigView, tied: bool) -> int:
    """A linear layer to the labels."""
    return (stage_widths(view)[-1] + 1) * label_count(view)


def norm_of_each(body: Any, view: ConfigView, tied: bool) -> int:
    """A norm of what each stage gives (MaskFormer's backbone)."""
    return 2 * sum(stage_widths(view))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """What Swin and its relatives hold outside attention, in biased MLPs of `mlp_ratio` and norms
    with weight and bias. `merged_norm` is how many stage widths the norm beside a merging has,
    `class_row` how many rows the absolute positions have beside those of patches, and `final_norm`
    whether a norm stands behind the last stage."""

    merged_norm: int = _MERGED
    class_row: int = 1
    final_norm: bool = True
    classes: Mapping[str, Head | None] = field(
        default_factory=lambda: {"Model": no_head, "ForImageClassification": image_classifier}
    )

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        head: Head = find_head(self.classes, view, "Model")
        return self.trunk(view, layers) + head(self, view, tied)

    def trunk(self, view: ConfigView, layers: Layers) -> int:
        """All but attention and the head."""
        widths, ratio = stage_widths(view), view.positive("mlp_ratio") or 0
        of_layers = sum(
            depth * (matrices(width, int(ratio * width), gated=False, bias=True) + 4 * width)
            for width, depth in zip(widths, stage_depths(view), strict=True)
        )
        merging = sum(width * (2 * _MERGED * width + 2 * self.merged_norm) for width in widths[:-1])
        final = 2 * widths[-1] * self.final_norm
        return self._embeddings(view) + of_layers + merging + final

    def width(self, view: ConfigView) -> int:
        """Of what the last stage gives."""
        return stage_widths(view)[-1]

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0

    def _embeddings(self, view: ConfigView) -> int:
        """A convolution with a bias, a norm, and positions on demand."""
        rows = view.integer("num_channels") * area(view, "patch_size") + 3
        if view.flag("use_absolute_embeddings"):
            rows += patch_count(view) + self.class_row
        return rows * view.integer("embed_dim")
