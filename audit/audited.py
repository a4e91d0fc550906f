"""A model as audited: the spec that the weights corrected, and what they hold."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headcount.arch.architecture import Architecture
from headcount.arch.read_config import Reading
from headcount.model.mixers import Parts
from headcount.model.spec import Layer, MixerKey, ModelSpec
from headcount.report.report import Finding
from headcount.sources.found import FoundModel

if TYPE_CHECKING:
    from headcount.sources.checkpoint import Checkpoint

    from .census import Census
    from .inventory import Inventory


# Where a config has the settings of its quantisation: transformers, compressed-tensors, MLX.
QUANTISATION = ("quantization_config", "compression_config", "quantization")


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """A model as audited. `spec` follows the weights where they are at hand; `stored` are the
    attention parameters that the headers hold per mixer, empty without headers.
    `active_parameters` are those that one token visits, None where no body can say it."""

    source: FoundModel
    spec: ModelSpec
    architecture: Architecture
    census: "Census | None"
    stored: Mapping[MixerKey, Parts]
    findings: tuple[Finding, ...]
    inventory: "Inventory | None" = None
    active_parameters: int | None = None

    @property
    def checkpoint(self) -> "Checkpoint | None":
        return self.source.checkpoint

    @property
    def config(self) -> Mapping[str, Any]:
        return self.source.config or {}

    @property
    def weights_bytes(self) -> int | None:
        """Bytes of all stored tensors; None without headers, or with a shard missing."""
        checkpoint = self.checkpoint
        if checkpoint is None or checkpoint.missing or checkpoint.partial:
            return None
        return checkpoint.nbytes

    @property
    def loaded_bytes(self) -> int | None:
        """`weights_bytes`, unless loading casts the weights to another dtype (finding H106)."""
        cast = any(finding.code == "H106" for finding in self.findings)
        return None if cast else self.weights_bytes

    @property
    def is_weighed_by_config(self) -> bool:
        """Whether the bytes of its weights are those that a quantisation makes of the config."""
        text = self.config.get("text_config")
        holders = (self.config, text if isinstance(text, Mapping) else {})
        given = any(holder.get(key) for holder in holders for key in QUANTISATION)
        return given and self.inventory is None

    @property
    def has_experts(self) -> bool | None:
        """Whether a token visits only some experts; None where neither body nor headers say it."""
        if self.active_parameters is not None:
            return self.active_parameters != self.spec.parameters
        if self.inventory is not None and "experts" in self.inventory.parts.values():
            return True
        return None

    def mixer_parts(self, layer: Layer) -> tuple[Parts, ...]:
        """Parameters of each mixer of `layer`: by the headers if at hand, else by the config."""
        return tuple(
            self.stored.get(key) or mixer.parameters() for key, mixer in layer.keyed_mixers()
        )

    def layer_parts(self, layer: Layer) -> Parts:
        """The parameters of the layer's attention: every mixer but recurrent ones."""
        pairs = zip(layer.mixers, self.mixer_parts(layer), strict=True)
        return sum((parts for mixer, parts in pairs if mixer.kind != "recurrent"), Parts())

    def layer_biases(self, layer: Layer) -> int:
        """How many of the layer's attention parameters are biases."""
        if self.census is None or not self.stored:
            attending = (m for m in layer.mixers if m.kind != "recurrent")
            return sum(mixer.bias_parameters() for mixer in attending)
        return sum(
            item.tensor.elements
            for key, _ in layer.keyed_mixers()
            for item in self.census.layers.get(key, ())
            if item.place.parameter == "bias" and item.place.part not in ("norm", "other", "")
        )

    @property
    def attention_parameters(self) -> int:
        return sum(self.layer_parts(layer).total for layer in self.spec.layers)


def counted(reading: Reading, source: FoundModel) -> ModelSpec:
    """The spec with its parameters: as built (catalogue), by the config, or else as published."""
    entry = source.entry
    built = entry.built_parameters if entry else None
    if built is not None:
        return replace(reading.spec, parameters=built, parameters_source="catalogue")
    computed, unknown = reading.total()
    if computed is not None:
        return replace(reading.spec, parameters=computed, parameters_source="config")
    published = entry.published_parameters if entry else None
    name = None if published is None else "published"
    return replace(
        reading.spec,
        parameters=published,
        parameters_source=name,
        parameters_unknown=unknown,
    )
