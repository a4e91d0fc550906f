"""The audit of a GGUF file: its key-values held against its own tensors."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.architecture import Stored
from headcount.arch.attention.shape import AttentionShape
from headcount.arch.gguf.names import GGUF_FILE, NAMELESS
from headcount.arch.gguf.spec import gguf_spec
from headcount.arch.parameters import Expected
from headcount.arch.registry import gguf_of
from headcount.model.mixers import Attention, LatentAttention, Mixer, Recurrent
from headcount.model.spec import Layer, ModelSpec
from headcount.report.report import Finding
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.found import FoundModel
from headcount.sources.safetensors import TensorInfo

from .against_weights import stored_parts
from .audited import Audit
from .census import Census, Placed, count_parts, take_census
from .inventory import take_inventory
from .observe import correct
from .rules import files, geometry
from .rules.rule import in_order, run
from .rules.weight_facts import WeightFacts

# Tables of angles that a converter computed: not parameters.
_TABLES = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})

# A tensor of a recurrent mixer: of its own kind, or a projection where nothing else attends.
_IN_MIXER = re.compile(r"blk\.(\d{1,5})\.(ssm_|time_mix_|shortconv\.|attn_(?!norm))", re.ASCII)


def audit_gguf(source: FoundModel, metadata: Mapping[str, Any], checkpoint: Checkpoint) -> Audit:
    """Audits the model of a GGUF file. Raises HeadcountError."""
    spec = _fitted(gguf_spec(metadata, source.where), checkpoint)
    form = gguf_of(spec.model_type)
    architecture = GGUF_FILE if form.named else NAMELESS
    # Shapes are those of the parameters whatever the type: blocks of codes are not packed columns.
    names = dict.fromkeys((layer.stored_in for layer in spec.layers), architecture.names)
    census = replace(take_census(checkpoint, spec, names), packed=False)
    spec = _with_what_stands_beside(spec, census)
    normed = replace(architecture, attention=AttentionShape(norm=_norm(checkpoint.tensors)))
    corrected, observed = correct(spec, census, normed, checkpoint.tensors)
    held = sum(t.elements for t in checkpoint.tensors.values() if t.name not in _TABLES)
    facts = WeightFacts(
        spec=replace(spec, dtype=None),  # the cache's: weights of every type go with it
        architecture=architecture,
        stored=Stored(other_head=form.drafts),
        where=source.where,
        checkpoint=checkpoint,
        census=census,
        inventory=take_inventory(
            checkpoint.tensors,
            census,
            names,
            spec,
            copies=frozenset(),
            buffers=_TABLES,
            bits=None,
        ),
        observed=observed,
        has_head=spec.is_cached,
        expected=Expected({}, None, False),
        counted=None,
        idle=None,
        quantisation=None,
        beside=False,
        left_out=frozenset(),
        prediction=0,
    )
    findings = _findings(facts)
    lacking = any(one.code == "H103" and one.severity == "error" for one in findings)
    counted = None if checkpoint.missing or lacking else held
    return Audit(
        source=replace(source, stored_as=_main_types(census)),
        spec=replace(
            corrected,
            parameters=counted,
            parameters_source=None if counted is None else "headers",
            parameters_unknown="the file lacks tensors of its layers" if lacking else None,
        ),
        architecture=architecture,
        census=census,
        stored=stored_parts(census, corrected),
        findings=findings,
    )


def _fitted(spec: ModelSpec, checkpoint: Checkpoint) -> ModelSpec:
    """What only the tensors tell: a tied head, and layers whose values are their keys."""
    names = checkpoint.tensors
    return replace(
        spec,
        tie_word_embeddings="output.weight" not in names,
        layers=tuple(_without_value(layer, names) for layer in _with_weights(spec.layers, names)),
    )


def _norm(names: Mapping[str, TensorInfo]) -> str:
    """Whether the norms of q are one per head: no key says it, but they are shorter than q."""
    for name, norm in names.items():
        query = names.get(name.replace("attn_q_norm", "attn_q"))
        if ".attn_q_norm." in name and query is not None and query is not norm:
            return "head" if norm.shape[0] < query.shape[0] else "none"
    return "none"


def _with_what_stands_beside(spec: ModelSpec, census: Census) -> ModelSpec:
    """Norms, gates and the like of attention, which no key tells of, as the tensors have them."""

    def fitted(mixer: Mixer, placed: tuple[Placed, ...]) -> Mixer:
        if not isinstance(mixer, Attention | LatentAttention) or not placed:
            return mixer
        said, held = mixer.parameters(), count_parts(placed, mixer)
        if (said.norm or not held.norm) and (said.other or not held.other):
            return mixer
        return replace(
            mixer,
            norm_parameters=mixer.norm_parameters if said.norm else held.norm,
            other_parameters=mixer.other_parameters if said.other else held.other,
        )

    layers = tuple(
        replace(
            layer,
            mixers=tuple(fitted(m, census.layers.get(key, ())) for key, m in layer.keyed_mixers()),
        )
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def _with_weights(layers: tuple[Layer, ...], names: Mapping[str, TensorInfo]) -> tuple[Layer, ...]:
    """Recurrent mixers with the parameters that their layer's tensors hold."""
    weights, norms = Counter[int](), Counter[int]()
    recurrent = {la.index: la for la in layers if any(m.kind == "recurrent" for m in la.mixers)}
    for tensor in names.values() if recurrent else ():
        found = _IN_MIXER.match(tensor.name)
        layer = recurrent.get(int(found[1])) if found else None
        if found is None or layer is None or (found[2] == "attn_" and len(layer.mixers) > 1):
            continue
        (norms if "norm" in tensor.name else weights)[layer.index] += tensor.elements
    return tuple(
        replace(
            layer,
            mixers=tuple(
                replace(mixer, weights=weights[layer.index], norms=norms[layer.index])
                if isinstance(mixer, Recurrent)
                else mixer
                for mixer in layer.mixers
            ),
        )
        for layer in layers
    )


def _without_value(layer: Layer, names: Mapping[str, TensorInfo]) -> Layer:
    block = f"blk.{layer.index}."
    if f"{block}attn_k.weight" not in names or f"{block}attn_v.weight" in names:
        return layer
    mixers = (
        replace(mixer, has_value=False) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )
    return replace(layer, mixers=tuple(mixers))


def _findings(facts: WeightFacts) -> tuple[Finding, ...]:
    """What the rules find, with the cure that a GGUF file has."""
    hint = "the file's key-values and its tensors disagree: convert the model again"
    found = in_order(run((*geometry.RULES, *files.RULES), facts))
    return tuple(
        finding._replace(hint=hint) if "config.json" in finding.hint else finding
        for finding in found
    )


def _main_types(census: Census) -> str:
    """`Q4_K` or `Q4_K/Q6_K`: the types that hold a tenth of the bytes or more."""
    total = sum(census.bytes_by_dtype.values())
    return "/".join(name for name, size in census.bytes_by_dtype.items() if size * 10 >= total)
