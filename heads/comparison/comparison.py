"""Two atlases side by side: what every head did before, and what it does now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..atlas import Atlas, AttentionAtlas, Head
from ..roles import LETTERS
from .matching import Matching
from .moved_heads import Origins


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadChange:
    """One query head in both models; None where one of them does not have it."""

    before: Head | None
    after: Head | None

    @property
    def roles_before(self) -> tuple[str, ...]:
        return self.before.roles if self.before else ()

    @property
    def roles_after(self) -> tuple[str, ...]:
        return self.after.roles if self.after else ()

    @property
    def lost(self) -> tuple[str, ...]:
        """The roles that it had and has no more, also because it is gone."""
        return tuple(role for role in self.roles_before if role not in self.roles_after)

    @property
    def gained(self) -> tuple[str, ...]:
        return tuple(role for role in self.roles_after if role not in self.roles_before)

    @property
    def is_changed(self) -> bool:
        return bool(self.lost or self.gained)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyValueChange:
    """One K/V head after: which of before's its query heads read then, and what became of these
    query heads. `similarity` is the mean cosine of their patterns now, None for one."""

    key_value_head: int
    merged: tuple[int, ...]
    heads: tuple[HeadChange, ...]
    similarity: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionChange:
    """One attention in both models. `heads` are those of before in their order, then those that
    only the model has now; `padding` counts heads of zeros that the conversion has added."""

    before: AttentionAtlas
    after: AttentionAtlas
    heads: tuple[HeadChange, ...]
    key_value_heads: tuple[KeyValueChange, ...]
    padding: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleChange:
    """One role over all heads. `had` are the heads that had it, with what they are now; of these
    `kept` still have it, `gone` are in the model no more. `score_before` and `score_after` are the
    mean scores of `had`, where a head that is gone gives nothing; None without any."""

    role: str
    had: int
    kept: int
    gone: int
    gained: int
    score_before: float | None
    score_after: float | None

    @property
    def lost(self) -> int:
        return self.had - self.kept

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if not self.had:
            return "only gained"
        if not self.kept:
            return "lost"
        return "lost in part" if self.lost else "kept"


@dataclass(frozen=True, kw_only=True, slots=True)
class AtlasComparison:
    """The heads of a model, `after`, against those of another, `before`. `matched_by` says how it
    is known which is which."""

    before: Atlas
    after: Atlas
    attentions: tuple[AttentionChange, ...]
    matched_by: str
    warnings: tuple[str, ...]

    def heads(self) -> Iterator[tuple[AttentionChange, HeadChange]]:
        """Every head with the attention that it is in."""
        for one in self.attentions:
            for head in one.heads:
                yield one, head

    @property
    def gone(self) -> int:
        """Heads of before that are in the model no more."""
        return sum(head.after is None for _, head in self.heads())

    @property
    def roles(self) -> tuple[RoleChange, ...]:
        """Of every role that a head had or has, in the order of LETTERS."""
        changes = [head for _, head in self.heads()]
        every = (_role_change(role, changes) for role in LETTERS)
        return tuple(one for one in every if one.had or one.gained)


def compare_atlases(before: Atlas, after: Atlas, matching: Matching) -> AtlasComparison:
    """What became of every head, of two atlases made on the same tokens. `matching.model` is about
    `after`, `matching.against` about `before`."""
    pairs = zip(before.attentions, after.attentions, matching.against, matching.model, strict=True)
    warnings = (*matching.warnings, *before.warnings, *after.warnings)
    return AtlasComparison(
        before=before,
        after=after,
        attentions=tuple(_attention_change(*pair) for pair in pairs),
        matched_by=matching.by,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _attention_change(
    before: AttentionAtlas, after: AttentionAtlas, was: Origins, now: Origins
) -> AttentionChange:
    heads = tuple(_head_changes(before, after, was, now))
    return AttentionChange(
        before=before,
        after=after,
        heads=heads,
        key_value_heads=tuple(_key_value_changes(after, heads)),
        padding=sum(origin is None for origin in now),
    )


def _head_changes(
    before: AttentionAtlas, after: AttentionAtlas, was: Origins, now: Origins
) -> Iterator[HeadChange]:
    """Without padding, which is no head of either."""
    places = {origin: place for place, origin in enumerate(now) if origin is not None}
    for head, origin in zip(before.heads, was, strict=True):
        if origin is not None:
            place = places.get(origin)
            yield HeadChange(before=head, after=None if place is None else after.heads[place])
    for head, origin in zip(after.heads, now, strict=True):
        if origin is not None and origin not in was:
            yield HeadChange(before=None, after=head)


def _key_value_changes(
    after: AttentionAtlas, heads: Sequence[HeadChange]
) -> Iterator[KeyValueChange]:
    for one in after.key_value_heads:
        own = tuple(h for h in heads if h.after and h.after.head in one.query_heads)
        merged = {h.before.key_value_head for h in own if h.before}
        yield KeyValueChange(
            key_value_head=one.key_value_head,
            merged=tuple(sorted(merged)),
            heads=own,
            similarity=one.similarity,
        )


def _role_change(role: str, changes: Sequence[HeadChange]) -> RoleChange:
    had = [one for one in changes if role in one.roles_before]
    before = [_score(one.before, role) for one in had]
    after = [_score(one.after, role) for one in had]
    return RoleChange(
        role=role,
        had=len(had),
        kept=sum(role in one.roles_after for one in had),
        gone=sum(one.after is None for one in had),
        gained=sum(role in one.gained for one in changes),
        score_before=sum(before) / len(had) if had else None,
        score_after=sum(after) / len(had) if had else None,
    )


def _score(head: Head | None, role: str) -> float:
    """0 for a head that is gone, or whose pattern cannot show the role."""
    score = None if head is None else getattr(head.scores, role)
    return 0.0 if score is None else float(score)
