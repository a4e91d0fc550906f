"""`headcount.audit`: heads, attention parameters and cache bytes of a model, and its findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headcount.audit.several import audit_all
from headcount.model.sizes import AuditRequest
from headcount.report.report import Finding, Severity

from .deeper_looks import deeper_look
from .result import Result, findings_from, public
from .values import WORKLOAD, Name, Size, checked, model_name


@dataclass(frozen=True, kw_only=True)
class AuditedMixer:
    """One attention, or one state, of a layer. `heads` is MHA, GQA, MQA or None; `cache_bytes` are
    those of the audit's context and batch."""

    kind: str
    heads: str | None
    num_attention_heads: int | None
    num_key_value_heads: int | None
    group_size: int | None
    head_dim: int | None
    v_head_dim: int | None
    window: int | None
    parameters: int
    cache_bytes: int


@dataclass(frozen=True, kw_only=True)
class AuditedLayer:
    """A layer of the decoder or the encoder (`stack`). Its `attention_parameters` are those of all
    mixers but recurrent ones."""

    index: int
    stack: str
    mixers: tuple[AuditedMixer, ...]
    attention_parameters: int
    cache_bytes: int
    shares_cache_with: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditResult(Result):
    """An audit. Bytes are those of the cache of transformers for `batch_size` sequences of
    `context` tokens; `cache_bytes_of_first_token` is what a token takes while no window is full,
    `cache_bytes_per_token` what one more takes once every window is. Counts that neither config
    nor weights say are None."""

    id: str
    model_type: str
    source: str
    dtype: str | None
    parameters: int | None
    active_parameters: int | None
    attention_parameters: int
    context: int
    batch_size: int
    kv_dtype: str
    cache_bytes: int
    cache_bytes_of_first_token: int
    cache_bytes_per_token: int
    constant_state_bytes: int
    mha_ratio: float
    layers: tuple[AuditedLayer, ...] = field(repr=False)
    findings: tuple[Finding, ...] = field(repr=False)

    def findings_from(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of `severity` (error, warning or note) or worse: a gate asks for none."""
        return findings_from(self.findings, severity)


@public
def audit(
    model: Name,
    *,
    context: Size | None = None,
    batch_size: int = 1,
    kv_dtype: str | None = None,
    encoder_tokens: Size | None = None,
    config: Name | None = None,
    explain: bool = False,
    strict: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    scan: bool = False,
    verify: bool = False,
) -> AuditResult:
    """Audits `model`: a name of the catalogue, a folder, a config.json, a file or index of weights,
    or org/name[@revision] of the Hugging Face Hub.

    Config and headers are read, never weights, unless `scan` (which looks for NaN, zeros and equal
    heads) or `verify` (which builds the model with transformers) asks for it: both need the extra
    `convert`. `context` in tokens, or as "8k", and `kv_dtype` size the cache; None: the model's
    own. `config` is the config.json of weights that lie alone. `explain` adds where each value came
    from; `strict` refuses a model_type that nothing describes. `select` and `ignore` choose
    findings by their codes, or how these begin. Raises HeadcountError.
    """
    workload = {"context": context, "batch_size": batch_size, "kv_dtype": kv_dtype}
    request = AuditRequest(
        **checked({**workload, "encoder_tokens": encoder_tokens}, WORKLOAD), explain=explain
    )
    (report,), _ = audit_all(
        [model_name(model)],
        request,
        config=None if config is None else model_name(config),
        strict=strict,
        select=tuple(select),
        ignore=tuple(ignore),
        more=deeper_look(scan=scan, verify=verify),
    )
    document: Mapping[str, Any] = report.document
    about, asked, totals = (document[part] for part in ("model", "request", "totals"))
    return AuditResult(
        report=report,
        **{name: about[name] for name in ("id", "model_type", "source", "dtype")},
        **{name: asked[name] for name in ("context", "batch_size", "kv_dtype")},
        **{name: totals[name] for name in _TOTALS},
        layers=tuple(_layer(layer) for layer in document["layers"]),
        findings=report.findings,
    )


_TOTALS = (
    *("parameters", "active_parameters", "attention_parameters", "cache_bytes"),
    *("cache_bytes_of_first_token", "cache_bytes_per_token", "constant_state_bytes", "mha_ratio"),
)


def _layer(document: Mapping[str, Any]) -> AuditedLayer:
    names = AuditedMixer.__dataclass_fields__
    mixers = (AuditedMixer(**{n: each[n] for n in names}) for each in document["mixers"])
    return AuditedLayer(**{**document, "mixers": tuple(mixers)})
