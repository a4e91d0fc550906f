"""Keys of a stranger's config that no decoder or encoder of transformers has: what they do to its
heads or its cache is not known.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .class_keys import keys_of_classes
from .unread_keys import is_read, says_nothing, sounding_of_attention

# Words of keys that change neither heads nor a cache: text and how it is chosen, images and sound,
# experts, positions, what is trained and how a program computes.
_BESIDE = re.compile(
    r"^_|_(ids?|index)$|token(izer|_id|_index)|^(bos|eos|pad|sep|cls)_|^mask_(token|value|init)|^prefix$"
    r"|beam|penalty|^(top_[kp]|typical_p|temperature|num_return_sequences|is_llama_config)$"
    r"|^((model_)?max|min|seq|initial_context)_(\w+_)?length$|^context_window|sequence_to_multiple"
    r"|vision|visual|(^|_)vit_|image|img|video|audio|speech|media|(^|_)mm_|placeholder"
    r"|moe|expert|router|routing|^(ep|tp)_size$|seq_aux|mlp|ffn|feed_forward|intermediate|mtp|nextn"
    r"|rope|rotary|ntk|yarn|alibi|position|interpolat"
    r"|norm|(^|_)scal(e|es|ing)(_|$)|multiplier|mup|(^|_)eps|softmax|softcap|logit|logn|bias|embd"
    r"|(^|_)act(ivation)?(_|$)|drop(out|_|$)|loss|(^|_)init|label|predict|(^|_)train|summary|problem"
    r"|task_specific|checkpoint|gradient|flash|(^|_)fus(ed|ion)|impl(ementation)?$|kernels$|dtype"
    r"|^(bf16|fp16|fp32)$|quantization|tensor_parallel|runner|backend|version|(^|_)name|path$|auto_map"
    r"|(^|_)tie_word|vocab|license|(^|_)date$|^model_type$"
)


def unheard(config: Mapping[str, Any]) -> Iterator[str]:
    """The keys of `config` that set something, and that neither a class nor anything here has."""
    attention = {key for key, _ in sounding_of_attention(config)}  # these are told one by one
    for key, value in config.items():
        known = key in keys_of_classes() or is_read(key) or key in attention
        if not known and not _BESIDE.search(key) and not says_nothing(key, value, config):
            yield key
