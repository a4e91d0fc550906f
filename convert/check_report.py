"""A check of a conversion as people and programs read it."""

from collections.abc import Iterator
from dataclasses import asdict

from headcount.report.report import Fact, Report

from .check import Checked
from .plan.plan import ConversionPlan


def check_report(checked: Checked, plan: ConversionPlan) -> Report:
    """What both models said to the same tokens, of a conversion as planned."""
    return Report(
        title="Check: " + ("passed" if not checked.problems else "; ".join(checked.problems)),
        facts=tuple(_facts(checked)),
        notes=(_note(checked, plan),),
        title_is_answer=True,
        document=asdict(checked),
    )


def _note(checked: Checked, plan: ConversionPlan) -> str:
    said = f"Both models read the same {checked.prompt_tokens} random tokens in {checked.dtype}."
    if checked.masked_heads:
        said += f" The {checked.masked_heads} pruned heads of the source gave nothing."
    if not checked.lossless:
        return (
            f"{said} {_moved(plan)}: this shows that the result runs, not how good it is (headcount"
            " evaluate does)."
        )
    rounding = f"the logits must be equal, but for rounding{_cast(checked)}."
    equal = "All merged heads were equal" if _merges(plan) else "No heads were merged"
    return f"{said} {equal}: {rounding}"


def _moved(plan: ConversionPlan) -> str:
    """Why the logits may be others."""
    if plan.request.latent is not None:
        return _of_latents(plan)
    ladder = None if plan.rewriting is None else plan.rewriting.ladder
    is_fitted = ladder is not None and (ladder.refit != "none" or ladder.reconstruct > 0)
    if not _merges(plan):
        return "No heads were merged, and weights were fitted anew"
    fitted = ", and weights were fitted anew" if is_fitted else ""
    return f"Heads were merged that were not equal{fitted}"


def _merges(plan: ConversionPlan) -> bool:
    """Whether heads become one, and not only go."""
    return plan.request.num_key_value_heads is not None


def _of_latents(plan: ConversionPlan) -> str:
    is_less = any(layer.kept_after < layer.kept_before for layer in plan.layers)
    elements = "fewer" if is_less else "as many"
    turned = any(layer.rotated for layer in plan.layers)
    key = ", and one key that rotates stands for those of all heads" if turned else ""
    return f"Keys and values are rebuilt from latents of {elements} elements{key}"


def _cast(checked: Checked) -> str:
    return "" if checked.cast is None else f"; the source's numbers are in {checked.cast}, too"


def _facts(checked: Checked) -> Iterator[Fact]:
    yield Fact(
        key="relative_difference",
        title="Logits moved",
        value=f"{checked.relative_difference:.2e}",
        note=f"of their norm; at most {checked.max_difference:.2e}",
    )
    yield Fact(
        key="top1_agreement", title="Same first choice", value=f"{checked.top1_agreement:.0%}"
    )
    if checked.measured_cache_bytes is None:
        yield Fact(key="generated", title="Generated", value="nothing", note="the class does not")
        return
    yield Fact(key="generated", title="Generated", value=checked.generated_tokens, unit="tokens")
    yield Fact(
        key="measured_cache_bytes",
        title="Cache",
        value=checked.measured_cache_bytes,
        unit="exact_bytes",
        note=f"predicted: {checked.predicted_cache_bytes:,}",
    )
