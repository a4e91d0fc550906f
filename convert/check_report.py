"""A check of a conversion as people and programs read it."""

from collections.abc import Iterator
from dataclasses import asdict

from headcount.report.report import Fact, Report

from .check import Checked


def check_report(checked: Checked) -> Report:
    """What both models said to the same tokens."""
    return Report(
        title="Check: " + ("passed" if not checked.problems else "; ".join(checked.problems)),
        facts=tuple(_facts(checked)),
        notes=(_note(checked),),
        title_is_answer=True,
        document=asdict(checked),
    )


def _note(checked: Checked) -> str:
    said = f"Both models read the same {checked.prompt_tokens} random tokens in {checked.dtype}."
    if checked.masked_heads:
        said += f" The {checked.masked_heads} pruned heads of the source gave nothing."
    if not checked.lossless:
        return (
            f"{said} Heads were merged that were not equal, or fitted anew: this shows that the"
            " result runs, not how good it is (headcount evaluate does)."
        )
    rounding = f"the logits must be, but for rounding{_cast(checked)}."
    return f"{said} All merged heads were equal: {rounding}"


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
