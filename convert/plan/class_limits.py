"""What single classes cannot hold, although they take fewer K/V heads or seem to.

A type that no row of the family table describes, that keeps no K/V heads, or whose class has as
many as query heads, is told apart by the table itself.
"""

from collections.abc import Mapping

# Types that take an even number only: half of the V heads are subtracted from the other half.
EVEN_ONLY = frozenset({"diffllama"})
# Types whose config refuses a hidden_size that is no multiple of the query heads, though head_dim
# is free. So padding has to find a number of query heads that divides it.
WIDTH_CHECKED = frozenset(
    {
        *("arcee", "aria_text", "cosmos3_edge_text", "cwm", "deepseek_ocr2_text", "exaone"),
        *("gemma2", "gemma3_text", "gemma3n_text", "higgs_audio_v2", "hyperclovax", "internlm3"),
        *("iquestcoder", "jais2", "llama", "muse_glimmer_text", "muse_spark_text", "t5gemma"),
        *("t5gemma2", "unlimited_ocr_text", "vaultgemma"),
    }
)
# Types whose eager attention in transformers takes one K/V head per query head only; its other ones
# take fewer.
NO_EAGER = frozenset({"unlimited_ocr_text"})

# Types whose K/V heads cannot be merged exactly, with the reason.
REASONS: Mapping[str, str] = {
    "blt": "transformers fails to generate with a cache, so that fewer K/V heads save nothing",
    "doge": "its mask is computed from the values of all K/V heads at once",
    "jetmoe": "it has as many query heads in each expert as K/V heads, so that fewer of one mean"
    " fewer of the other",
    "pi0": "its expert for actions puts its K/V heads in the same cache, and has them from a config"
    " of its own",
    "zaya": "its keys and queries are convolved together, so that no head stands by itself",
}

# Types of which no tiny model is built and compared in the tests, with the reason. Their language
# models are those of types that are.
_READS = "it reads the cache of the model that it drafts for"
_LIBRARY = "it needs a library beyond the convert extra"
_LATENT = "its config wants a K/V head per query head: latent attention"
NOT_RUN: dict[str, str] = {
    "gemma4_assistant": _READS,
    "gemma3n": _LIBRARY,
    **dict.fromkeys(("dots3_note", "dots3_note_text", "glm5_next", "hy_v4_vl"), _LATENT),
}
