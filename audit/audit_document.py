"""An audit as JSON: an interface with stable keys, raw integers, `schema_version` first."""

from collections.abc import Mapping
from math import isfinite

from headcount.model.mixers import LowRankAttention, Mixer, Parts
from headcount.model.sizes import Sizes, mha_ratio
from headcount.model.spec import Layer

from .audited import Audit

_SCHEMA_VERSION = 1


def audit_document(audit: Audit, sizes: Sizes, *, explain: bool = False) -> Mapping[str, object]:
    """The JSON report: an interface with stable keys."""
    spec, source = audit.spec, audit.source
    result: dict[str, object] = {
        "schema_version": _SCHEMA_VERSION,
        "model": {
            "id": source.id,
            "model_type": spec.model_type,
            "source": source.kind,
            "config_of": source.entry.config_of if source.entry else None,
            "revision": source.revision,
            "dtype": spec.dtype,
            "max_position_embeddings": spec.max_position_embeddings,
            "assumed": spec.assumed,
            "assumptions": [assumption._asdict() for assumption in spec.assumptions],
        },
        "request": {
            "context": sizes.context,
            "encoder_tokens": sizes.encoder_tokens,
            "batch_size": sizes.batch_size,
            "kv_dtype": sizes.kv_dtype,
            "engine": "transformers",
        },
        "totals": {
            "parameters": spec.parameters,
            "parameters_source": spec.parameters_source,
            "parameters_unknown": spec.parameters_unknown,
            "active_parameters": audit.active_parameters,
            "attention_parameters": audit.attention_parameters,
            "cache_bytes": sum(sizes.layer_bytes(layer) for layer in spec.layers),
            "cache_bytes_of_first_token": spec.cache_bytes_of_first_token(bits=sizes.bits),
            "cache_bytes_per_token": spec.cache_bytes_per_token(
                bits=sizes.bits, within=spec.longest(sizes.context)
            ),
            "constant_state_bytes": spec.constant_state_bytes(
                batch_size=sizes.batch_size, bits=sizes.bits
            ),
            "mha_ratio": mha_ratio(spec, sizes),
        },
        "layers": [_layer_document(audit, sizes, layer) for layer in spec.layers],
        "findings": [finding.document() for finding in audit.findings],
    }
    if audit.inventory is not None:
        from .weights_report import weights_document

        result["weights"] = weights_document(audit.inventory)
    if audit.is_weighed_by_config:
        from .stored_by_config import stored_by_config

        result["stored"] = stored_by_config(audit).document()
    if source.gguf is not None:
        from .gguf_report import type_document

        result["types"] = type_document(audit)
    if explain:
        result["origins"] = {
            name: {"value": _plain(origin.value), "source": origin.source}
            for name, origin in sorted(spec.origins.items())
        }
    return result


def _plain(value: object) -> object:
    """A config's value without the `Infinity` and `NaN` that JSON does not know: as strings."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _layer_document(audit: Audit, sizes: Sizes, layer: Layer) -> dict[str, object]:
    return {
        "index": layer.index,
        "stack": layer.stack,
        "mixers": [
            _mixer_document(mixer, parts, sizes)
            for mixer, parts in zip(layer.mixers, audit.mixer_parts(layer), strict=True)
        ],
        "attention_parameters": audit.layer_parts(layer).total,
        "cache_bytes": sizes.layer_bytes(layer),
        "shares_cache_with": layer.shares_cache_with,
    }


def _mixer_document(mixer: Mixer, parts: Parts, sizes: Sizes) -> dict[str, object]:
    names = ("q", "k", "v", "o", "norm", "other")
    return {
        "kind": mixer.kind,
        "form": getattr(mixer, "form", None),
        "heads": mixer.heads,
        "num_attention_heads": mixer.num_attention_heads,
        "num_key_value_heads": mixer.num_key_value_heads,
        "group_size": mixer.group_size,
        "head_dim": mixer.head_dim,
        "v_head_dim": mixer.v_head_dim,
        "window": mixer.window,
        "parameters": parts.total,
        "parameters_by_part": {name: getattr(parts, name) for name in names},
        "cache_bytes": sizes.mixer_bytes(mixer),
        **({"latent_rank": mixer.latent_rank} if isinstance(mixer, LowRankAttention) else {}),
    }
