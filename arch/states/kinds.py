"""Which layer is of which kind, for configs that leave `layer_types` null: the rules of
classes with recurrent, indexed or compressed layers."""

from ..attention.layer_kinds import KindFunction
from ..config_view import ConfigView


def all_of(kind: str) -> KindFunction:
    return lambda view, count: (kind,) * count


def every_nth(period: int, kind: str, other: str, key: str | None = None) -> KindFunction:
    """`kind` where (i + 1) % period == 0, else `other`; `key` may set the period."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        step = (view.optional(key) if key else None) or period
        return tuple(kind if (i + 1) % step == 0 else other for i in range(count))

    return rule


def every_nth_from(
    remainder: int, period: int, kind: str, other: str, *, first: int = 0
) -> KindFunction:
    """`kind` where i % period == remainder and i >= first, else `other`."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        return tuple(
            kind if i % period == remainder and i >= first else other for i in range(count)
        )

    return rule


def listed_layers(key: str, kind: str, other: str, *, absent: str) -> KindFunction:
    """`kind` for the layers that the list `key` names, else `other`; all `absent` without it."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        chosen = view.integers(key)
        if chosen is None:
            return (absent,) * count
        return tuple(kind if i in chosen else other for i in range(count))

    return rule
