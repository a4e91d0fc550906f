"""Which layer is of which kind, for configs that leave `layer_types` null: the rules of
classes with recurrent, indexed or compressed layers."""

from headcount.model.errors import InvalidConfigError

from ..attention.layer_kinds import FULL, SLIDING, KindFunction
from ..config_view import ConfigView
from .hybrid import CONV, HYBRID, HYBRID_SLIDING, INDEXED, LINEAR


def all_of(kind: str) -> KindFunction:
    return lambda view, count: (kind,) * count


def every_nth(period: int, kind: str, other: str, key: str | None = None) -> KindFunction:
    """`kind` where (i + 1) % period == 0, else `other`; `key` may set the period."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        step = (view.optional(key) if key else None) or period
        return tuple(kind if (i + 1) % step == 0 else other for i in range(count))

    return rule


def at(remainder: int, period: int, kind: str, other: str, *, first: int = 0) -> KindFunction:
    """`kind` where i % period == remainder and i >= first, else `other`."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        return tuple(
            kind if i % period == remainder and i >= first else other for i in range(count)
        )

    return rule


def listed(key: str, kind: str, other: str, *, absent: str) -> KindFunction:
    """`kind` for the layers that the list `key` names, else `other`; all `absent` without it."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        chosen = view.integers(key)
        if chosen is None:
            return (absent,) * count
        return tuple(kind if i in chosen else other for i in range(count))

    return rule


def needed(view: ConfigView, count: int) -> tuple[str, ...]:
    """For a class that has no rule of its own. Raises InvalidConfigError."""
    raise InvalidConfigError(f"{view.where}: layer_types is missing, and the class has no default")


def lara_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    cycle = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    return tuple(cycle[i % 5] for i in range(count))


def lfm3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    def kind(i: int) -> str:
        return FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV

    return tuple(kind(i) for i in range(count))


def jamba_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    period, offset = view.integer("attn_layer_period"), view.integer("attn_layer_offset", minimum=0)
    return at(offset, period, FULL, LINEAR)(view, count)


def recurrent_gemma_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    blocks = view.get("block_types") or ()
    return tuple(
        LINEAR if blocks[i % len(blocks)] == "recurrent" else SLIDING for i in range(count)
    )


def inkling_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    local = view.integers("local_layer_ids")
    if local is None:
        return every_nth(6, HYBRID, HYBRID_SLIDING)(view, count)
    return tuple(HYBRID_SLIDING if i in local else HYBRID for i in range(count))


def m3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    flags = view.child("sparse_attention_config").integers("sparse_attention_freq")
    if flags is None:
        return (FULL,) * count
    return tuple(INDEXED if flag else FULL for flag in flags)


def zamba_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Two Mamba layers, a hybrid one, and then one in `attn_layer_period` from the offset on."""
    period, offset = view.integer("attn_layer_period"), view.integer("attn_layer_offset", minimum=0)
    rest = tuple(HYBRID if i % period == offset else LINEAR for i in range(max(count - 3, 0)))
    return (LINEAR, LINEAR, HYBRID, *rest)


def fixed_list(*kinds: str) -> KindFunction:
    return lambda view, count: kinds


ZAMBA2_KINDS = (
    LINEAR,
    *(*(LINEAR,) * 5, HYBRID) * 7,
    *(*(LINEAR,) * 4, HYBRID),
    *(*(LINEAR,) * 3, HYBRID),
    *(LINEAR,) * 2,
)
