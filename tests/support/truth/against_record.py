"""Where what headcount says of a config differs from a line of the record."""

from collections.abc import Callable, Iterator
from typing import Any

from headcount.arch.built_classes import built_class
from headcount.arch.read_config import read_config
from headcount.audit import audit_model
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Parts
from headcount.model.spec import Layer, ModelSpec
from truth_record import CLASS_TOKENS as TOKENS
from truth_record import ENCODER_TOKENS, Line, layers_of, spelled_out

Config = dict[str, Any]


def differences(name: str, line: Line, config: Config | None = None) -> list[str]:
    """Of `line` of the file `name`; of `config` instead of the line's own. Nothing is right."""
    given = line.get("config", {}) if config is None else config
    return list(_CHECKS[name](given, line))


def _language_model(config: Config, line: Line) -> Iterator[str]:
    layers = [la for la in spec_of(config).layers if la.stack != "vision"]
    pairs = [(layer, mixer) for layer in layers for mixer in layer.mixers]
    own = [pair for pair in pairs if pair[1].parameters().total]  # others run a module again
    true = [mixer for _, mixers in layers_of(line) for mixer in mixers]
    if line.get("scattered"):  # modules that stand in no list have no order
        own.sort(key=lambda pair: tuple(pair[1].parameters()))
        true.sort(key=lambda parts: tuple(parts.get(name, 0) for name in Parts._fields))
    if len(own) != len(true):
        yield f"{len(own)} mixers, {len(true)} built"
    for (layer, mixer), built in zip(own, true, strict=False):
        if not agree(mixer.parameters(), built):
            yield f"{layer.stack} {layer.index}: {mixer.parameters()}, built {built}"
    decoder = [layer for layer in layers if layer.stack == "decoder" or _elements(layer, 1)]
    for tokens, held in line["cache"].items():
        said = [_elements(layer, int(tokens)) for layer in decoder]
        if _cut(said) != _cut(spelled_out(held)):
            yield f"cache of {tokens} tokens: {said}, held {spelled_out(held)}"


def _tower(config: Config, line: Line) -> Iterator[str]:
    own = [mixer.parameters() for layer in spec_of(config).layers for mixer in layer.mixers]
    true = [mixer for _, mixers in layers_of(line) for mixer in mixers]
    if len(own) != len(true):
        yield f"{len(own)} mixers, {len(true)} built"
    for parts, built in zip(own, true, strict=False):
        if not agree(parts, built):
            yield f"{parts}, built {built}"


def _stateful(config: Config, line: Line) -> Iterator[str]:
    spec = spec_of(config)
    built = spelled_out(line["layers"])
    said = [_kinds(layer) for layer in spec.layers[: len(built)]]
    if said != built:
        yield f"parameters: {said}, built {built}"
    stacks = line.get("stacks", 1)  # alike, of which one is recorded
    attention = stacks * sum(layer["attention"] for layer in built)
    if spec.attention_parameters != attention:
        yield f"attention in all: {spec.attention_parameters}, built {attention}"
    for tokens, layers in line["states"].items():
        held = [(sum(kinds.values()), nbytes) for kinds, nbytes in spelled_out(layers)]
        keeps = [_kept(layer, int(tokens), line["bits"]) for layer in spec.layers]
        held += [(0, 0)] * (len(keeps) - len(held))
        if keeps != held:
            yield f"state after {tokens} tokens: {keeps}, held {held}"


def _total(config: Config, line: Line) -> Iterator[str]:
    reading = read_config(config, "config.json")
    if reading.total() != (line["parameters"], None):
        yield f"total: {reading.total()}, built {line['parameters']}"
    idle = line.get("idle")
    if idle is not None and reading.idle_parameters() != idle:
        yield f"experts not visited: {reading.idle_parameters()}, built {idle}"


def _classes(config: Config, line: Line) -> Iterator[str]:
    for name, held in line["classes"].items():
        try:
            reading = read_config({**config, "architectures": [name]}, "config.json")
        except InvalidConfigError:  # transformers builds what it cannot run
            continue
        total, why = reading.total()
        if total not in (None, held["parameters"]):
            yield f"{name}: {total} parameters, built {held['parameters']}"
        named = built_class(reading.view)
        if named is not None and named.own_layers and why is not None:
            continue  # said in `why`
        spec = reading.spec
        if spec.attention_parameters != held.get("attention", spec.attention_parameters):
            yield f"{name}: {spec.attention_parameters} of attention, built {held['attention']}"
        encoded = ENCODER_TOKENS if spec.encoder_tokens else 0
        kept = sum(m.state_elements(TOKENS, encoded) for la in spec.layers for m in la.mixers)
        if kept != held.get("cache", kept):
            yield f"{name}: a cache of {kept} elements, held {held['cache']}"


def _catalogue_model(_: Config, line: Line) -> Iterator[str]:
    spec = audit_model(line["model"]).spec
    if spec.parameters != line["parameters"]:
        yield f"total: {spec.parameters}, built {line['parameters']}"
    longest = line["max_position_embeddings"]
    is_said = spec.is_cached or spec.max_position_embeddings is not None  # CLIP is two models
    if longest is not None and is_said and spec.max_position_embeddings != longest:
        yield f"max_position_embeddings: {spec.max_position_embeddings}, read {longest}"
    if spec.dtype != line["dtype"]:
        yield f"dtype: {spec.dtype}, read {line['dtype']}"
    if "mixers" in line:
        said = [_kinds(layer) for layer in spec.layers]
        if said != (built := spelled_out(line["mixers"])):
            yield f"parameters: {said}, built {built}"
        return
    layers = [layer for layer in spec.layers if layer.stack != "vision"]
    true = list(layers_of(line))
    if len(layers) != len(true):
        yield f"{len(layers)} layers, {len(true)} built"
    for layer, (stack, mixers) in zip(layers, true, strict=False):
        own = [mixer.parameters() for mixer in layer.mixers]
        alike = len(own) == len(mixers) and all(map(agree, own, mixers))
        if not alike:
            yield f"{layer.stack} {layer.index}: {own}, built {mixers} ({stack})"
    yield from _catalogue_cache(spec, line)


def _catalogue_cache(spec: ModelSpec, line: Line) -> Iterator[str]:
    decoder = [layer for layer in spec.layers if layer.stack == "decoder"]
    if line["cache"] is None and (held := spec.cache_bytes(tokens=5, bits=16)):
        yield f"a cache of {held} bytes, where the model makes none"
    for tokens, (own, crossing) in (line["cache"] or {}).items():
        said = [sum(m.state_elements(int(tokens), 0) for m in la.mixers) for la in decoder]
        if said != spelled_out(own):
            yield f"cache of {tokens} tokens: {said}, held {spelled_out(own)}"
        cross = [sum(m.state_elements(0, spec.encoder_tokens) for m in la.mixers) for la in decoder]
        if any(cross) and cross != spelled_out(crossing):
            yield f"cache of the encoder: {cross}, held {spelled_out(crossing)}"


_CHECKS: dict[str, Callable[[Config, Line], Iterator[str]]] = {
    **dict.fromkeys(("decoders", "encoder_decoders", "encoders", "multimodal"), _language_model),
    "towers": _tower,
    "states": _stateful,
    "totals": _total,
    "classes": _classes,
    "catalogue": _catalogue_model,
}


def agree(parts: Parts, true: dict[str, int]) -> bool:
    """Each part alike, or the sum of those that the module fuses."""
    fused = sum(true.get(name, 0) for name in ("q", "k", "v", "kv", "qkv"))
    separate = all(getattr(parts, name) == true.get(name, 0) for name in ("q", "k", "v"))
    alike = all(getattr(parts, name) == true.get(name, 0) for name in ("o", "norm", "other"))
    is_fused = "qkv" in true or "kv" in true
    return alike and (parts.q + parts.k + parts.v == fused if is_fused else separate)


def spec_of(config: Config) -> ModelSpec:
    return read_config(config, "config.json").spec


def _elements(layer: Layer, tokens: int) -> int:
    return sum(mixer.state_elements(tokens, ENCODER_TOKENS) for mixer in layer.mixers)


def _kinds(layer: Layer) -> dict[str, int]:
    """Parameters of attention, and of recurrent mixers."""
    recurrent = [m.parameters().total for m in layer.mixers if m.kind == "recurrent"]
    return {"attention": layer.parameters().total, "recurrent": sum(recurrent)}


def _kept(layer: Layer, tokens: int, bits: int) -> tuple[int, int]:
    """Elements and bytes."""
    return (
        sum(mixer.state_elements(tokens) for mixer in layer.mixers),
        sum(mixer.state_bytes(tokens, 0, bits) for mixer in layer.mixers),
    )


def _cut(held: list[int]) -> list[int]:
    """Without empty layers at the end: a cache may have some too many, or too few."""
    while held and not held[-1]:
        held = held[:-1]
    return held
