"""The names that SGLang has for what drafts, and what each is."""

from collections.abc import Mapping
from typing import Literal, get_args

Method = Literal[
    "mtp", "eagle", "eagle3", "dflash", "dspark", "medusa", "draft_model", "ngram", "suffix"
]
METHODS: tuple[Method, ...] = get_args(Method)
# SGLang's --speculative-algorithm -> the method.
ALGORITHMS: Mapping[str, Method] = {
    **{"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp", "STANDALONE": "draft_model"},
    "NGRAM": "ngram",
}
