"""The documents of the commands that run models. What a method writes of itself (`rewritten`) and
what a probe measures in detail is open: objects whose keys are not promised."""

from .documents import FINDING
from .notation import (
    ANY,
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    OPEN,
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

_PLANNED_LAYER: dict[str, Schema] = {
    **fields(COUNT, "index", "num_attention_heads", "head_dim"),
    "num_key_value_heads": obj(fields(COUNT, "before", "after")),
    "padded_attention_heads": maybe(COUNT),
    "pruned_attention_heads": many(COUNT),
    "latent_rank": maybe(COUNT),
}
_ERRORS = obj(fields(NUMBER, "k", "v"))
_LADDER = obj(
    {
        "grouping": TEXT,
        "temperature": FLAG,
        "refit": TEXT,
        "reconstruct": COUNT,
        "calibration": maybe(
            obj({"sha256": maybe(TEXT), "tokens": maybe(COUNT), "row_tokens": maybe(COUNT)})
        ),
    }
)
_IMPORTANCE = obj(
    {
        "criterion": TEXT,
        "sha256": maybe(TEXT),
        "tokens": maybe(COUNT),
        "rounds": COUNT,
        "added_loss": by_name(NUMBER),
        "layers": many(obj({"index": COUNT, "scores": many(NUMBER)})),
    }
)

_TOGETHER = maybe(obj(fields(NUMBER, "delta_loss", "kl_divergence")))
# Of a conversion within a budget of bytes alone.
_BUDGET: dict[str, Schema] = {
    "budget": obj(
        {
            **fields(TEXT, "of", "criterion"),
            "cache_bytes_per_token": obj(fields(COUNT, "asked", "source", "reached")),
            "sha256": maybe(TEXT),
            **fields(COUNT, "tokens", "forward_passes"),
            "measured": obj({"by_layer": _TOGETHER, "equal": _TOGETHER}),
            "layers": many(
                obj({**fields(COUNT, "index", "size", "equal"), "costs": by_name(NUMBER)})
            ),
        }
    )
}


def _plan(layer: Schema) -> dict[str, Schema]:
    """What a plan and the record of a conversion have in common."""
    return {
        "schema_version": VERSION,
        "tool": obj(fields(TEXT, "name", "version")),
        "source": obj({**fields(TEXT, "name", "model_type", "fingerprint"), "bytes": COUNT}),
        "target": obj(
            {**fields(TEXT, "model_type", "home"), "bytes": COUNT},
            {"gguf": obj({"architecture": TEXT, "types": by_name(COUNT), "keys": by_name(ANY)})},
        ),
        "method": TEXT,
        "seed": maybe(INTEGER),
        "ladder": maybe(_LADDER),
        "config_changes": many(TEXT),
        "layers": many(layer),
        "importance": maybe(_IMPORTANCE),
        "files": many(
            obj({"name": TEXT, "bytes": COUNT, "tensors": either(COUNT, by_name(COUNT))})
        ),
        "dropped": many(obj(fields(TEXT, "name", "reason"))),
        "side_files": obj({"copied": many(TEXT), "not_copied": by_name(TEXT)}),
        "notes": many(TEXT),
        "findings": many(FINDING),
    }


_TENSOR = obj(
    {
        **fields(TEXT, "name", "file", "action", "dtype"),
        "shape": many(COUNT),
        "bytes": COUNT,
        "sources": many(obj({"name": TEXT}, {"shape": many(COUNT)})),
    }
)
DRY_RUN = obj({**_plan(obj(_PLANNED_LAYER)), "tensors": many(_TENSOR)}, _BUDGET)
_DONE_LAYER = obj(
    {
        **_PLANNED_LAYER,
        "relative_error": said(_ERRORS, "how far keys and values moved"),
        "kept": said(maybe(many(COUNT)), "the heads that a choosing method kept"),
        **fields(FLAG, "merged_equal", "lossless"),
        "distinct_key_value_heads": COUNT,
        "relative_error_of_mean": maybe(_ERRORS),
        "rewritten": maybe(OPEN),
    }
)
_DIGESTED = obj({"bytes": COUNT}, fields(TEXT, "xxh3_128", "xxh3_128_of_tensors"))
_REQUEST = obj(
    {
        "num_key_value_heads": maybe(either(COUNT, by_name(COUNT))),
        "pruned_heads": maybe(by_name(many(COUNT))),
        "latent": maybe(
            either(
                COUNT,
                TEXT,
                obj({"cache_bytes_per_token": COUNT}),
                obj({"by_layer": by_name(COUNT)}),
            )
        ),
        **fields(TEXT, "method", "grouping", "refit", "home"),
        "temperature": FLAG,
        "reconstruct": COUNT,
        "seed": INTEGER,
        "dtype": maybe(TEXT),
        "max_shard_size": maybe(COUNT),
        "calibrated": FLAG,
    },
    {"format": word("gguf"), "calibration_device": TEXT},
)
_CONVERSION: dict[str, Schema] = {
    **_plan(_DONE_LAYER),
    "lossless": FLAG,
    "rounding": obj(
        {
            **fields(maybe(TEXT), "cast", "folded"),
            "lost": by_name(obj(fields(COUNT, "zeros", "small"))),
        }
    ),
    "job": TEXT,
    "request": _REQUEST,
    "digests": obj(
        {
            "inputs": by_name(_DIGESTED),
            **fields(by_name(TEXT), "tensors", "source_tensors"),
            "rewritten": many(TEXT),
        }
    ),
    "manifest": by_name(_DIGESTED),
}
_CHECK = obj(
    {
        "dtype": TEXT,
        "lossless": FLAG,
        **fields(COUNT, "masked_heads", "prompt_tokens"),
        "cast": maybe(TEXT),
        **fields(NUMBER, "max_difference", "relative_difference", "top1_agreement"),
        **fields(maybe(COUNT), "generated_tokens"),
        **fields(maybe(COUNT), "predicted_cache_bytes", "measured_cache_bytes"),
        "problems": many(TEXT),
    }
)
_VERIFICATION = obj(
    {
        "schema_version": VERSION,
        "verify": obj(
            {
                "checked": by_name(COUNT),
                "differences": many(obj(fields(TEXT, "where", "what"))),
                "notes": many(TEXT),
            }
        ),
    }
)
_TRIAL = obj(
    {
        "num_key_value_heads": ANY,
        "latent": maybe(TEXT),
        "method": maybe(TEXT),
        "calibrated": FLAG,
        **fields(maybe(NUMBER), "loss", "delta_loss", "kl_divergence", "top1_agreement"),
        **fields(maybe(COUNT), "cache_bytes", "cache_tokens"),
    },
    {
        "pruned_heads": ANY,
        "frontier": said(FLAG, "none with as small a cache has a smaller KL divergence"),
    },
)
_FAMILIES = obj(
    {
        "schema_version": VERSION,
        "families": many(
            obj({**fields(TEXT, "model_type", "home", "key_value_heads"), "engines": many(TEXT)})
        ),
        "latents": many(TEXT),
    }
)

_SETTINGS = obj(
    {
        **fields(COUNT, "window", "stride", "documents", "tokens", "max_tokens", "threads"),
        **fields(COUNT, "prompt_tokens", "decode_tokens", "repeats"),
        "targets": maybe(TEXT),
        **fields(TEXT, "text", "text_sha256", "tokenizer", "dtype", "device", "attention"),
        **fields(TEXT, "torch", "transformers"),
        "bos": FLAG,
    }
)
_SWEEP = obj(
    {
        "schema_version": VERSION,
        **fields(TEXT, "source", "text"),
        "tokens": COUNT,
        "settings": _SETTINGS,
        "original": _TRIAL,
        "trials": many(_TRIAL),
        "layers": many(
            obj({"index": COUNT, "delta_loss": maybe(NUMBER), "relative_error": _ERRORS})
        ),
        "max_delta_loss": maybe(
            said(NUMBER, "what loss added and KL divergence of `chosen` are at most")
        ),
        "chosen": maybe(_TRIAL),
        "warnings": many(TEXT),
    }
)
_SCORE = obj(
    {
        **fields(TEXT, "id", "dtype"),
        "loss": said(NUMBER, "nats a token"),
        **fields(maybe(NUMBER), "perplexity", "bits_per_byte"),
        "tokens": COUNT,
    }
)
_CACHE: dict[str, Schema] = {
    **fields(maybe(COUNT), "predicted", "measured"),
    "tokens": COUNT,
    "dtype": TEXT,
}
_RATES = fields(NUMBER, "prefill_tokens_per_second", "decode_tokens_per_second")
_COPYING = maybe(
    obj(
        {
            **fields(COUNT, "sequences", "tokens"),
            "model": OPEN,
            "against": maybe(OPEN),
            "kept": maybe(NUMBER),
            "verdict": maybe(TEXT),
        }
    )
)
_BEHAVIOUR = obj(
    {
        "size": word("brief", "full"),
        "verdict": maybe(TEXT),
        **fields(_COPYING, "induction", "repeated_text"),
        "in_context": maybe(OPEN),
        **fields(many(OPEN), "loss_by_position", "recall", "first_tokens", "generations"),
        "windows": OPEN,
        "not_measured": by_name(TEXT),
        "cost": obj({"tokens": COUNT}),
    }
)
_TASK_SCORE = obj({"value": NUMBER, "stderr": maybe(NUMBER)})
_TASK = obj(
    {
        **fields(TEXT, "task", "metric", "filter"),
        "samples": maybe(COUNT),
        "higher_is_better": maybe(FLAG),
        "model": _TASK_SCORE,
        "against": maybe(_TASK_SCORE),
    }
)

_MODEL = obj(fields(TEXT, "id", "model_type"))
_COST = obj({**fields(COUNT, "forward_passes", "tokens"), "seconds": NUMBER})
_ROLES = word("previous_token", "first_token", "duplicate_token", "induction", "alignment")
_ATLAS_SETTINGS = obj(
    {
        **fields(COUNT, "tokens", "sequences", "batch_size", "sequence_length"),
        "start_id": maybe(COUNT),
        "seed": INTEGER,
        **fields(TEXT, "dtype", "device", "torch", "transformers"),
        "thresholds": by_name(NUMBER),
    }
)
_SCORES = obj(
    {
        **fields(maybe(NUMBER), "previous_token", "first_token", "duplicate_token", "induction"),
        **fields(maybe(NUMBER), "alignment", "copying", "distance", "offset_share"),
        "offset": maybe(INTEGER),
        **fields(NUMBER, "entropy", "span", "attended"),
    }
)
_ATLAS_LAYER = obj(
    {
        "index": COUNT,
        "kind": TEXT,
        **fields(COUNT, "num_attention_heads", "num_key_value_heads", "group_size"),
        "module": TEXT,
        "uniform": by_name(maybe(NUMBER)),
        "heads": many(
            obj(
                {
                    **fields(COUNT, "head", "key_value_head"),
                    "roles": many(_ROLES),
                    "copies": FLAG,
                    "scores": _SCORES,
                }
            )
        ),
        "key_value_heads": many(
            obj(
                {
                    "key_value_head": COUNT,
                    **fields(many(COUNT), "query_heads", "induction_heads"),
                    "similarity": maybe(NUMBER),
                }
            )
        ),
    }
)
_PLACE = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}
_ATLAS = obj(
    {
        "schema_version": VERSION,
        "model": _MODEL,
        "layers": many(_ATLAS_LAYER),
        "roles": said(by_name(many(_PLACE)), "[layer, head] of every head with the role"),
        "cost": _COST,
        "settings": _ATLAS_SETTINGS,
        "warnings": many(TEXT),
    }
)
_BOTH = obj({"before": ANY, "after": ANY})
_SUMMARY: dict[str, Schema] = {
    "schema_version": VERSION,
    **fields(_MODEL, "model", "against"),
    "matched_by": TEXT,
    "roles": by_name(
        obj(
            {
                **fields(COUNT, "had", "kept", "lost", "gone", "gained"),
                "verdict": maybe(TEXT),
                "score": obj(fields(maybe(NUMBER), "before", "after")),
            }
        )
    ),
    "heads": obj(fields(COUNT, "before", "after", "gone")),
    "cost": obj(fields(_COST, "model", "against")),
    "settings": _ATLAS_SETTINGS,
}
_CHANGED_LAYER = obj(
    {
        "index": COUNT,
        "kind": TEXT,
        **fields(_BOTH, "num_attention_heads", "num_key_value_heads", "group_size"),
        "padding": ANY,
        "heads": many(
            obj(
                {
                    **fields(_BOTH, "head", "key_value_head", "roles", "copies", "scores"),
                    **fields(many(TEXT), "lost", "gained"),
                }
            )
        ),
        "key_value_heads": many(
            obj(
                {
                    "key_value_head": COUNT,
                    **fields(many(COUNT), "merged", "query_heads"),
                    **fields(COUNT, "lost", "gained"),
                    "similarity": maybe(NUMBER),
                }
            )
        ),
    }
)
_COMPARISON = obj({**_SUMMARY, "layers": many(_CHANGED_LAYER), "warnings": many(TEXT)})
_WORTH = obj(
    {
        "schema_version": VERSION,
        "model": _MODEL,
        "text": obj({"sha256": TEXT, "tokens": COUNT, "seed": INTEGER}),
        "rank_correlation": maybe(NUMBER),
        "layers": many(
            obj(
                {
                    **fields(COUNT, "index", "num_key_value_heads"),
                    "estimate": many(NUMBER),
                    "exact": maybe(many(NUMBER)),
                }
            )
        ),
        "seconds": NUMBER,
    }
)
EVALUATION = obj(
    {
        "schema_version": VERSION,
        "model": _SCORE,
        "against": maybe(_SCORE),
        **fields(maybe(NUMBER), "delta_loss", "kl_divergence", "top1_agreement"),
        "behaviour": maybe(_BEHAVIOUR),
        "tasks": many(_TASK),
        "roles": maybe(obj(_SUMMARY)),
        "cache_bytes": obj({**_CACHE, "batch_size": COUNT, "against": maybe(obj(_CACHE))}),
        "speed": maybe(
            obj(
                {
                    **_RATES,
                    "against": maybe(obj(_RATES)),
                    **fields(maybe(NUMBER), "prefill_ratio", "decode_ratio"),
                }
            )
        ),
        "settings": _SETTINGS,
        "warnings": many(TEXT),
    }
)
_TRAINED = obj(
    {
        **fields(NUMBER, "loss", "teacher_loss", "kl_divergence", "top1_agreement"),
        "tokens": COUNT,
        "perplexity": maybe(NUMBER),
        "delta_loss": NUMBER,
    }
)
_UPTRAINING = obj(
    {
        "schema_version": VERSION,
        **fields(TEXT, "model", "converted", "teacher"),
        **fields(_TRAINED, "before", "after"),
        "teacher_scores": obj({"loss": NUMBER, "perplexity": maybe(NUMBER)}),
        "gap_closed": obj(fields(maybe(NUMBER), "loss", "kl_divergence")),
        **fields(COUNT, "steps", "tokens"),
        "held_out": ANY,
        "seconds": maybe(NUMBER),
        "processes": maybe(COUNT),
        "sharded": FLAG,
        "device": maybe(TEXT),
        "done_before": FLAG,
        "settings": OPEN,
        **fields(many(obj({**fields(TEXT, "name", "sha256"), "unknown": ANY})), "texts", "pairs"),
        "targets": maybe(TEXT),
        "history": many(OPEN),
    }
)
_CONVERTED = obj(
    _CONVERSION,
    {
        **_BUDGET,
        "check": said(_CHECK, "--check"),
        "evaluation": said(EVALUATION, "--evaluate"),
    },
)
HEAVY_DOCUMENTS: dict[str, Schema] = {
    "convert": either(_CONVERTED, DRY_RUN, _SWEEP, _VERIFICATION, _FAMILIES),
    "evaluate": EVALUATION,
    "heads": either(_ATLAS, _COMPARISON, _WORTH),
    "uptrain": _UPTRAINING,
}
