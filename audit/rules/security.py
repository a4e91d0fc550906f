"""H309: what a checkpoint would do to the machine that loads it."""

from collections.abc import Iterator

from .facts import Facts
from .rule import Rule, Seen


def dangerous_pickle(facts: Facts) -> Iterator[Seen]:
    """Loading a .bin or .pt file would import, and may call, more than tensors need."""
    for file, names in facts.checkpoint.suspects.items():
        first = ", ".join(name[:80] for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Seen(file, f"imports {first}{more}: loading it may run any program")


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        code="H309",
        name="dangerous-pickle",
        severity="error",
        hint="do not load it; take safetensors, or at least torch.load(weights_only=True)",
        check=dangerous_pickle,
    ),
)
