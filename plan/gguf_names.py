"""The names of llama.cpp's mixes of types, such as Q4_K_M."""

from collections.abc import Mapping

# The mixes, and the type that each is named after.
MIXES: Mapping[str, str] = {
    **{name: name for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K", "TQ1_0", "TQ2_0")},
    **{"F16": "F16", "BF16": "BF16", "F32": "F32", "MXFP4_MOE": "MXFP4"},
    **{"Q2_K": "Q2_K", "Q2_K_S": "Q2_K", "Q3_K_S": "Q3_K", "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K"},
    **{"Q4_K_S": "Q4_K", "Q4_K_M": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K"},
    **{"IQ1_S": "IQ1_S", "IQ1_M": "IQ1_M", "IQ2_XXS": "IQ2_XXS", "IQ2_XS": "IQ2_XS"},
    **{"IQ2_S": "IQ2_XS", "IQ2_M": "IQ2_S", "IQ3_XXS": "IQ3_XXS", "IQ3_XS": "IQ3_S"},
    **{"IQ3_S": "IQ3_S", "IQ3_M": "IQ3_S", "IQ4_NL": "IQ4_NL", "IQ4_XS": "IQ4_XS"},
}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}


def mix_name(text: str) -> str | None:
    """llama.cpp's name of the mix that `text` means; None where it has none."""
    name = text.upper().replace("-", "_")
    name = ALIASES.get(name, name)
    return name if name in MIXES else None
