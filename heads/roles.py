"""From scores to roles: which heads do what, against what uniform attention would score."""

from collections.abc import Iterable, Mapping

from .heads_request import Thresholds

# What a head is called, from the role that says most; `alignment` is of cross-attention.
LETTERS = {
    "induction": "I",
    "duplicate_token": "D",
    "previous_token": "P",
    "alignment": "A",
    "first_token": "F",
}
ROLE_NAMES = {
    "induction": "induction",
    "duplicate_token": "duplicate token",
    "previous_token": "previous token",
    "alignment": "alignment",
    "first_token": "first token",
}
NO_ROLE = "·"


def excess(score: float, uniform: float) -> float:
    """How much of what lies between uniform attention and all of it a head gives to a target."""
    return (score - uniform) / (1 - uniform) if uniform < 1 else 0.0


def roles_of(
    scores: Mapping[str, float | None], uniform: Mapping[str, float | None], limits: Thresholds
) -> tuple[str, ...]:
    """The roles of a head in the order of LETTERS, of its scores and those of uniform attention (of
    which alignment has 0)."""
    found = []
    for role in LETTERS:
        score = scores.get(role)
        if score is not None and excess(score, uniform.get(role) or 0.0) >= getattr(limits, role):
            found.append(role)
    return tuple(found)


def counted_letters(roles: Iterable[tuple[str, ...]]) -> str:
    """How many heads have which role, as `2I 1P`, of the roles of each head."""
    listed = list(roles)
    counts = {letter: sum(role in own for own in listed) for role, letter in LETTERS.items()}
    return " ".join(f"{count}{letter}" for letter, count in counts.items() if count)
