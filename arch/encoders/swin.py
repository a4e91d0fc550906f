"""Swin: an encoder of images in stages, each of fewer and wider patches than the one before."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Layer

from ..architecture import Architecture, Verification
from ..attention.layers import attention, uncached_layers
from ..attention.shape import AttentionShape
from ..body.body import no_head
from ..body.encoded_images import EncodedImage
from ..body.stages import Stages, merged_patches, norm_of_each, stage_depths, stage_widths
from ..config_view import ConfigView
from ..tensors.names import UNKNOWN_NAMES


def swin_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Swin Transformer (arXiv 2103.14030): attention in windows, with heads for each stage. The
    layers of all stages are numbered on."""
    depths, widths = stage_depths(view), stage_widths(view)
    heads = view.integers("num_heads", minimum=1) or ()
    if len(heads) < len(depths):
        raise InvalidConfigError(f"{view.where}: num_heads must be a list with one for each stage")
    mixers = [
        attention(shape, view.overridden({"hidden_size": width, "num_attention_heads": count}))
        for depth, width, count in zip(depths, widths, heads, strict=False)
        for _ in range(depth)
    ]
    view.note("head_dim", mixers[-1].head_dim, "derived: width / num_heads of each stage")
    layers = (uncached_layers(mixer, 1) for mixer in mixers)
    return tuple(replace(layer, index=index) for index, (layer,) in enumerate(layers))


def relative_positions(view: ConfigView, heads: int, head_dim: int) -> int:
    """A number per head for each distance in a window."""
    return (2 * view.integer("window_size") - 1) ** 2 * heads


def continuous_positions(view: ConfigView, heads: int, head_dim: int) -> int:
    """Swin V2 (arXiv 2111.09883): an MLP of 512 makes such numbers of two coordinates, and each
    head has a temperature."""
    return 3 * 512 + 512 * heads + heads


SWIN = Architecture(
    types=("swin",),
    attention=AttentionShape(
        build=swin_layers,
        qkv_bias="qkv_bias",
        o_bias=True,
        fixed_head_dim=True,
        kv_heads_from="query heads",
        other=relative_positions,
        cached=False,
    ),
    body=Stages(class_row=0),
    tensors=UNKNOWN_NAMES,
    rotary="none",
    verification=Verification(scattered=True),
    image=EncodedImage(
        tokens=merged_patches, formula="image_size / patch_size, halved between stages"
    ),
)

ARCHITECTURES = (
    SWIN,
    SWIN.relative(
        "swinv2",
        attention={"k_bias": False, "other": continuous_positions},
        body=Stages(merged_norm=2),
        verification=SWIN.verification,
        image=SWIN.image,
    ),
    SWIN.relative(
        "maskformer-swin",
        body=Stages(classes={"Model": no_head, "Backbone": norm_of_each}),
        verification=SWIN.verification,
        image=SWIN.image,
    ),
    SWIN.relative(
        "donut-swin",
        body=Stages(final_norm=False),
        verification=SWIN.verification,
        image=SWIN.image,
    ),
)
