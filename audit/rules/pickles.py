"""Rules on what a checkpoint would do to the machine that loads it."""

from collections.abc import Iterator

from ..report import Finding
from .facts import Facts


def dangerous_pickle(facts: Facts) -> Iterator[Finding]:
    """H309: loading a .bin or .pt file would import, and may call, more than tensors need."""
    for file, names in facts.checkpoint.suspects.items():
        first = ", ".join(name[:80] for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Finding(
            code="H309",
            severity="error",
            where=file,
            message=f"imports {first}{more}: loading it may run any program",
            hint="do not load it; take safetensors, or at least torch.load(weights_only=True)",
        )
