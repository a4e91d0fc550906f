"""What transformers really builds and caches: the truth that an audit is compared with.

The product's own builder for `--verify` serves here: it knows transformers' modules by their names
and reads no table of the audit, which tests/running/test_verify.py makes sure of.
"""

from headcount.running.built.built_layers import BuiltLayer as LayerTruth
from headcount.running.built.built_layers import BuiltMixer as MixerTruth
from headcount.running.built.built_layers import layers_of as attention_parameters
from headcount.running.built.cached_elements import CachedElements, cached_elements
from headcount.running.built.meta_model import (
    NotInTransformersError,
    build_on_meta,
    total_parameters,
    without_code,
)

__all__ = [
    "CachedElements",
    "LayerTruth",
    "MixerTruth",
    "NotInTransformersError",
    "attention_parameters",
    "build_on_meta",
    "cached_elements",
    "total_parameters",
    "without_code",
]
