"""The keys that configs of transformers' decoders and encoders have: a generated table
(tools/config_keys.py)."""

import json
import re
from functools import lru_cache
from pathlib import Path

_TABLE = Path(__file__).parent.with_name("generated") / "config_keys.json"
# Words of keys with a number that is no size of a language model.
_NO_SIZE = re.compile(
    r"(^|_)(ids?|index|idx|token|bits|version|seed|labels|groups?|rope|rotary|beams?|top|max|min"
    r"|vision|image|img|video|audio|vit|mm|mtp|nextn|expert|experts|moe|step|steps)(_|$)|layernorm"
)


@lru_cache
def keys_of_classes() -> frozenset[str]:
    return frozenset(json.loads(_TABLE.read_bytes())["keys"])


def is_unheard(key: str) -> bool:
    """Whether a number under `key` may be a size that no decoder or encoder of transformers has."""
    return key not in keys_of_classes() and not _NO_SIZE.search(key)
