"""The documents of the light commands."""

from .notation import (
    ANY,
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    VERSION,
    Schema,
    by_name,
    either,
    fields,
    many,
    maybe,
    obj,
    said,
    word,
)

FINDING = obj(
    {
        "code": {"type": "string", "pattern": "^H[0-9]{3}$"},
        "severity": word("error", "warning", "note"),
        **fields(TEXT, "where", "message", "hint"),
    }
)
# In the place of one of several models.
ERROR = obj({"error": TEXT, "model": obj({"id": TEXT})})

_MIXER = obj(
    {
        "kind": TEXT,
        "form": maybe(TEXT),
        "heads": maybe(word("MHA", "GQA", "MQA", "MLA")),
        **fields(maybe(COUNT), "num_attention_heads", "num_key_value_heads", "group_size"),
        **fields(maybe(COUNT), "head_dim", "v_head_dim", "window"),
        "parameters": COUNT,
        "parameters_by_part": obj(fields(COUNT, "q", "k", "v", "o", "norm", "other")),
        "cache_bytes": said(COUNT, "at the request's context and batch"),
    },
    {"latent_rank": COUNT},
)
_LAYER = obj(
    {
        "index": COUNT,
        "stack": word("decoder", "encoder"),
        "mixers": many(_MIXER),
        "attention_parameters": said(COUNT, "of all mixers but recurrent ones"),
        "cache_bytes": COUNT,
        "shares_cache_with": said(maybe(COUNT), "the layer whose cache this one reads"),
    }
)
_STORED = fields(COUNT, "tensors", "parameters", "bytes")
_SCAN = obj(
    {
        "tensors": COUNT,
        "odd_tensors": many({"type": "object"}),
        "layers": many({"type": "object"}),
        "tied": many({"type": "object"}),
    }
)
_VERIFY = obj(
    {
        **fields(TEXT, "model_class", "transformers"),
        "cache_tokens": many(COUNT),
        "compared": many({"type": "object"}),
        "not_compared": many(obj(fields(TEXT, "what", "reason"))),
        "differences": many({"type": "object"}),
    }
)
AUDIT = obj(
    {
        "schema_version": VERSION,
        "model": obj(
            {
                "id": TEXT,
                "model_type": TEXT,
                "source": word("catalogue", "hub", "folder", "config", "file"),
                **fields(maybe(TEXT), "config_of", "revision", "dtype"),
                "max_position_embeddings": maybe(COUNT),
                "assumed": said(FLAG, "whether nothing describes this model_type"),
                "assumptions": many(
                    obj({**fields(TEXT, "about", "taken", "source"), "doubt": maybe(TEXT)})
                ),
            }
        ),
        "request": obj(
            {
                **fields(COUNT, "context", "encoder_tokens", "batch_size"),
                "kv_dtype": TEXT,
                "engine": word("transformers"),
            }
        ),
        "totals": obj(
            {
                "parameters": maybe(COUNT),
                "parameters_source": maybe(word("headers", "config", "catalogue", "published")),
                "parameters_unknown": said(maybe(TEXT), "why the config does not give the total"),
                "active_parameters": said(maybe(COUNT), "those that a token visits"),
                "attention_parameters": COUNT,
                "cache_bytes": said(COUNT, "at the request's context and batch"),
                "cache_bytes_of_first_token": said(COUNT, "of a token, while no window is full"),
                "cache_bytes_per_token": said(
                    COUNT, "of one more token, once every window is full"
                ),
                "constant_state_bytes": said(COUNT, "state that does not grow"),
                "mha_ratio": said(NUMBER, "times smaller than with a K/V head for each head"),
            }
        ),
        "layers": many(_LAYER),
        "findings": many(FINDING),
    },
    {
        "weights": said(
            obj(
                {
                    **fields(COUNT, "bytes", "parameters"),
                    "by_dtype": many(obj({"dtype": TEXT, **_STORED})),
                    "by_part": many(obj({"part": TEXT, **_STORED})),
                }
            ),
            "what the headers hold",
        ),
        "stored": said(
            obj({"bytes": maybe(COUNT), "source": word("config"), "why": TEXT}),
            "what a quantisation makes of the config",
        ),
        "types": said(many({"type": "object"}), "the element types of a GGUF file"),
        "origins": said(
            by_name(obj({"value": ANY, "source": TEXT})), "--explain: where values came from"
        ),
        "scan": said(_SCAN, "--scan"),
        "verify": said(_VERIFY, "--verify"),
    },
)

_SIDES = obj({"a": ANY, "b": ANY})
DIFF = obj(
    {
        "schema_version": VERSION,
        "models": {**many(obj(fields(TEXT, "id", "source"))), "minItems": 2, "maxItems": 2},
        "request": obj(fields(COUNT, "context", "batch_size")),
        "same": FLAG,
        "model": said(by_name(_SIDES), "fields of the models that differ"),
        "layers": many(
            obj(
                {
                    "stack": word("decoder", "encoder"),
                    "index": COUNT,
                    "fields": by_name(_SIDES),
                }
            )
        ),
    }
)

_VERDICT = word("fits", "borderline", "does not fit", "does not start")
_PRICE = fields(maybe(NUMBER), "an_hour", "a_month")
_CANDIDATE: dict[str, Schema] = {
    "device": TEXT,
    **fields(COUNT, "tp", "pp", "replicas", "devices", "cards"),
    "enable_expert_parallel": FLAG,
    "total_memory": maybe(COUNT),
    "fits": maybe(FLAG),
    "verdict": maybe(_VERDICT),
    "refusals": many(TEXT),
    "batch_size": COUNT,
    "available_kv_bytes": INTEGER,
    "kv_tokens": maybe(COUNT),
    "concurrency": said(maybe(NUMBER), "of each replica; null: without a limit"),
    "max_context": maybe(COUNT),
    "launch_command": maybe(TEXT),
}
_ENDS = fields(maybe(NUMBER), "concurrency_low", "concurrency_high")
_PERHAPS = maybe(obj({**_CANDIDATE, **_ENDS}, _PRICE))
_HARDWARE: dict[str, Schema] = {
    **_CANDIDATE,
    "perhaps": said(_PERHAPS, "the fewest cards that are borderline, where those are fewer"),
}
_TERM = obj(
    {
        "key": TEXT,
        **fields(INTEGER, "bytes", "error_bytes"),
        **fields(TEXT, "formula", "source"),
    }
)
_CHANGE = obj(
    {
        "change": TEXT,
        "value": ANY,
        "text": TEXT,
        "verdict": maybe(_VERDICT),
        "kv_tokens": maybe(COUNT),
        "concurrency": maybe(NUMBER),
    }
)
_ENGINE = obj(
    {
        "name": TEXT,
        **fields(maybe(TEXT), "version", "device"),
        "kv_memory": maybe(COUNT),
        **fields(COUNT, "context", "batch_size"),
        "kv_dtype": TEXT,
        **fields(COUNT, "tp", "pp", "replicas", "devices", "cards", "context_ranks"),
        "utilisation": maybe(NUMBER),
        **fields(INTEGER, "available_kv_bytes", "available_kv_low", "available_kv_high"),
        **fields(many(_TERM), "budget", "host"),
        **fields(maybe(COUNT), "block_size", "num_blocks", "kv_tokens"),
        "rank_cache_bytes_per_token": COUNT,
        "concurrency": said(maybe(NUMBER), "as in the engine's log, unrounded"),
        **fields(maybe(COUNT), "max_concurrency", "max_context"),
        "fits": maybe(FLAG),
        "verdict": maybe(_VERDICT),
        "limiting_term": maybe(TEXT),
        "smallest_change": maybe(_CHANGE),
        "changes": many(_CHANGE),
        "launch_command": maybe(TEXT),
        "launch_notes": many(TEXT),
        "curve": many(
            obj({"context": COUNT, "concurrency": maybe(NUMBER), "request_bytes": COUNT})
        ),
        "batch_curve": many(obj({"batch_size": COUNT, "cache_bytes": COUNT, "fits": maybe(FLAG)})),
        "conversion": many(
            obj(
                {
                    "name": TEXT,
                    "num_key_value_heads": maybe(COUNT),
                    "current": FLAG,
                    "rank_cache_bytes_per_token": COUNT,
                    "kv_tokens": maybe(COUNT),
                    "concurrency": maybe(NUMBER),
                    "max_context": maybe(COUNT),
                    "fits": maybe(FLAG),
                    **fields(COUNT, "kv_copies", "replicated_kv_bytes"),
                }
            )
        ),
        "requirements": many(
            obj(
                {
                    "require": TEXT,
                    **fields({"type": ["boolean", "number", "null"]}, "found", "low"),
                    "holds": FLAG,
                }
            )
        ),
        "holds": FLAG,
        "target_users": maybe(COUNT),
        **fields(many(obj(_CANDIDATE, _PRICE)), "options", "smallest"),
        "perhaps": said(_PERHAPS, "borderline, and less than what surely serves"),
        "notes": many(TEXT),
    },
    _PRICE,
)
_MEMORY = obj(
    {
        "weights_bytes": maybe(COUNT),
        "kv_cache_bytes": COUNT,
        "overhead_bytes": by_name(INTEGER),
        **fields(maybe(INTEGER), "total_bytes", "usable_bytes", "budget_bytes", "free_bytes"),
        "loading_bytes": maybe(COUNT),
        "formulas": by_name(TEXT),
    }
)
_WHAT_IF = obj(
    {
        "name": TEXT,
        **fields(maybe(COUNT), "num_key_value_heads", "group_size"),
        "current": FLAG,
        **fields(maybe(COUNT), "weights_bytes", "rank_cache_bytes_per_token", "kv_cache_bytes"),
        "total_bytes": maybe(COUNT),
        "mha_ratio": maybe(NUMBER),
        "fits": maybe(FLAG),
        **fields(maybe(COUNT), "max_context", "max_batch_size"),
    },
    {"pruned_to": COUNT, "converted_by": TEXT},
)
PLAN = obj(
    {
        "schema_version": VERSION,
        "model": obj(
            {
                **fields(TEXT, "id", "model_type"),
                "parameters": maybe(COUNT),
                **fields(maybe(TEXT), "parameters_source", "dtype"),
                "max_position_embeddings": maybe(COUNT),
            }
        ),
        "request": obj(
            {
                **fields(COUNT, "context", "encoder_tokens", "batch_size"),
                "dtype": maybe(TEXT),
                "kv_dtype": TEXT,
                "tp": COUNT,
                "device": maybe(TEXT),
                "utilisation": maybe(NUMBER),
            }
        ),
        "memory": said(_MEMORY, "of one rank, that is, of one device"),
        "fits": maybe(FLAG),
        "verdict": maybe(_VERDICT),
        "refusals": many(TEXT),
        "limits": obj(
            {
                **fields(maybe(COUNT), "max_context", "max_batch_size"),
                "context_is_capped": maybe(FLAG),
            }
        ),
        "per_rank": obj(
            {
                "ranks": COUNT,
                **fields(maybe(COUNT), "num_attention_heads", "num_key_value_heads"),
                "kv_copies": COUNT,
                "rank_cache_bytes_per_token": COUNT,
                "replicated_cache_bytes": COUNT,
                "replicated_weights_bytes": maybe(COUNT),
            }
        ),
        "decode_tokens_per_second": said(maybe(NUMBER), "an upper bound, by bandwidth"),
        "devices": many(
            obj(
                {
                    "device": TEXT,
                    **fields(maybe(INTEGER), "usable_bytes", "budget_bytes", "free_bytes"),
                    "fits": maybe(FLAG),
                    "verdict": maybe(_VERDICT),
                    **fields(maybe(COUNT), "max_context", "max_batch_size"),
                    "replicas": COUNT,
                    **fields(maybe(COUNT), "smallest_tp", "smallest_devices"),
                    "decode_tokens_per_second": maybe(NUMBER),
                },
                _PRICE,
            )
        ),
        "hardware": many(obj(_HARDWARE, _PRICE)),
        "what_if": many(_WHAT_IF),
        **fields(many(TEXT), "assumptions", "warnings"),
        "findings": many(FINDING),
    },
    {"engine": said(_ENGINE, "what an engine counts in words of its own")},
)
_OVERVIEW = obj(
    {
        "schema_version": VERSION,
        "hardware": many(obj({"model": TEXT, **_HARDWARE}, _PRICE)),
        "plans": many(either(PLAN, ERROR)),
    }
)

_FIGURE = obj(
    {
        "figure": TEXT,
        "logged": ANY,
        "predicted": ANY,
        **fields(maybe(NUMBER), "low", "high"),
        "agrees": maybe(FLAG),
        "why": TEXT,
    }
)
_EXPLANATION = obj(
    {
        **fields(TEXT, "failure", "cause"),
        **fields(maybe(INTEGER), "needed_bytes", "reckoned_bytes", "available_bytes"),
        "too_large": maybe(TEXT),
        **fields(maybe(COUNT), "largest_context", "logged_context"),
        "shares": many(obj({"term": TEXT, "bytes": INTEGER, "source": word("logged", "estimate")})),
        "changes": many(
            obj(
                {
                    "change": TEXT,
                    "value": ANY,
                    "text": TEXT,
                    "command": maybe(TEXT),
                    "kv_tokens": maybe(COUNT),
                    "concurrency": maybe(NUMBER),
                }
            )
        ),
        "advice": many(TEXT),
    }
)
_LOG: dict[str, Schema] = {
    **fields(TEXT, "log", "engine", "model", "verdict"),
    "figures": said(many(_FIGURE), "first what a start that failed died of"),
    "explanation": maybe(_EXPLANATION),
    "error": said(maybe(TEXT), "why one of several was not read"),
}


def _list(name: str, row: Schema) -> Schema:
    """A document that is a list."""
    return obj({"schema_version": VERSION, name: many(row)})


_TABLES = {
    "key_value_heads": many(
        obj(
            fields(
                COUNT, "num_key_value_heads", "group_size", "cache_bytes", "key_value_parameters"
            )
        )
    ),
    "other_heads": many(
        obj(fields(COUNT, "num_attention_heads", "head_dim", "projection_weights"))
    ),
}
_TOPIC = obj(
    {
        "schema_version": VERSION,
        **fields(TEXT, "topic", "question"),
        "model": obj({"id": TEXT, "by_default": FLAG, "mixers": many(TEXT)}),
        "applies": FLAG,
        "text": many(TEXT),
        "sums": many(obj({**fields(TEXT, "key", "formula", "filled", "unit"), "value": NUMBER})),
        "sources": many(TEXT),
    },
    _TABLES,
)
DOCUMENTS: dict[str, Schema] = {
    "audit": either(AUDIT, many(either(AUDIT, ERROR))),
    "diff": DIFF,
    "plan": either(PLAN, _OVERVIEW),
    "reconcile": either(
        obj({"schema_version": VERSION, **_LOG}), _list("reconciliations", obj(_LOG))
    ),
    "models": _list(
        "models",
        obj(
            {
                **fields(TEXT, "id", "aliases"),
                "model_type": maybe(TEXT),
                "parameters": maybe(COUNT),
                "auditable": word("yes", "not yet"),
            }
        ),
    ),
    "families": _list(
        "families",
        obj(
            {
                "model_type": TEXT,
                "mixers": many(TEXT),
                **fields(TEXT, "bias", "norm", "source"),
                "reads": maybe(TEXT),
            }
        ),
    ),
    "devices": _list(
        "devices",
        obj(
            {
                **fields(TEXT, "key", "name", "vendor", "platform", "usable_source", "source"),
                **fields(COUNT, "per_card", "memory", "usable_memory"),
                **fields(maybe(NUMBER), "bandwidth", "flops"),
                "capability": maybe(TEXT),
                "aliases": many(TEXT),
            }
        ),
    ),
    "rules": _list(
        "rules",
        obj(
            {
                **fields(TEXT, "code", "name", "reads", "says"),
                "severity": word("error", "warning", "note"),
            }
        ),
    ),
    "explain": either(_TOPIC, _list("topics", obj(fields(TEXT, "topic", "question")))),
}
