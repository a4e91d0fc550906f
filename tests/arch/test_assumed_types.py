"""Every recorded config of every type under a name that nobody knows. What the class does otherwise
than its keys say is named among the assumptions of the report, most with what speaks against it;
what no key tells is listed here, type by type, so that no other difference slips in."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from headcount.arch.class_defaults import class_defaults
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec
from strangers import renamed
from truth_record import recorded

FILES = ("decoders", "encoder_decoders", "encoders", "multimodal", "states")
LENGTHS = (5, 100, 9000)
# What differs, by the assumption that speaks of it.
ABOUT = {
    **{"heads": "num_attention_heads", "key_value_heads": "num_key_value_heads"},
    **{"head_dim": "head_dim", "v_head_dim": "head_dim", "window": "window", "kind": "layers"},
    **{"kept": "cache", "states": "cache", "parameters": "attention_parameters"},
}
Config = Mapping[str, Any]


def filled(config: Config, outer: Config | None = None) -> dict[str, Any]:
    """`config` with its class's defaults written out, as classes of their own code save theirs."""
    given = config.get("model_type") or (outer or {}).get("model_type")
    known = class_defaults(given) if isinstance(given, str) else None
    defaults = {**(outer or {}), **(known.defaults if known else {})}
    said = {known.attribute_map.get(key, key) if known else key for key in config} | set(config)
    whole = {key: value for key, value in defaults.items() if key not in said} | dict(config)
    nested = {key: value for key, value in whole.items() if isinstance(value, dict)}
    inner = {key: defaults.get(key) for key in nested}
    return whole | {
        key: filled(value, inner[key] if isinstance(inner[key], dict) else None)
        for key, value in nested.items()
    }


def facts(spec: ModelSpec) -> list[dict[str, object]]:
    """What is said of each mixer of the language model."""
    return [
        {
            **{"kind": mixer.kind, "heads": mixer.num_attention_heads},
            **{"key_value_heads": mixer.num_key_value_heads, "window": mixer.window},
            **{"head_dim": mixer.head_dim, "v_head_dim": mixer.v_head_dim},
            **{"kept": bool(mixer.state_elements(100, 7)), "parameters": mixer.parameters()},
            "states": [mixer.state_elements(tokens, 7) for tokens in LENGTHS],
        }
        for layer in spec.layers
        for mixer in (layer.mixers if layer.stack != "vision" else ())
    ]


def differences(known: ModelSpec, stranger: ModelSpec) -> set[str]:
    """The assumptions that speak of what differs: of state, or of parameters, only where no size
    does that they follow from."""
    ours, theirs = facts(known), facts(stranger)
    if len(ours) != len(theirs):
        return {"layers"}
    pairs = zip(ours, theirs, strict=True)
    names = {name for one, other in pairs for name in one if one[name] != other[name]}
    sizes = names - {"states", "parameters"}
    if sizes:
        return {ABOUT[name] for name in sizes}
    return {ABOUT[name] for name in names}


class Row(NamedTuple):
    """A config under an unknown name that is not refused: the facts that `differ` from the class's,
    and those of them that nothing in the config speaks against."""

    model_type: str
    differ: set[str]
    untold: set[str]
    spec: ModelSpec


def read(written_out: bool) -> Iterator[Row]:
    for line in (line for name in FILES for line in recorded(name)):
        known = read_config(line["config"], "config.json").spec
        config = filled(line["config"]) if written_out else line["config"]
        try:
            spec = read_config(renamed(config), "config.json").spec
        except HeadcountError:
            continue
        found = differences(known, spec)
        doubtful = {one.about for one in spec.assumptions if one.doubt is not None}
        yield Row(line["model_type"], found, found - doubtful, spec)


# Configs of which each fact differs, and of how many nothing in the config speaks against it.
AS_WRITTEN = {
    "attention_parameters": (444, 444),
    "head_dim": (143, 143),
    "num_key_value_heads": (100, 100),
    "cache": (262, 27),
    "window": (95, 26),
    "layers": (18, 18),
    "num_attention_heads": (6, 6),
}
AS_SAVED = {
    "attention_parameters": (657, 657),
    "head_dim": (34, 34),
    "num_key_value_heads": (34, 32),
    "cache": (57, 15),
    "window": (80, 18),
    "layers": (10, 6),
    "num_attention_heads": (2, 2),
}
# What no key of a whole file tells: keys that the class has and does not read, windows that its
# positions do not reach, and what only its code does.
UNTOLD = {
    "head_dim": {
        *("bert", "codegen", "deepseek_ocr2", "diffusion_gemma", "gemma4", "xglm"),
        *("gemma4_assistant", "gemma4_text", "gemma4_unified", "gemma4_unified_assistant"),
        *("gemma4_unified_text", "gpt_bigcode", "kosmos-2.5", "mobilebert", "openai-gpt"),
        *("roberta-prelayernorm", "voxtral", "voxtral_realtime", "xlm-roberta-xl"),
    },
    "num_key_value_heads": {
        *("bert", "codegen", "data2vec-text", "deberta", "electra", "esm", "falcon"),
        *("flaubert", "fuyu", "gpt_bigcode", "gpt_neox", "gpt_neox_japanese", "gte", "kosmos-2"),
        *("layoutlm", "megatron-bert", "mimo_v2_flash", "opt", "persimmon", "roformer"),
        *("xlm-roberta", "xlm-roberta-xl"),
    },
    "cache": {
        *("eurobert", "falcon", "gemma4_assistant", "gemma4_unified_assistant", "neomme"),
        *("ultrabert", "ultravbert"),
    },
    "window": {
        *("cohere_compass", "diffusion_gemma", "fast_vlm", "flint", "gemma2", "gemma4_unified"),
        *("gemma4_unified_assistant", "granite_swa", "granitemoe_swa", "laguna", "llava_next"),
        *("mellum", "muse_glimmer", "musicflamingo", "ultrabert"),
    },
    "layers": {"longcat_flash"},  # each holds two attentions
    "num_attention_heads": {"jetmoe"},  # num_key_value_heads x num_experts_per_tok
}


@pytest.fixture(scope="module")
def as_written() -> list[Row]:
    return list(read(written_out=False))


@pytest.fixture(scope="module")
def as_saved() -> list[Row]:
    return list(read(written_out=True))


def counts(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """Of each fact, how many configs differ in it, and of how many nothing speaks against it."""
    differ = Counter(about for row in rows for about in row.differ)
    untold = Counter(about for row in rows for about in row.untold)
    return {about: (count, untold[about]) for about, count in differ.items()}


def test_every_difference_is_counted_here(as_written: list[Row], as_saved: list[Row]) -> None:
    assert counts(as_written) == AS_WRITTEN
    assert counts(as_saved) == AS_SAVED
    assert sum(not row.differ for row in as_saved) > 550  # read as the class does


def test_what_no_key_of_a_whole_file_tells(as_saved: list[Row]) -> None:
    untold: dict[str, set[str]] = {}
    for row in as_saved:
        for about in row.untold - {"attention_parameters"}:
            untold.setdefault(about, set()).add(row.model_type)
    assert untold == UNTOLD


def test_a_report_says_what_was_assumed_of_each_fact_that_differs(
    as_written: list[Row], as_saved: list[Row]
) -> None:
    for row in (*as_written, *as_saved):
        said = {one.about: one for one in row.spec.assumptions}
        assert row.differ <= said.keys(), row.model_type
        assert all(said[about].taken and said[about].source for about in row.differ)
