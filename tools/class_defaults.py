"""Write arch/generated/class_defaults.jsonl: what each transformers config class assumes by itself.

A config.json may leave a key out; the class then supplies a value (32 heads, a window of 4096, tied
embeddings...). An audit must know those values without importing transformers, so this script
reads them off the installed version, which the first line names, one line a model_type:

    {"model_type": "llama", "class": "LlamaConfig", "attribute_map": {...}, "defaults": {...}}

`defaults` holds the *declared* value of each field. What the class computes from other fields
(`head_dim` from the hidden size, `layer_types` from the number of layers) depends on the config
at hand and is null here. A sub-config is a dict of the values that apply when it is missing
altogether; for one that is given in part, the line of its own model_type applies. `own_first` are
the standard names that are fields beside those that they are mapped to: the class sets the own name
after them.

    python tools/class_defaults.py           # write the file
    python tools/class_defaults.py --check   # exit 1 if the file is not what transformers says
"""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from transformers import CONFIG_MAPPING, PreTrainedConfig, __version__
from transformers import logging as transformers_logging

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "class_defaults.jsonl"

# Keys that change neither a parameter count nor a cache nor a dtype.
_IRRELEVANT = re.compile(
    r"^_|token_ids?$|_token_(index|offset)$|^(pad|bos|eos|unk|mask|merge)_(index|value)$"
    r"|label|^(architectures|transformers_version|problem_type|use_cache|pretraining_tp)$"
    r"|^(return_dict|chunk_size_feed_forward|output_(hidden_states|attentions|router_logits))$"
    r"|drop(out|path|_rate|_path|_p)|layerdrop|pdrop|initiali[sz]|init_(std|val|range)|^init_"
    r"|activation_f|activation$|(hidden|pooler|adapter)_act|_act(_fn|ivation)?$|gated_act$"
    r"|^rope_|rope_(parameters|theta|scaling|interleave)|rotary|position_ids|(^|_)eps(ilon)?($|_)"
    r"|softcap|soft_cap|logit|scaling|temperature|^time_step_(limit|m|floor|init)"
    r"|loss|cost|_weights?$|_coef|alpha$|gamma$|^beta|threshold|_thresh$|jitter|noise|denois"
    r"|^mask_(time|feature)|sampl(ing|e)_rate|forced_|suppress_|_beams$|^max_(new|length)|^seed$"
    r"|keep_alive|hotstart|capacity|summary_|mean$|_std$|topk_method|scoring_func|kernels$"
    r"|matcher|^lsd_|_interpol|resample|image_(seq|grid|mean)|resblock|upsampl|downsampl"
    r"|^(tdnn|xvector|eval_size|stage_names|out_(features|indices))|_(pad|sep|start|end)_id$"
)
# Floats and strings are mostly scales and activations; these few decide a shape or a cache.
_SHAPING_FLOAT = re.compile(r"ratio|expan|(mlp|ffn?|dim|depth|width)_(mult|coef)|(proj|dim)_factor")
_SHAPING_TEXT = re.compile(
    r"model_type|feed_forward_proj|position_embeddings?_type|attention_type|pattern|mamba_d|_rank"
    r"|norm_type|qk_norm|layer_type|dtype|architecture$|_types$|cache"
)
_BASE_LABELS = PreTrainedConfig().id2label or {}
_BASE = {field.name: field.default for field in dataclasses.fields(PreTrainedConfig)}


def is_relevant(key: str, value: Any) -> bool:
    """Whether `key`, whose default is `value`, can change what an audit counts."""
    if _IRRELEVANT.search(key):
        return False
    if isinstance(value, float):
        return bool(_SHAPING_FLOAT.search(key))
    if isinstance(value, str):
        return bool(_SHAPING_TEXT.search(key))
    return True


def declared(cls: type[PreTrainedConfig]) -> dict[str, Any]:
    """Declared default of each field, under the name the class stores it by (`attribute_map`).

    What PreTrainedConfig itself declares (`dtype` null, not an encoder-decoder) is left out.
    """
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        value = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if value is not dataclasses.MISSING and (field.name, value) not in _BASE.items():
            defaults[cls.attribute_map.get(field.name, field.name)] = value
    return defaults


def sub_config(spec: Any, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """A sub-config of which the wrapper gives `given`: by default what it gives when it is missing.

    `model_type` comes last, so that only whole lines of the file begin with it.
    """
    values = dict(spec.init_kwargs if given is None else given)
    model_type = values.pop("model_type", spec.model_type)
    own = {"model_type": model_type} if model_type else {}
    cls = spec.config_class
    if not issubclass(cls, PreTrainedConfig):
        if model_type not in CONFIG_MAPPING:
            return {**pruned(values), **own}  # a type that this version does not have
        cls = CONFIG_MAPPING[model_type]
    nested = {k: values.pop(k) for k in cls.sub_configs_defaults if isinstance(values.get(k), dict)}
    parts = {k: sub_config(cls.sub_configs_defaults[k], v) for k, v in nested.items()}
    return {**defaults_of(cls), **pruned(values), **parts, **own}


def pruned(values: dict[str, Any]) -> dict[str, Any]:
    """The relevant part of `values`, at every depth; tuples as JSON writes them."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and not _IRRELEVANT.search(key):
            kept[key] = pruned(value)
        elif is_relevant(key, value):
            kept[key] = list(value) if isinstance(value, tuple) else value
    return kept


@cache
def _defaults_of(cls: Any) -> dict[str, Any]:
    """Declared defaults of `cls`, its sub-configs, and the constants that its code supplies."""
    defaults = pruned(declared(cls))
    for key, spec in cls.sub_configs_defaults.items():
        defaults[key] = None if spec.optional else sub_config(spec)
    return {**defaults, **constants(cls, defaults)}


# mypy takes a config class for unhashable, as its instances are
defaults_of = cast(Callable[[type[PreTrainedConfig]], dict[str, Any]], _defaults_of)


def constants(cls: type[PreTrainedConfig], defaults: dict[str, Any]) -> dict[str, Any]:
    """Values that `__post_init__` supplies for a null or undeclared key whatever the other fields.

    A value that changes with any other field is derived, and left out.
    """
    try:
        plain = cls()
    except Exception:
        return {}  # such a class cannot be asked; its declared fields still stand
    open_keys = {k for k in vars(plain) if k not in _BASE and defaults.get(k) is None}
    asked = {k: v for k, v in vars(plain).items() if k in open_keys and is_relevant(k, v)}
    found = {k: v for k, v in asked.items() if isinstance(v, (bool, int, float, str))}
    for changed in _variants(cls, plain) if found else ():
        found = {k: v for k, v in found.items() if vars(changed).get(k) == v}
    nested = {k: v for k, v in asked.items() if isinstance(v, PreTrainedConfig)}
    return {**found, **{k: defaults_of(type(v)) for k, v in nested.items()}}


def _variants(cls: type[PreTrainedConfig], plain: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """`cls()` with one field changed at a time, where the class accepts the change."""
    for key in declared(cls):
        value = vars(plain).get(key)
        changed = _changed(value)
        if changed is None or key in cls.sub_configs_defaults:
            continue
        try:
            yield cls(**{key: changed})
        except Exception:
            continue  # the class refuses this combination: it says nothing about derivation


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, list, tuple)):
        return value * 2
    if isinstance(value, PreTrainedConfig):
        return {k: 2 * v for k, v in vars(value).items() if type(v) is int}
    return None


def labels(cls: type[PreTrainedConfig]) -> dict[str, int]:
    """How many labels a classifier has where the config names none; nothing for the usual two."""
    try:
        count = cls().num_labels
    except Exception:
        return {}  # such a class cannot be asked
    return {} if count in (None, len(_BASE_LABELS)) else {"num_labels": count}


def line_of(model_type: str) -> str:
    """The JSON line of one model_type."""
    cls = CONFIG_MAPPING[model_type]
    row: dict[str, Any] = {"model_type": model_type, "class": cls.__name__}
    row["attribute_map"] = {k: v for k, v in cls.attribute_map.items() if is_relevant(k, None)}
    row["defaults"] = {**defaults_of(cls), **labels(cls)}
    both = {field.name for field in dataclasses.fields(cast(Any, cls))} & row[
        "attribute_map"
    ].keys()
    row |= {"own_first": sorted(both)} if both else {}
    return json.dumps(row, separators=(",", ":"))


def table() -> str:
    """The whole file: the version, then the types by name."""
    transformers_logging.set_verbosity_error()
    types = map(line_of, sorted(CONFIG_MAPPING.keys()))
    return "".join(f"{line}\n" for line in (first_line(), *types))


def first_line() -> str:
    """The library that the table is read from."""
    return json.dumps({"versions": {"transformers": __version__}}, separators=(",", ":"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if not parser.parse_args().check:
        TARGET.write_text(table(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == table():
        return 0
    print(f"{TARGET.name} is out of date; run tools/class_defaults.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
