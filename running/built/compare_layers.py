"""An audit's counts from the config alone, held against the model that transformers builds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from headcount.arch.architecture import Verification
from headcount.arch.read_config import read_config
from headcount.arch.registry import architecture_of
from headcount.audit.audited import Audit, counted
from headcount.audit.rules.verified import Compared, Unlike, VerifyFacts
from headcount.model.errors import HeadcountError, UnsupportedModelError
from headcount.model.mixers import Mixer, Parts
from headcount.model.spec import Layer, ModelSpec

from ..boundary import quiet_transformers, third_party
from .built_layers import BuiltLayer, BuiltMixer, layers_of
from .compare_caches import ComparedCaches, LayerKey, compare_caches
from .meta_model import NotInTransformersError, build_on_meta, total_parameters


def compare_with_built(audit: Audit) -> VerifyFacts:
    """Builds and runs, on the meta device, what the config of `audit` describes.

    Raises HeadcountError when transformers alone cannot build it, or its modules are not known.
    """
    config, source = audit.source.config, audit.source
    if source.gguf is not None or config is None:
        raise UnsupportedModelError(
            f"{source.id}: --verify holds a config.json against transformers, and here is none:"
            " name the folder, or org/name of the Hub, that the file was made from"
        )
    spec = counted(read_config(config, source.where), source)
    with quiet_transformers():
        model = _built(config, source.where)
        _refuse_unmatched(model, source.where)
        scattered = _verification(model.config.model_type).scattered
        layers = _under_own_name(_layers(model, source.where, scattered), spec)
        crosses = any(mixer.kind == "cross" for layer in layers for mixer in layer.mixers)
        held = _NO_CACHES if scattered else compare_caches(spec, model, crosses=crosses)
    own = list(spec.layers) if scattered else _of_stacks(spec, layers)
    totals = tuple(_total(spec, model, config))
    sums = tuple(_sums(own, layers))
    return VerifyFacts(
        built_as=type(model).__name__,
        compared=(*sums[scattered:], *totals, *held.compared),
        lengths=held.lengths,
        unlike=(
            *(_unlike_sums(sums[1:]) if scattered else joined(_unlike_layers(own, layers))),
            *(
                Unlike("total", "parameters", "", (), *two[1:])
                for two in totals
                if two[1] != two[2]
            ),
            *joined(held.unlike, "cache"),
        ),
        left_out=(*_left_out(spec, own, bool(totals)), *held.left_out),
    )


_NO_CACHES = ComparedCaches(
    left_out=(("layers one by one, cache", "its attention does not stand in one list of layers"),)
)


def _built(config: Mapping[str, Any], where: str) -> PreTrainedModel:
    try:
        with third_party(f"{where}: transformers cannot build it"):
            return build_on_meta(config, read_as=_read_as(config))
    except NotInTransformersError as error:
        raise NotInTransformersError(f"{where}: cannot be verified: {error}") from error


def _read_as(config: Mapping[str, Any]) -> str | None:
    found = architecture_of(str(config.get("model_type")))
    return found.config.read_as if found else None


def _refuse_unmatched(model: PreTrainedModel, where: str) -> None:
    config = model.config
    for model_type in (config.model_type, config.get_text_config(decoder=True).model_type):
        reason = _verification(model_type).refused
        if reason is not None:
            raise UnsupportedModelError(f"{where}: cannot be verified: {reason}")


def _verification(model_type: str) -> Verification:
    found = architecture_of(model_type)
    return found.verification if found else Verification()


def _layers(model: PreTrainedModel, where: str, scattered: bool) -> list[BuiltLayer]:
    try:
        return layers_of(model, scattered=scattered)
    except (LookupError, AttributeError, NotImplementedError) as error:
        name = type(model).__name__
        raise HeadcountError(f"{where}: cannot be verified: {name} has no known layers") from error


def _sums(own: list[Layer], layers: list[BuiltLayer]) -> Iterator[Compared]:
    yield Compared("Layers", len(own), len(layers))
    for what, wanted in (("Attention parameters", False), ("Recurrent parameters", True)):
        mine = sum(m.parameters().total for la in own for m in _mixers(la, recurrent=wanted))
        true = sum(m.total for la in layers for m in _built_mixers(la, recurrent=wanted))
        if mine or true or not wanted:
            yield Compared(what, mine, true)


def _total(
    spec: ModelSpec, model: PreTrainedModel, config: Mapping[str, Any]
) -> Iterator[Compared]:
    """None for a model without its head, where the config did not ask for that."""
    headless = type(model).__name__.endswith("Model") and not config.get("architectures")
    if spec.parameters is not None and not headless:
        yield Compared("Parameters", spec.parameters, total_parameters(model))


def _under_own_name(layers: list[BuiltLayer], spec: ModelSpec) -> list[BuiltLayer]:
    """A single stack is called after the audit's: what was built does not tell an encoder."""
    if {layer.stack for layer in layers} != {"decoder"} or _has_decoder(spec):
        return layers
    return [replace(layer, stack="encoder") for layer in layers]


def _has_decoder(spec: ModelSpec) -> bool:
    return any(layer.stack == "decoder" for layer in spec.layers)


def _of_stacks(spec: ModelSpec, layers: list[BuiltLayer]) -> list[Layer]:
    """Those of the language model: a tower of images has its own modules, and one of text is built
    as an encoder. Where there are more of them than modules, those whose tensors have one number
    are one module: ALBERT's group of layers, LongCat's two attentions of a block."""
    stacks = {layer.stack for layer in layers}
    text = [replace(la, stack="encoder") if la.stack == "text" else la for la in spec.layers]
    own = [layer for layer in text if layer.stack in stacks]
    if len(own) == len(layers):
        return own
    modules: dict[tuple[str, str, int], tuple[Mixer, ...]] = {}
    for layer in (layer for layer in own if not layer.is_again):
        key = (layer.stack, layer.stored_in, layer.stored_as)
        modules[key] = (*modules.get(key, ()), *layer.mixers)
    place = Counter[str]()
    merged = []
    for (stack, _, _), mixers in modules.items():
        merged.append(Layer(index=place[stack], stack=stack, mixers=mixers))
        place[stack] += 1
    return merged


def _mixers(layer: Layer, *, recurrent: bool) -> list[Mixer]:
    """Those with parameters: another runs a module of an earlier layer again."""
    mixers = (mixer for mixer in layer.mixers if (mixer.kind == "recurrent") == recurrent)
    return [mixer for mixer in mixers if mixer.parameters().total]


def _built_mixers(layer: BuiltLayer, *, recurrent: bool) -> list[BuiltMixer]:
    mixers = (mixer for mixer in layer.mixers if (mixer.kind == "recurrent") == recurrent)
    return [mixer for mixer in mixers if mixer.total]


def _unlike_sums(sums: Iterable[Compared]) -> Iterator[Unlike]:
    for what, mine, true in sums:
        if mine != true:
            yield Unlike("attention", what, "", (), mine, true)


def _unlike_layers(
    own: list[Layer], layers: list[BuiltLayer]
) -> Iterator[tuple[LayerKey, tuple[str, int, int]]]:
    """(stack, index) and (detail, audited, built) of everything that differs."""
    mine = {(layer.stack, layer.index): layer for layer in own}
    true = {(layer.stack, layer.index): layer for layer in layers}
    for key in mine.keys() ^ true.keys():
        yield key, ("layers", int(key in mine), int(key in true))
    for key in sorted(mine.keys() & true.keys()):
        for found in _unlike_mixers(mine[key], true[key]):
            yield key, found


def _unlike_mixers(layer: Layer, built: BuiltLayer) -> Iterator[tuple[str, int, int]]:
    own, true = _mixers(layer, recurrent=False), _built_mixers(built, recurrent=False)
    if len(own) != len(true):
        yield "attention modules", len(own), len(true)
        return
    for mixer, module in zip(own, true, strict=True):
        for part, mine, there in _by_part(mixer.parameters(), module.parts):
            if mine != there:
                yield part, mine, there
    mine = sum(mixer.parameters().total for mixer in _mixers(layer, recurrent=True))
    there = sum(mixer.total for mixer in _built_mixers(built, recurrent=True))
    if mine != there:
        yield "recurrent mixers", mine, there


def _by_part(parts: Parts, built: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Each part alike, or the sum of q, k and v where the module fuses some of them."""
    fused = "qkv" in built or "kv" in built
    if fused:
        there = sum(built.get(name, 0) for name in ("q", "k", "v", "kv", "qkv"))
        yield "q + k + v", parts.q + parts.k + parts.v, there
    for name in ("o", "norm", "other") if fused else ("q", "k", "v", "o", "norm", "other"):
        yield name, getattr(parts, name), built.get(name, 0)


def joined(
    found: Iterable[tuple[LayerKey, tuple[str, int, int]]], what: str = "attention"
) -> Iterator[Unlike]:
    """Layers that differ alike are one difference."""
    alike: dict[tuple[str, str, int, int], list[int]] = {}
    for (stack, index), (detail, mine, true) in found:
        alike.setdefault((stack, detail, mine, true), []).append(index)
    for (stack, detail, mine, true), indices in alike.items():
        yield Unlike(what, detail, stack, tuple(sorted(indices)), mine, true)


def _left_out(spec: ModelSpec, own: list[Layer], total: bool) -> Iterator[tuple[str, str]]:
    if spec.parameters is None:
        yield "parameters", "what this type holds outside attention is not described"
    elif not total:
        yield "parameters", "the config names no class, and what was built has no output head"
    stacks = {layer.stack for layer in spec.layers} - {"text", *(la.stack for la in own)}
    for stack in sorted(stacks):
        yield f"{stack} layers", "only the language model's layers are compared"
