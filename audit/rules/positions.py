"""H4xx: windows, context length and rescaled positions, from the config alone."""

from collections.abc import Iterator

from .config_facts import ConfigFacts
from .rule import Sighting, rule

SLIDING = "sliding_attention"


@rule(
    "H411",
    "window-beyond-context",
    "note",
    "within its context the model attends to everything: the window saves no memory",
)
def window_beyond_context(facts: ConfigFacts) -> Iterator[Sighting]:
    """A window is as long as the context or longer, so that it never acts."""
    limit = _limit(facts)
    for window in sorted(_windows(facts)):
        if limit is not None and window >= limit:
            yield Sighting("sliding_window", f"{window:,} tokens, the context is {limit:,}")


def _limit(facts: ConfigFacts) -> int | None:
    """The context that the file itself gives: a class's default says nothing about this model."""
    origin = facts.spec.origins.get("max_position_embeddings")
    by_default = origin is not None and origin.source.startswith("class default")
    return None if by_default else facts.spec.max_position_embeddings


def _windows(facts: ConfigFacts) -> set[int]:
    mixers = (mixer for layer in facts.spec.layers for mixer in layer.mixers)
    found = {getattr(mixer, "window", None) for mixer in mixers}
    return {window for window in found if isinstance(window, int)}


@rule(
    "H412",
    "unused-window",
    "note",
    "use_sliding_window or layer_types switch it off; the cache grows with every token",
)
def unused_window(facts: ConfigFacts) -> Iterator[Sighting]:
    """A sliding_window is set, and no layer uses it."""
    if facts.window and not _windows(facts) and facts.spec.is_cached:
        yield Sighting("sliding_window", f"{facts.window:,}, but every layer sees everything")


@rule(
    "H413",
    "pattern-against-layer-types",
    "warning",
    "layer_types is what transformers 5 uses; other readers go by the pattern",
)
def pattern_against_types(facts: ConfigFacts) -> Iterator[Sighting]:
    """The layer_types and the sliding_window_pattern say different things."""
    types, step = facts.layer_types, facts.pattern
    if not step or step < 1 or SLIDING not in types:
        return
    wrong = [i for i, kind in enumerate(types) if (kind == SLIDING) == ((i + 1) % step == 0)]
    if wrong:
        yield Sighting(
            "layer_types", f"layer {wrong[0]} is {types[wrong[0]]}, against the pattern {step}"
        )


@rule(
    "H414",
    "no-context-length",
    "note",
    "8,192 tokens are taken for the sizes here; --context gives another number",
)
def no_context(facts: ConfigFacts) -> Iterator[Sighting]:
    """A decoder's config does not say how long its context is."""
    if facts.spec.max_position_embeddings is None and facts.spec.is_cached:
        yield Sighting("max_position_embeddings", "not given, and the class has no default")


@rule(
    "H415",
    "rescaled-positions",
    "note",
    "quality beyond the original context is the rescaling's; short texts may lose by it",
)
def rescaled_positions(facts: ConfigFacts) -> Iterator[Sighting]:
    """Rotary positions are rescaled to reach further than the model was trained for."""
    for rope in dict.fromkeys(facts.ropes):
        factor = f" x {rope.factor:g}" if rope.factor is not None else ""
        origin = f" from {rope.original:,}" if rope.original is not None else ""
        yield Sighting(rope.holder, f"positions are rescaled: {rope.kind}{factor}{origin}")


@rule(
    "H416",
    "rescaling-mismatch",
    "warning",
    "engines stop at max_position_embeddings; correct whichever is wrong",
)
def rescaling_does_not_add_up(facts: ConfigFacts) -> Iterator[Sighting]:
    """YaRN's factor times the original context is not max_position_embeddings."""
    limit = _limit(facts)
    for rope in dict.fromkeys(facts.ropes):
        if rope.kind != "yarn" or rope.factor is None or rope.original is None or limit is None:
            continue
        reach = rope.factor * rope.original
        if reach != limit:
            yield Sighting(
                rope.holder,
                f"{rope.original:,} x {rope.factor:g} = {reach:,.0f},"
                f" max_position_embeddings is {limit:,}",
            )


RULES = (
    window_beyond_context,
    unused_window,
    pattern_against_types,
    no_context,
    rescaled_positions,
    rescaling_does_not_add_up,
)
