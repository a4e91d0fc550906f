"""A model whose heads all stay as they are: it is only written in another format."""

from ..plan.heads import HeadsByLayer, heads_of
from ..plan.source import ConversionSource
from ..plan.steps import copy
from .home import Draft, Home


def unchanged(source: ConversionSource) -> Home:
    """The model as it is, every tensor a copy."""
    mixers = source.attention_map.mixers
    heads = HeadsByLayer(
        layers={
            where: heads_of(mixer, mixer.num_key_value_heads) for where, mixer in mixers.items()
        },
        readers=source.attention_map.readers,
    )
    return Home(
        name="unchanged",
        reason="no heads are to change",
        heads=heads,
        draft=lambda: Draft(
            steps={
                header.path.name: tuple(copy(tensor) for tensor in header.tensors)
                for header in source.checkpoint.files
            },
            layers=(),
        ),
        config=lambda: (dict(source.config), ()),
    )
