"""Models that `headcount convert --latent` wrote, with a modelling file of its own:
`headcount_latent_llama` is a Llama whose cache holds one latent a token in each layer."""

from collections.abc import Iterator
from dataclasses import fields, replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, CrossAttention, LowRankAttention
from headcount.model.spec import Layer

from .architecture import Architecture
from .attention.layers import build_layers
from .attention.shape import AttentionShape
from .config_view import ConfigView
from .tensors.names import TensorNames

# The key of the latents' sizes, one for each layer; 0 for one that has no attention.
RANKS = "latent_ranks"
# The module that makes the latent, beside the projections that read it.
DOWN_MODULE = "latent_proj"


def low_rank(architecture: Architecture, model_type: str) -> Architecture:
    """The architecture of `headcount_latent_<model_type>`, from that of the type itself."""
    shape, keys = architecture.attention, architecture.config

    def build(_: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        return _with_latents(build_layers(shape, view), view)

    return replace(
        architecture,
        config=replace(keys, read_as=keys.read_as or model_type),
        tensors=latent_names(architecture.names),
        attention=replace(shape, build=build),
    )


def latent_names(names: TensorNames) -> TensorNames:
    """How the tensors are called: what a fused projection holds stands in modules below it, and
    what makes the latent beside the projections of k and v."""
    made = dict(_modules(names))
    upright = frozenset(path for path in made if path not in names.modules)
    return replace(names, modules=made, fused="parts", parts_if=None, upright=upright)


def _modules(names: TensorNames) -> Iterator[tuple[str, str]]:
    for path, part in names.modules.items():
        if "k" in part and part in ("k", "kv", "qkv"):
            yield down_path(path), "k_a"
        if part in ("kv", "qkv"):
            yield from ((f"{path}.{letter}", letter) for letter in part)
        else:
            yield path, part


def down_path(path: str) -> str:
    """The path of the module that makes the latent for the projection at `path`."""
    return ".".join([*path.split(".")[:-1], DOWN_MODULE])


def _with_latents(layers: tuple[Layer, ...], view: ConfigView) -> tuple[Layer, ...]:
    ranks = view.integers(RANKS)
    if ranks is None or len(ranks) != len(layers):
        given = "is missing" if ranks is None else f"lists {len(ranks)} layers"
        raise InvalidConfigError(f"{view.where}: {RANKS} {given}; the model has {len(layers)}")
    return tuple(_with_latent(*pair, view) for pair in zip(layers, ranks, strict=True))


def _with_latent(layer: Layer, rank: int, view: ConfigView) -> Layer:
    kept = [m for m in layer.mixers if isinstance(m, Attention) and m.keeps_key_value]
    if len(kept) > 1 or any(isinstance(mixer, CrossAttention) for mixer in kept):
        raise InvalidConfigError(f"{view.where}: layer {layer.index} has several attentions")
    if bool(kept) != bool(rank):
        holds = "keeps keys and values" if kept else "keeps none"
        raise InvalidConfigError(
            f"{view.where}: {RANKS} gives layer {layer.index} the rank {rank}, which {holds}"
        )
    mixers = (with_latent(m, rank) if m in kept else m for m in layer.mixers)
    return replace(layer, mixers=tuple(mixers))


def with_latent(mixer: Attention, rank: int) -> LowRankAttention:
    """The same attention, of which a latent of `rank` elements is kept."""
    own = {field.name: getattr(mixer, field.name) for field in fields(mixer)}
    return LowRankAttention(**own, latent_rank=rank)
