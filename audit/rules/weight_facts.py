"""What rules on weights see: the config's spec, the headers' census, and what the shapes say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headcount.arch.architecture import Architecture, Stored
from headcount.arch.parameters import Expected
from headcount.model.mixers import Mixer
from headcount.model.spec import MixerKey, ModelSpec
from headcount.sources.checkpoint import Checkpoint

from ..census import Census, Placed
from ..inventory import Inventory
from ..observe import Observed
from .config_facts import Quantisation


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFacts:
    """`spec` is as the config says, before the weights corrected it. `has_head`: the
    architecture computes logits, so that a head must be stored or tied. `stored` is that of the
    whole model's type, `architecture` that of its language model.

    `expected` are sizes outside attention by the config, `counted` its parameters (None: no body
    counts them) and `idle` those of experts that a token does not visit. `quantisation` is what the
    config says of it, `beside` whether a file of its own does (hf_quant_config.json). `left_out`
    are tensors whose names the class expects in a file and does not load, unless it builds them
    after all; `prediction` is how many layers the config gives that predict further tokens.
    `roots` are the words that names may all begin with for the class to find them; none where
    nobody says so.
    """

    spec: ModelSpec
    architecture: Architecture
    stored: Stored
    where: str
    checkpoint: Checkpoint
    census: Census
    inventory: Inventory
    observed: Mapping[MixerKey, Observed]
    has_head: bool
    expected: Expected
    counted: int | None
    idle: int | None
    quantisation: Quantisation | None
    beside: bool
    left_out: frozenset[str]
    prediction: int
    roots: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether all shards are here, so that what is not found is missing."""
        return not self.checkpoint.partial and not self.checkpoint.missing

    def mixers(self) -> Iterator[tuple[MixerKey, Mixer, tuple[Placed, ...]]]:
        """Each mixer of the config with its tensors."""
        for layer in self.spec.layers:
            for key, mixer in layer.keyed_mixers():
                yield key, mixer, self.census.layers.get(key, ())
