"""What `--explain` says of every type and every model of the catalogue: a value that comes from a
key stands at that key, a class's default is one of that class, a quotient that of what it names."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headcount.arch.class_defaults import _TABLE
from headcount.arch.read_config import Reading, read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.model.errors import HeadcountError
from headcount.model.spec import Origin
from headcount.sources.catalogue import catalogue, read_entry
from truth_record import recorded

FILE = "config.json"
# `config.json: text_config (n_head)`: the objects that hold it, and the key if it has another name.
PLACE = re.compile(rf"{re.escape(FILE)}((?:: [\w-]+)*)(?: \((\w+)\))?")
QUOTIENT = re.compile(r"derived: (\w+) / (\w+)(?:, rounded down)?")
PART = re.compile(r" of ([\w.]+)$")  # what is derived of one nested object beside others
DEFAULT = re.compile(r"class default of ([\w-]+)((?:: \w+)*)(?: \(remote code\))?")
DERIVED = {
    *("derived: num_attention_heads", "derived: num_attention_heads (the class has no GQA)"),
    *("derived: multi_query", "derived: 2 * num_layers", "derived: block_sizes, added up"),
    *("derived: layer_types, counted", "derived: hybrid_override_pattern"),
    "derived: other keys of the file",
    "derived: tiles * ((image_size / patch_size)^2 + 1)",
    *("derived: (image_size / patch_size)^2 + 1", "derived: (image_size / patch_size)^2 + 2"),
    *(
        "derived: (image_size / patch_size)^2",
        "derived: (image_size / patch_size / 4)^2, rounded up",
        "derived: width / num_heads of each stage",
        "derived: vision_config.hidden_size",
    ),
    "assumed: the config does not say how long an encoding is",
}


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("decoders", "encoder_decoders", "encoders", "multimodal", "states", "towers"):
        yield from (
            (f"{line['model_type']} {line.get('seed')}", line["config"]) for line in recorded(name)
        )
    for line in recorded("classes"):  # a class may build one of the models that its config nests
        if any(isinstance(value, dict) for value in line.get("config", {}).values()):
            for name in line["classes"]:
                yield f"{line['model_type']}: {name}", {**line["config"], "architectures": [name]}
    rows = (row for row in catalogue() if row.model_type in ARCHITECTURES)
    yield from ((row.id, dict(read_entry(row).config)) for row in rows)


def stands(config: Any, name: str, place: re.Match[str]) -> object:
    """What `config` has at the place that a source names; an exception if that is no place."""
    for key in place[1].split(": ")[1:]:
        config = config[key]
    return None if place[2] == "null" else config[place[2] or name]


def class_defaults() -> dict[str, dict[str, Any]]:
    table = map(json.loads, _TABLE.read_text(encoding="utf-8").splitlines()[1:])
    return {line["class"]: line["defaults"] for line in table}


CLASSES = class_defaults()
# What the code of a class adds to them, or that of a class outside transformers.
BY_CODE = [value for one in ARCHITECTURES.values() for value in one.config.defaults.values()]


def is_default(origin: Origin) -> bool:
    """Of the class that is named, or of the nested object of it that is."""
    match = DEFAULT.fullmatch(origin.source)
    defaults: Any = CLASSES.get(match[1], {}) if match else {}
    for key in match[2].split(": ")[1:] if match else ():
        defaults = defaults[key]
    return origin.value in [*defaults.values(), *BY_CODE]


def untrue(config: dict[str, Any]) -> Iterator[tuple[str, Origin]]:
    try:
        reading = read_config(config, FILE)
        reading.total()
    except HeadcountError:
        return
    for name, origin in reading.spec.origins.items():
        part, source = PART.search(origin.source), PART.sub("", origin.source)
        place, quotient = PLACE.fullmatch(source), QUOTIENT.fullmatch(source)
        if place is not None:
            true = stands(config, name, place) == origin.value
        elif quotient is not None:
            sizes = [size_of(reading, part and part[1], key) for key in quotient.groups()]
            true = origin.value == sizes[0] // sizes[1]
        else:
            named = f"derived: architectures ({(config.get('architectures') or [''])[0]})"
            true = source in {*DERIVED, named} or is_default(origin)
        if not true:
            yield name, origin


def size_of(reading: Reading, part: str | None, name: str) -> int:
    """A size as explained, or of one part as that part is read."""
    if part is None:
        found = reading.spec.origins[name].value
    else:
        view = reading.view
        for key in part.split("."):
            view = view.child(key)
        view.origins = {}
        found = view.get(name)
    assert isinstance(found, int)
    return found


def test_every_explained_value_is_what_stands_there() -> None:
    found = [(label, list(untrue(config))) for label, config in configs()]
    assert len(found) > 2500
    assert [(label, wrong) for label, wrong in found if wrong] == []


OTHERS = {
    "params.json of Meta": {
        **{"dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32},
        **{"n_kv_heads": 8, "n_layers": 32, "vocab_size": 128256},
    },
    "params.json of Mistral": {
        **{"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32},
        **{"n_kv_heads": 8, "vocab_size": 32000},
        "moe": {"num_experts_per_tok": 2, "num_experts": 8},
    },
    "mlc-chat-config.json": {
        **{"model_type": "qwen2", "context_window_size": 32768, "vocab_size": 7},
        "model_config": {
            **{"hidden_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 28},
            "num_key_value_heads": 2,
        },
    },
    "original/config.json of gpt-oss": {
        **{"num_hidden_layers": 36, "num_experts": 128, "experts_per_token": 4},
        **{"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880},
        **{"swiglu_limit": 7.0, "head_dim": 64, "num_attention_heads": 64},
        **{"num_key_value_heads": 8, "sliding_window": 128, "initial_context_length": 4096},
        **{"rope_scaling_factor": 32.0},
    },
}


@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
def test_a_file_of_another_tool_is_explained_by_its_own_keys(config: dict[str, Any]) -> None:
    assert list(untrue(config)) == []
    origins = read_config(config, FILE).spec.origins
    assert "derived: other keys of the file" not in {
        origins[name].source for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    }


def test_a_part_of_a_model_is_explained_by_what_nests_it() -> None:
    """A text encoder whose config is that of the whole CLIP."""
    text = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    config = {
        **{"model_type": "clip", "architectures": ["CLIPTextModel"], "text_config": text},
        "vision_config": {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 3},
    }
    assert list(untrue(config)) == []
    origins = read_config(config, FILE).spec.origins
    assert origins["hidden_size"] == Origin(64, f"{FILE}: text_config")
    assert origins["model_type"].source == "derived: architectures (CLIPTextModel)"


def test_layers_with_heads_of_their_own_do_not_change_what_is_explained() -> None:
    """Gemma 4: layers that see everything have heads of their own."""
    entry = next(row for row in catalogue() if row.id == "google/gemma-4-31B-it")
    config = dict(read_entry(entry).config)
    spec = read_config(config, FILE).spec
    text = config["text_config"]
    for name in ("head_dim", "num_key_value_heads", "global_head_dim"):
        assert spec.origins[name] == Origin(text[name], f"{FILE}: text_config")
    mixers = {mixer for layer in spec.layers for mixer in layer.mixers}
    assert {mixer.head_dim for mixer in mixers} == {text["head_dim"], text["global_head_dim"]}
