"""A spec held against its headers: what they correct, what they count, and what is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.architecture import Stored
from headcount.arch.built_classes import class_name, roots_of_class
from headcount.arch.model_classes import model_classes
from headcount.arch.modules.prediction import predicted
from headcount.arch.not_loaded import not_loaded
from headcount.arch.our_types import base_type
from headcount.arch.parameters import Expected, expected_sizes
from headcount.arch.read_config import Reading
from headcount.arch.registry import architecture_of
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Parts
from headcount.model.spec import MixerKey, ModelSpec
from headcount.report.report import Finding
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.found import FoundModel
from headcount.sources.presence import is_there

from .audited import Audit, counted
from .census import Census, copies, count_parts, is_buffer, take_census
from .inventory import Inventory, take_inventory
from .observe import correct
from .rules import content, drafts, elements, files, geometry
from .rules.config_facts import ConfigFacts
from .rules.rule import run
from .rules.weight_facts import WeightFacts

# Files that say how weights are quantised, for engines that do not ask config.json.
_BESIDE = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
# Findings that do not change what is counted.
_BESIDE_COUNTS = frozenset({"H106", "H210", "H211", "H601", "H602"})


def hold_against_weights(
    source: FoundModel, reading: Reading, checkpoint: Checkpoint, config: ConfigFacts
) -> Audit:
    """The audit of a config, as it was read, on the headers of `checkpoint`."""
    spec, architecture = reading.spec, reading.architecture
    is_draft = drafts.joining_matrix(checkpoint, spec.hidden_size) is not None
    checkpoint = drafts.with_numbered_layer(checkpoint) if is_draft else checkpoint
    names = reading.names()
    census = take_census(checkpoint, spec, names, others=reading.towers if reading.nests else None)
    corrected, observed = correct(spec, census, architecture, checkpoint.tensors)
    inventory = _inventory(census, checkpoint, reading, config)
    facts = WeightFacts(
        spec=spec,
        architecture=architecture,
        stored=_stored(spec.model_type),
        where=source.where,
        checkpoint=checkpoint,
        census=census,
        inventory=inventory,
        observed=observed,
        has_head=_has_head(source.config or {}, spec),
        expected=_expected(reading),
        counted=reading.parameters(),
        idle=reading.idle_parameters(),
        quantisation=config.quantisation,
        beside=any(is_there(checkpoint.folder / name) for name in _BESIDE),
        left_out=_left_out(source.config or {}, spec.model_type, checkpoint),
        prediction=predicted(reading),
        roots=_roots(reading, config),
    )
    held = inventory.parameters if facts.whole else None
    counts = counted(reading, source) if held is None else spec
    return Audit(
        source=source,
        spec=replace(
            corrected,
            parameters=counts.parameters if held is None else held,
            parameters_source=counts.parameters_source if held is None else "headers",
        ),
        architecture=architecture,
        census=census,
        stored={} if census.packed else stored_parts(census, corrected),
        findings=run(drafts.RULES, facts) if is_draft else _check(facts),
        inventory=inventory,
    )


def _check(facts: WeightFacts) -> tuple[Finding, ...]:
    """What the rules find; a count that differs is news only where nothing else explains it."""
    rules = (*geometry.RULES, *content.RULES, *files.RULES, *elements.RULES)
    found = run(rules, facts)
    unexplained = all(f.severity == "note" or f.code in _BESIDE_COUNTS for f in found)
    return (*found, *(run(content.LAST, facts) if unexplained else ()))


def _roots(reading: Reading, config: ConfigFacts) -> frozenset[str]:
    """None for a model around others, whose names transformers changes on loading, nor for the
    files of a class that comes with the model."""
    if reading.nests or config.remote_code or reading.foreign is not None:
        return frozenset()
    return roots_of_class(base_type(reading.spec.model_type), class_name(reading.view.config))


def _inventory(
    census: Census, checkpoint: Checkpoint, reading: Reading, config: ConfigFacts
) -> Inventory:
    """Of a format that is not understood the elements are no weights, unless they are as many as
    the config describes."""
    tensors = checkpoint.tensors
    found = take_inventory(
        tensors,
        census,
        reading.names(),
        reading.spec,
        copies=copies(tensors, census, tied=reading.spec.tie_word_embeddings),
        buffers=frozenset(name for name, tensor in tensors.items() if is_buffer(tensor)),
        bits=config.quantisation.bits if config.quantisation else None,
    )
    is_unknown = config.quantisation is not None and config.quantisation.unknown is not None
    is_unread = is_unknown and found.parameters != reading.parameters()
    return found.uncounted() if is_unread else found


def _stored(model_type: str) -> Stored:
    found = architecture_of(base_type(model_type))
    return Stored() if found is None else found.stored


def _expected(reading: Reading) -> Expected:
    """Sizes by the config; none where it does not say them, which is no fault of the weights."""
    spec = reading.spec
    try:
        return expected_sizes(reading.text, _text_type(reading), spec.layers)
    except InvalidConfigError:
        return Expected({}, None, False)


def _text_type(reading: Reading) -> str:
    """The model_type of the language model, which a wrapper nests."""
    inner = reading.text.config.get("model_type")
    nested = reading.text is not reading.view and isinstance(inner, str)
    return str(inner) if nested else base_type(reading.spec.model_type)


def stored_parts(census: Census, spec: ModelSpec) -> dict[MixerKey, Parts]:
    """The attention parameters that the headers hold, per mixer."""
    return {
        key: count_parts(census.layers[key], mixer)
        for layer in spec.layers
        for key, mixer in layer.keyed_mixers()
        if key in census.layers
    }


def _left_out(config: Mapping[str, Any], model_type: str, checkpoint: Checkpoint) -> frozenset[str]:
    """What the class expects in a file and does not load, if it is not what it builds."""
    # A config may name none, or one of before transformers had that name (T5WithLMHeadModel).
    classes = (_class_of(config), *model_classes(base_type(model_type)).values())
    names = next(filter(None, map(not_loaded, classes)), None)
    if names is None:
        return frozenset()
    return frozenset(name for name in checkpoint.tensors if names.search(name))


def _class_of(config: Mapping[str, Any]) -> str:
    """The class that was saved; "" where the config does not name one."""
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def _has_head(config: Mapping[str, Any], spec: ModelSpec) -> bool:
    """Whether the saved class computes logits over the vocabulary: `GPT2LMHeadModel` does,
    `GPT2Model` and `LlamaForSequenceClassification` do not."""
    name = _class_of(config)
    if not name:
        return spec.is_cached
    return name.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel"))
