"""Configs of which one key is another than in one that is read right, and what is built of them.

Random configs vary many keys at a time, of a list of names; these vary every key that a config has,
a nested one's, too, and so find the sizes that no list names.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.initialization import no_init_weights

import total_configs
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError
from random_configs import Config
from tiny_truth import read

ATTEMPTS = 30
# Keys that say how a model runs, is trained or saved.
_NO_SIZE = re.compile(
    r"token_id|version|_name_or_path|drop|eps|init|rope_theta|2label|architectures|return_dict"
    r"|output_|use_cache|dtype|loss|temperature|torchscript|problem_type|chunk_size_feed_forward"
    r"|scale|_prob|softcap|mask_(time|feature)"
)
Changed = tuple[str, Config, int]  # the key, the config and the parameters built of it


def one_key_changed(model_type: str) -> Iterator[Changed]:
    """Of every key of a small config that is read right; what transformers refuses is left out."""
    base, model_class = _base(model_type)
    for path, value in _values(read(copy.deepcopy(base)), ()):
        config = copy.deepcopy(base)
        _put(config, path, value)
        try:
            built = _parameters(config, model_class)
        except Exception:  # no value that the class takes
            continue
        yield ".".join(path), config, built


def _base(model_type: str) -> tuple[Config, Any]:
    for seed in range(ATTEMPTS):
        config = total_configs.total_config(model_type, seed)
        try:
            model = total_configs.build(config, seed)
            known = read_config(config, "config").total()[0]
        except HeadcountError:  # a combination that no model can run
            continue
        except Exception:  # one that the class refuses
            continue
        if known == sum(p.numel() for p in model.parameters()):
            return config, type(model)
    raise LookupError(f"{model_type}: none of {ATTEMPTS} configs is read right")


def _parameters(config: Config, model_class: Any) -> int:
    parsed = read(copy.deepcopy(config))
    parsed._attn_implementation = "eager"
    with torch.device("meta"), no_init_weights():
        model = model_class(parsed)
    model.tie_weights()
    return sum(p.numel() for p in model.parameters())


def _values(config: PreTrainedConfig, path: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in sorted(config.to_dict().items()):
        nested = vars(config).get(name)
        if isinstance(nested, PreTrainedConfig):
            yield from _values(nested, (*path, name))
            continue
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for key, one in inner:
            where = (*path, name) if key is None else (*path, name, key)
            if all(isinstance(word, str) and not _NO_SIZE.search(word) for word in where):
                yield from ((where, other) for other in _others(one))


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value + (8 if value and value % 8 == 0 else 1)]
    if isinstance(value, float):
        return [value * 1.5, value * 2]
    return [2, 16, True] if value is None else []


def _put(config: Config, path: Sequence[str], value: Any) -> None:
    *outer, last = path
    for name in outer:
        if not isinstance(config.get(name), dict):
            config[name] = {}
        config = config[name]
    config[last] = value
