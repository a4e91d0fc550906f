"""The last look before an output gets its name: it is audited like any model."""

from collections.abc import Iterable
from pathlib import Path

from headcount.audit import audit_model
from headcount.audit.audited import Audit
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, LatentAttention
from headcount.model.spec import Layer
from headcount.report.report import Finding

from .latent.mla_shape import MlaShape
from .plan.errors import SelfCheckError
from .plan.plan import ConversionPlan
from .plan.refusals.source import TAKEN_ALONG

# The warnings that a file which was left can be the reason of: settings without a vocabulary.
_OF_LEFT_FILES = frozenset({"H501"})


def audited_output(
    folder: Path, inherited: Iterable[Finding], *, has_left_files: bool = False
) -> Audit:
    """The audit of an output. Raises SelfCheckError unless it is clean.

    Warnings that are `inherited` from the source (a config that names another dtype, say), and
    names that are taken along, do not count: nothing is repaired that was not asked for. Nor do
    those about a vocabulary where files were left, which the report says.
    """
    try:
        audit = audit_model(str(folder))
    except HeadcountError as error:
        raise SelfCheckError(f"the output cannot be audited ({error}); nothing was kept") from error
    known = {finding.code for finding in inherited if finding.severity == "warning"}
    known |= _OF_LEFT_FILES if has_left_files else frozenset()
    for finding in audit.findings:
        excused = TAKEN_ALONG if finding.severity == "error" else known
        if finding.severity in ("error", "warning") and finding.code not in excused:
            raise SelfCheckError(
                f"the output fails its audit: {finding.code} {finding.where}: {finding.message};"
                " nothing was kept"
            )
    return audit


def verify_output(plan: ConversionPlan, folder: Path) -> None:
    """Raises SelfCheckError unless the audit of `folder` is clean and finds the planned heads."""
    audit = audited_output(folder, plan.findings, has_left_files=bool(plan.left_files))
    wanted = {layer.index: layer.after for layer in plan.layers}
    ranks = {layer.index: layer.latent_rank for layer in plan.layers}
    query = {la.index: la.padded_heads or la.query_heads for la in plan.layers if la.pruned}
    for layer in audit.spec.layers:
        if layer.stack != "decoder" or layer.index not in wanted:
            continue
        if plan.rewriting is not None and plan.rewriting.mla is not None:
            _verify_mla(layer, plan.rewriting.mla)
            continue
        found = {m.num_key_value_heads for m in layer.mixers if isinstance(m, Attention)}
        if found != {wanted[layer.index]}:
            raise SelfCheckError(
                f"layer {layer.index} of the output has {sorted(found)} K/V heads instead of"
                f" {wanted[layer.index]}; nothing was kept"
            )
        kept = {getattr(m, "latent_rank", None) for m in layer.mixers if isinstance(m, Attention)}
        if kept != {ranks[layer.index]}:
            raise SelfCheckError(
                f"layer {layer.index} of the output keeps latents of {sorted(map(str, kept))}"
                f" elements instead of {ranks[layer.index]}; nothing was kept"
            )
        heads = {m.num_attention_heads for m in layer.mixers if isinstance(m, Attention)}
        if layer.index in query and heads != {query[layer.index]}:
            raise SelfCheckError(
                f"layer {layer.index} of the output has {sorted(heads)} query heads instead of"
                f" {query[layer.index]}; nothing was kept"
            )


def _verify_mla(layer: Layer, shape: MlaShape) -> None:
    kept = [
        (m.kv_lora_rank, m.qk_rope_head_dim) for m in layer.mixers if isinstance(m, LatentAttention)
    ]
    if kept != [(shape.rank, shape.rotated)]:
        raise SelfCheckError(
            f"layer {layer.index} of the output keeps latents and rotated keys of {kept} elements"
            f" instead of {shape.rank} and {shape.rotated}; nothing was kept"
        )
