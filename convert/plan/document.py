"""A plan as data for `--format json` and for the record beside the output. No times, no paths."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from headcount.model.version import __version__

from ..gguf.gguf_file import NAME, GgufFile, GgufTensor
from ..latent.size import latent_document
from .plan import ConversionPlan, OutputFile
from .request import CPU, ConversionRequest
from .rewriting import Rewriting
from .steps import Step

SCHEMA_VERSION = 1


def conversion_plan_document(plan: ConversionPlan) -> dict[str, object]:
    """The whole plan with every tensor, JSON-ready."""
    return {
        **plan_summary(plan),
        "tensors": [_step(step, file) for file in plan.files for step in file.steps]
        if plan.gguf is None
        else [_laid_out(tensor) for tensor in plan.gguf.tensors],
    }


def plan_summary(plan: ConversionPlan) -> dict[str, object]:
    """The plan without its list of tensors."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "headcount", "version": __version__},
        "source": {
            "name": plan.source.name,
            "model_type": plan.model_type,
            "fingerprint": plan.source.fingerprint,
            "bytes": plan.source_nbytes,
        },
        "target": {
            "model_type": plan.config.get("model_type", plan.model_type),
            "home": plan.home,
            **({} if plan.gguf is None else {"gguf": _gguf(plan.gguf)}),
            "bytes": plan.nbytes,
        },
        "method": plan.request.method,
        "seed": plan.request.seed if _is_seeded(plan) else None,
        "ladder": None if plan.rewriting is None else _ladder(plan.rewriting),
        "config_changes": list(plan.config_changes),
        "layers": [
            {
                "index": layer.index,
                "num_attention_heads": layer.num_attention_heads,
                "head_dim": layer.head_dim,
                "num_key_value_heads": {"before": layer.before, "after": layer.after},
                "padded_attention_heads": layer.padded_heads,
                "pruned_attention_heads": list(layer.pruned),
                "latent_rank": layer.latent_rank,
            }
            for layer in plan.layers
        ],
        "importance": None if plan.importance is None else plan.importance.document(),
        **({} if plan.budget is None else {"budget": plan.budget.document()}),
        "files": [_file(file) for file in plan.files]
        if plan.gguf is None
        else [{"name": NAME, "bytes": plan.gguf.nbytes, "tensors": len(plan.gguf.tensors)}],
        "dropped": [{"name": d.source.name, "reason": d.reason} for d in plan.dropped],
        "side_files": {
            "copied": [file.name for file in plan.side_files],
            "not_copied": {file.name: file.reason for file in plan.left_files},
        },
        "notes": list(plan.notes),
        "findings": [finding.document() for finding in plan.findings],
    }


def request_document(request: ConversionRequest) -> dict[str, object]:
    """The options that decide the output, by the names of the request's fields; of a calibration
    whether there was one, since a path says nothing elsewhere."""
    wanted, pruned = request.num_key_value_heads, request.pruned_heads
    counts = {str(i): n for i, n in wanted.items()} if isinstance(wanted, Mapping) else wanted
    assert pruned is None or isinstance(pruned, Mapping)
    gone = None if pruned is None else {str(i): list(heads) for i, heads in pruned.items()}
    named = ("method", "grouping", "temperature", "refit", "reconstruct", "seed")
    others = (*named, "home", "dtype", "max_shard_size")
    return {
        "num_key_value_heads": counts,
        "pruned_heads": gone,
        "latent": latent_document(request.latent),
        **{name: getattr(request, name) for name in others},
        "calibrated": request.calibration is not None,
        **({"format": request.format} if request.is_gguf else {}),
        **({} if request.device == CPU else {"calibration_device": request.device}),
    }


def _is_seeded(plan: ConversionPlan) -> bool:
    return plan.request.method == "random" or plan.request.calibration is not None


def _ladder(rewriting: Rewriting) -> dict[str, object]:
    """The rungs beside the method. A path says nothing elsewhere: of a text its digest is kept."""
    rungs = asdict(rewriting.ladder)
    calibration = {
        "sha256": rewriting.calibration_sha256,
        "tokens": rewriting.tokens_read,
        "row_tokens": rewriting.row_tokens,
    }
    return {
        **{name: rungs[name] for name in ("grouping", "temperature", "refit", "reconstruct")},
        "calibration": None if rewriting.calibration is None else calibration,
    }


def _file(file: OutputFile) -> dict[str, object]:
    verbs = Counter(step.action.verb for step in file.steps)
    return {"name": file.name, "bytes": file.nbytes, "tensors": dict(sorted(verbs.items()))}


def _gguf(file: GgufFile) -> dict[str, object]:
    """The architecture, how many tensors there are of each type, and the short key-values."""
    short = {one.key: one.value for one in file.metadata if not isinstance(one.value, list)}
    types = dict(sorted(Counter(tensor.type for tensor in file.tensors).items()))
    return {
        "architecture": file.architecture,
        "types": types,
        "keys": {key: short[key] for key in sorted(short) if key != "tokenizer.chat_template"},
    }


def _laid_out(tensor: GgufTensor) -> dict[str, object]:
    return {
        "name": tensor.name,
        "file": NAME,
        "action": tensor.verb,
        "dtype": tensor.type,
        "shape": list(tensor.shape),
        "bytes": tensor.nbytes,
        "sources": [{"name": name} for name in tensor.steps],
    }


def _step(step: Step, file: OutputFile) -> dict[str, object]:
    return {
        "name": step.name,
        "file": file.name,
        "action": step.action.verb,
        "dtype": step.dtype,
        "shape": list(step.shape),
        "bytes": step.nbytes,
        "sources": [{"name": source.name, "shape": list(source.shape)} for source in step.sources],
    }
