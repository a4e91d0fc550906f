"""Which layers see everything and which a window, for configs that leave `layer_types` null.

A rule maps (view, number of layers) to one kind per layer. The rules are those of transformers'
config classes.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from headcount.model.errors import InvalidConfigError

from ..config_view import ConfigView

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
SPELLINGS = {"attention": FULL, FULL: FULL, SLIDING: SLIDING, CHUNKED: CHUNKED}

# A function, or "full": every layer sees everything; None: what a cache assumes (`by_window`).
KindFunction = Callable[[ConfigView, int], tuple[str, ...]]
KindRule = KindFunction | Literal["full"] | None


def layer_kinds(
    view: ConfigView, count: int, rule: KindRule, known: Mapping[str, str] = SPELLINGS
) -> tuple[str, ...]:
    """One kind per layer: `layer_types` where the file has it, else the architecture's rule.

    `known` maps each spelling that the class takes to its kind.
    """
    given = view.strings("layer_types")
    if given is None:
        return kinds_by_rule(view, count, rule)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidConfigError(
            f"{view.where}: layer_types holds {unknown[0]!r}; this model_type knows"
            f" {', '.join(sorted(known))}"
        )
    if len(given) != count:
        raise InvalidConfigError(
            f"{view.where}: layer_types has {len(given)} entries for {count} layers"
        )
    return tuple(known[kind] for kind in given)


def kinds_by_rule(view: ConfigView, count: int, rule: KindRule) -> tuple[str, ...]:
    """One kind per layer, whatever `layer_types` says."""
    if rule is None:
        return by_window(view, count)
    return all_full(view, count) if rule == "full" else rule(view, count)


def all_full(view: ConfigView, count: int) -> tuple[str, ...]:
    return (FULL,) * count


def by_window(view: ConfigView, count: int) -> tuple[str, ...]:
    """What transformers' cache assumes of a class that names no kinds: every layer slides if
    `sliding_window` is set, else is chunked if `attention_chunk_size` is, whether or not the class
    itself knows such a key."""
    if view.optional("sliding_window", minimum=0):
        return (SLIDING,) * count
    return (CHUNKED if view.optional("attention_chunk_size") else FULL,) * count


def windowed(view: ConfigView, count: int) -> tuple[str, ...]:
    """Every layer slides if `sliding_window` is set (Mistral, Phi-3, StarCoder2)."""
    return (SLIDING if view.optional("sliding_window", minimum=0) else FULL,) * count


def full_every(period: int, key: str | None = None, *, last_full: bool = False) -> KindFunction:
    """Full when (i + 1) % period == 0, else sliding; `key` may set the period."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        step = (view.optional(key) if key else None) or period
        full = {i for i in range(count) if (i + 1) % step == 0} | (
            {count - 1} if last_full else set()
        )
        return tuple(FULL if i in full else SLIDING for i in range(count))

    return rule


def full_first(period: int, key: str | None = None) -> KindFunction:
    """Full when i % period == 0, else sliding; `key` may set the period."""

    def rule(view: ConfigView, count: int) -> tuple[str, ...]:
        step = (view.optional(key) if key else None) or period
        return tuple(FULL if i % step == 0 else SLIDING for i in range(count))

    return rule


def rope_layers(view: ConfigView, count: int) -> tuple[int, ...]:
    given = view.integers("no_rope_layers")
    if given:
        if len(given) != count:
            raise InvalidConfigError(
                f"{view.where}: no_rope_layers has {len(given)} entries for {count} layers"
            )
        return given
    step = view.optional("no_rope_layer_interval") or 4
    return tuple(int((i + 1) % step != 0) for i in range(count))
