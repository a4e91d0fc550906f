"""What rules see: the config's spec, the headers' census, and what the shapes say. No dicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..census import Census, Placed
from ..family.row import Family
from ..mixers import Mixer
from ..observe import Observed
from ..source.checkpoint import Checkpoint
from ..spec import MixerKey, ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """`spec` is as the config says, before the weights corrected it. `has_head`: the
    architecture computes logits, so that a head must be stored or tied."""

    spec: ModelSpec
    family: Family
    where: str
    checkpoint: Checkpoint
    census: Census
    observed: Mapping[MixerKey, Observed]
    has_head: bool

    def mixers(self) -> Iterator[tuple[MixerKey, Mixer, tuple[Placed, ...]]]:
        """Each mixer of the config with its tensors."""
        for layer in self.spec.layers:
            for key, mixer in layer.keyed_mixers():
                yield key, mixer, self.census.layers.get(key, ())
