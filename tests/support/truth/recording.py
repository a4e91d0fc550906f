"""Makes the lines of the record: tiny models of every type, built and run by transformers.

Configs are random, the same for the same seed. A line holds the config as save_pretrained writes
it, or as somebody else may spell it, less keys that change nothing of what an audit says.
"""

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

import classes_truth
import every_type
import states_truth
import total_configs
import transformers_truth
from against_record import differences
from headcount.arch.attention.rounded_widths import rounds_down
from headcount.arch.described import described
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.running.built.meta_model import NotInTransformersError
from headcount.sources.catalogue import find_row, read_entry
from random_configs import Config, declared_defaults, random_config
from spelled_otherwise import spelled_otherwise
from state_configs import TYPES as STATEFUL
from state_configs import WRAPPERS as STATEFUL_WRAPPERS
from state_configs import state_config
from tiny_configs import TYPES as COMMON
from tiny_configs import tiny_config
from truth_record import Line, catalogue_models, counted
from type_exceptions import NOT_RUN, NOT_STEPWISE, OWN_KEYS
from undivided import jobs, undivided

CONFIGS = 3  # of each kind, for each type
_TASKS = {
    **{"decoders": "causal", "encoder_decoders": "seq2seq", "encoders": "masked"},
    "multimodal": "image_text",
}
_APART = {*STATEFUL, *STATEFUL_WRAPPERS}


@cache
def keys(name: str) -> list[str]:
    """What has lines in the file `name`, in the order of the file."""
    if name == "catalogue":
        return catalogue_models()
    if name in _TASKS:
        mapped = {key for key, task in every_type.jobs() if task == _TASKS[name]} - _APART
        if name == "decoders":  # a wrapper's causal class is that of the language model it nests
            mapped -= set(keys("multimodal"))
            mapped |= {key for key in _unmapped() - NOT_RUN.keys() if _keeps(key)}
        return sorted(mapped)
    if name == "towers":
        return sorted(key for key in _unmapped() if not _keeps(key))
    if name == "states":
        return sorted(_APART)
    if name == "classes":
        return classes_truth.types()
    if name == "totals":
        counted = (key for key, one in ARCHITECTURES.items() if one.body is not None)
        return sorted(key for key in counted if key in CONFIG_MAPPING)
    return sorted(set(CONFIG_MAPPING).difference(*map(keys, (*_TASKS, "towers", "states"))))


def lines(name: str, key: str) -> list[Line]:
    """The lines of one key. Raises where transformers builds or runs none of its configs."""
    made = {
        **dict.fromkeys(_TASKS, _language_models),
        **{"towers": _towers, "states": _states, "totals": _totals, "catalogue": _catalogue_model},
        **{"classes": lambda _, key: classes_truth.lines(key), "left_out": _left_out},
    }
    return list(made[name](name, key))


def _unmapped() -> set[str]:
    """Types that no mapping of language models has, and that no model that one has nests."""
    known = {key for key, _ in every_type.jobs()} | {described(key).reads for key in ARCHITECTURES}
    return {key for key in ARCHITECTURES if key in CONFIG_MAPPING} - known - _APART


def _keeps(model_type: str) -> bool:
    return not all(kind.endswith("no cache") for kind in described(model_type).mixers)


def _language_models(name: str, key: str) -> Iterator[Line]:
    task = _TASKS[name] if (key, _TASKS[name]) in every_type.jobs() else "base"
    lengths = every_type.LENGTHS if key in NOT_STEPWISE else every_type.DECODED
    about = {"model_type": key, "task": task}
    for case in every_type.cases(key, task, CONFIGS, lengths):
        config = minimal(case.saved, name, case.truth)
        yield {**about, "written": "saved", "seed": case.seed, "config": config, **case.truth}
    for case in every_type.cases(key, task, CONFIGS, lengths, every_type.respelled_config):
        yield {**about, "written": "by hand", "seed": case.seed, "config": case.given, **case.truth}


def _towers(_: str, key: str) -> Iterator[Line]:
    for seed in range(CONFIGS):
        config = random_config(key, seed)
        yield {
            **{"model_type": key, "written": "by hand", "seed": seed, "config": config},
            **every_type.tower_truth(config),
        }


# States

LENGTHS = ((5, 0), (9, 4), (20, 6), (21, 2))  # tokens, and how many of them are fed one by one
STATE_CONFIGS = 4
_ONLY_FLOAT32 = {"xlnet"}  # transformers mixes dtypes in it
# Their vision adapters want a text of another width: the model that they nest is built by itself.
_NOT_WHOLE = {"dots3_note", "inkling2", "inkling2_loop"}


def _states(name: str, key: str) -> Iterator[Line]:
    for seed in range(STATE_CONFIGS if key in STATEFUL else 1):
        text = state_config(STATEFUL_WRAPPERS.get(key, key), seed)
        given = text if key in STATEFUL else {"model_type": key, "text_config": text}
        # bfloat16 in turn with float32: then a state with its own dtype shows
        dtype = torch.float32 if seed % 2 or key in _ONLY_FLOAT32 else torch.bfloat16
        saved, truth = _state(text if key in _NOT_WHOLE else given, dtype)
        config = minimal(saved, name, truth) if key in STATEFUL and seed % 2 else given
        written = "by hand" if config is given else "saved"
        yield {"model_type": key, "written": written, "seed": seed, "config": config, **truth}
    if key in STATEFUL:
        yield from _respelled_states(key)


def _respelled_states(key: str) -> Iterator[Line]:
    """Two configs with aliases, null and stray keys, and flags the other way, that transformers
    runs."""
    ran = 0
    for seed in range(100, 112):
        given = state_config(key, seed)
        given = spelled_otherwise(given, random.Random(f"odd {key} {seed}"), keep=frozenset(given))
        try:
            _, truth = _state(given, torch.float32)
        except Exception:
            continue  # the class refuses what was made of the config
        yield {"model_type": key, "written": "by hand", "seed": seed, "config": given, **truth}
        ran += 1
        if ran == 2:
            return
    raise LookupError(f"transformers runs {ran} of the configs of {key} that are spelled otherwise")


def _state(config: Config, dtype: torch.dtype) -> tuple[Config, Line]:
    """The config as saved, and what its model holds and keeps."""
    model = states_truth.build(config, dtype)
    states = {
        str(tokens): [
            [kept.kinds, kept.nbytes]
            for kept in states_truth.kept(model, states_truth.run(model, tokens, stepwise=steps))
        ]
        for tokens, steps in LENGTHS
    }
    truth: Line = {"bits": dtype.itemsize * 8, "layers": counted(states_truth.parameters(model))}
    if config["model_type"] == "hrm_text":
        truth["stacks"] = 2  # they are alike
    truth["states"] = {tokens: counted(layers) for tokens, layers in states.items()}
    return states_truth.written(model), truth


# Totals


def _totals(_: str, key: str) -> Iterator[Line]:
    for seed, config, model in total_configs.models(key, CONFIGS):
        idle = total_configs.experts_not_visited(model)
        yield _total(key, "by hand", seed, config, model, {} if idle is None else {"idle": idle})
    for seed in range(CONFIGS if key in COMMON else 0):
        config = tiny_config(key, seed)
        model = transformers_truth.build_on_meta(config)
        yield _total(key, "by hand, of few keys", seed, config, model, {})
    if rounds_down(key):
        odd = undivided(key, jobs()[key])
        assert odd is not None and odd.model is not None
        yield _total(key, "by hand, not divided", 0, odd.config, odd.model, {})


def _total(key: str, written: str, seed: int, config: Config, model: Any, more: Line) -> Line:
    about = {"model_type": key, "written": written, "seed": seed, "config": config}
    return {**about, "parameters": transformers_truth.total_parameters(model), **more}


# The catalogue

# Types whose code lies beside their weights only, and the type here that is the same model.
READ_AS = {"kimi_k2": "deepseek_v3", "deepseek_ref": "deepseek_v4", "xverse": "llama"}
_REACH = (5, 700, 5000)  # below and above most windows


def _catalogue_model(_: str, key: str) -> Iterator[Line]:
    row = find_row(key)
    assert row is not None
    if key in OWN_KEYS:
        yield {"model": key, "reason": OWN_KEYS[key]}
        return
    config, read_as = read_entry(row, key).config, READ_AS.get(row.model_type or "")
    try:
        model = transformers_truth.build_on_meta(config, read_as=read_as)
    except NotInTransformersError:
        yield {"model": key, "reason": "its code comes with its weights, and is never run"}
        return
    about = {
        **{"model": key, "parameters": transformers_truth.total_parameters(model)},
        **_read_by_the_class(config, read_as or config["model_type"]),
    }
    if row.model_type in _APART:
        yield {**about, "mixers": counted(states_truth.parameters(model))}
        return
    layers = every_type.layers_built(transformers_truth.attention_parameters(model))
    yield {**about, "layers": layers, "cache": _caches(key, model)}


def _read_by_the_class(config: Config, model_type: str) -> Line:
    """What transformers' config holds of the longest text and the dtype; None where neither the
    file nor the class says it."""
    values = transformers_truth.without_code(config)
    whole = CONFIG_MAPPING[model_type].from_dict({**values, "model_type": model_type})
    text = whole.get_text_config(decoder=True)
    longest = getattr(text, "max_position_embeddings", None)
    dtype = next((one.dtype for one in (whole, text) if one.dtype is not None), None)
    return {
        "max_position_embeddings": longest if isinstance(longest, int) else None,
        "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
    }


def _caches(key: str, model: Any) -> dict[str, Any] | None:
    """At three lengths, as far as the model's positions reach; of cross-attention apart."""
    spec = audit_model(key).spec
    if not spec.is_cached:
        return None
    reach = spec.max_position_embeddings or max(_REACH)
    held = {
        str(tokens): transformers_truth.cached_elements(
            model, tokens, encoder_tokens=spec.encoder_tokens or None
        )
        for tokens in sorted({min(tokens, reach) for tokens in _REACH})
    }
    return {
        tokens: [counted(one.self_attention), counted(one.cross_attention)]
        for tokens, one in held.items()
    }


# What is not recorded


def _left_out(_: str, key: str) -> Iterator[Line]:
    if key in NOT_RUN:
        reason = NOT_RUN[key]
    elif key in ARCHITECTURES:
        reason = "a part of another model, which is recorded with it"
    else:
        reason = f"no language model: {', '.join(_auto_classes(key)) or 'a part of another model'}"
    yield {"model_type": key, "reason": reason}


def _auto_classes(model_type: str) -> list[str]:
    """What the mappings of transformers have the type for."""
    found = {
        name.removesuffix("_MAPPING_NAMES")
        for name, mapping in vars(modeling_auto).items()
        if name.startswith("MODEL") and name.endswith("_MAPPING_NAMES") and model_type in mapping
    }
    return sorted(found)


# Configs without what says nothing

_SAYS_NOTHING = re.compile(r"_token_id$|_token_index$|^transformers_version$|dropout|initializer")


def minimal(saved: Config, name: str, truth: Line) -> Config:
    """`saved` without what its class supplies by itself, where that is audited alike."""
    short = _without_defaults(saved)
    alike = _said(short) == _said(saved) and not differences(name, truth, short)
    return short if alike else saved


def _said(config: Config) -> Any:
    try:
        reading = read_config(config, "config.json")
        return reading.spec.layers, reading.total()
    except Exception as refused:
        return str(refused)


def _without_defaults(values: Config) -> Config:
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        return values
    defaults = declared_defaults(CONFIG_MAPPING[model_type])
    kept = {
        key: _without_defaults(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in defaults or defaults[key] != value
        if not _SAYS_NOTHING.search(key)
    }
    return {"model_type": model_type, **kept}
