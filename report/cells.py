"""Raw values to text, by unit. Control characters never reach a terminal."""

from headcount.model.text import printable
from headcount.model.units import format_bytes, format_count


def cell(value: object, unit: str) -> str:
    """`value` as people read it; None is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _integer(value, unit)
    if isinstance(value, float):
        return _number(value, unit)
    return printable(str(value))


def _integer(value: int, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    if unit == "exact_bytes":
        short = format_bytes(value)
        return f"{value:,} B" + ("" if short.endswith(" B") else f" ({short})")
    if unit == "parameters":
        return format_count(value)
    if unit in ("bandwidth", "flops"):
        return f"{value / 1e9:,.0f} GB/s" if unit == "bandwidth" else f"{value / 1e12:,.1f} T"
    if unit == "text":
        return str(value)
    as_float = unit in ("ratio", "percent", "rate", "price")
    return _number(float(value), unit) if as_float else f"{value:,}"


def _number(value: float, unit: str) -> str:
    forms = {
        "loss": lambda v: f"{v:,.4f}",
        "perplexity": lambda v: f"{v:,.2f}",
        "bits": lambda v: f"{v:.2f}",
        "similarity": lambda v: f"{v:.4f}",
        "loss_share": lambda v: f"{v:.4f}",
        "share": lambda v: f"{v:.2f}",
        "mean_tokens": lambda v: f"{v:,.1f}",
        "ratio": lambda v: f"{v:.2f}x" if v < 9.995 else f"{v:.1f}x",
        "percent": lambda v: f"{v:.1f} %",
        "seconds": lambda v: f"{v:.3f} s",
        "rate": lambda v: f"{v:,.1f}/s",
        "price": lambda v: f"{v:,.2f}",
        "bytes": lambda v: format_bytes(int(v)),
    }
    return forms.get(unit, lambda v: f"{v:,.4g}")(value)
