"""Types whose code is published with their weights, beside those in `..table`."""

from dataclasses import replace

from ... import tying
from ...decoders.phi import (
    PHI_MSFT_KEYS as PHI_MSFT,
)
from ...tensors import names
from .. import uneven
from ..row import Family
from .patterns import WRAPPER

# OpenELM: its lists of heads have an entry for each layer (arXiv 2404.14619).
OPENELM = {
    "hidden_size": ("model_dim",),
    "num_hidden_layers": ("num_transformer_layers",),
    "max_position_embeddings": ("max_context_length",),
}

ROWS: dict[str, Family] = {
    "kimi_vl": replace(WRAPPER, defaults={"text_config": {"model_type": "deepseek_v3"}}),
    "openelm": Family(
        names=names.OPENELM,
        norm="head",
        norm_if="normalize_qk_projections",
        per_layer=uneven.openelm_heads,
        aliases=OPENELM,
        tied=tying.shared_layers,
    ),
    "phi-msft": Family(names=names.MIXER, qkv_bias=True, o_bias=True, aliases=PHI_MSFT),
}
