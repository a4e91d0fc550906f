"""Classes that read one number of K/V heads for all layers, with another number in some of them.

The class is built with the number that its config says, and the modelling file of our own
(convert/models) shrinks the projections of each layer, as it does for classes of one K/V head per
query head. `num_key_value_heads` stays what the class reads; `num_key_value_heads_per_layer` counts
what is stored and cached.
"""

from headcount.arch.our_types import GROUPED, base_type
from headcount.model.mixers import Attention

from .draft import Heads
from .native_heads import attentions
from .request import KeyValueHeads
from .source import Source

# Compared with their sources in tests/convert/test_by_layer.py. Their q, k and v are tensors of
# their own, without a norm over all K/V heads, which would tell heads apart that are one; and their
# files hold what the class does (transformers joins experts by the model_type, which is another).
BY_LAYER = frozenset(
    {
        *("gemma", "gemma2", "granite", "llama", "mistral", "olmo", "phi", "qwen2", "qwen3"),
        *("smollm3", "starcoder2"),
    }
)


def holds_by_layer(source: Source, wanted: KeyValueHeads) -> bool:
    """Whether `wanted` names layers of such a class, in which all have the same K/V heads now."""
    if isinstance(wanted, int) or source.audit.spec.model_type not in BY_LAYER:
        return False
    mixers = [mixer for layer in source.audit.spec.layers for mixer in layer.mixers]
    counts = {mixer.num_key_value_heads for mixer in attentions(source.audit.spec).values()}
    return len(counts) == 1 and all(type(mixer) is Attention and mixer.cached for mixer in mixers)


def class_heads(source: Source, heads: Heads) -> int:
    """The K/V heads that the class builds in a layer of `heads`, before it is shrunk."""
    model_type = source.audit.spec.model_type
    if base_type(model_type) not in BY_LAYER:
        return heads.num_attention_heads
    ours = model_type.startswith(GROUPED)
    return int(source.config["num_key_value_heads"]) if ours else heads.before
