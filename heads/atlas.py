"""The atlas: every head of a decoder with its scores and roles, as values."""

from collections.abc import Iterator
from dataclasses import dataclass

from .attentions import DecoderAttention
from .heads_request import Thresholds


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScores:
    """What one query head does, as docs/heads.md defines it; None where that cannot be told.

    The first four are shares of attention, means over the queries that see such a token.
    `distance` is a mean in tokens; `offset` the distance that gets most attention, `offset_share`
    of all. `entropy` in nats; `span` in tokens. `attended`: what is not given to a sink in the
    softmax. `copying` and `alignment` lie between -1 and 1.
    """

    previous_token: float | None = None
    first_token: float | None = None
    duplicate_token: float | None = None
    induction: float | None = None
    alignment: float | None = None
    copying: float | None = None
    distance: float | None = None
    offset: int | None = None
    offset_share: float | None = None
    entropy: float
    span: float
    attended: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """One query head; `roles` from the one that says most, `copies` whether its OV circuit does."""

    head: int
    key_value_head: int
    scores: HeadScores
    roles: tuple[str, ...]
    copies: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyValueHead:
    """One K/V head: the query heads that read it, and how alike these are: the mean cosine of their
    patterns, pair by pair; None for one query head."""

    key_value_head: int
    query_heads: tuple[int, ...]
    similarity: float | None
    induction_heads: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionAtlas:
    """One attention: `path` is its module in the model, `uniform` what uniform attention scores."""

    attention: DecoderAttention
    path: str
    uniform: dict[str, float | None]
    heads: tuple[Head, ...]
    key_value_heads: tuple[KeyValueHead, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AtlasSettings:
    """All that decides the numbers. `tokens` random tokens stand twice behind `start_id`, if there
    is one, in a sequence of `sequence_length`."""

    tokens: int
    sequences: int
    batch_size: int
    sequence_length: int
    start_id: int | None
    seed: int
    dtype: str
    device: str
    thresholds: Thresholds
    torch: str
    transformers: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What was run: `tokens` in all passes, `seconds` without loading."""

    forward_passes: int
    tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Atlas:
    """All heads of a decoder, layer by layer. `warnings` are lines for stderr and the report."""

    id: str
    model_type: str
    attentions: tuple[AttentionAtlas, ...]
    settings: AtlasSettings
    cost: Cost
    warnings: tuple[str, ...]

    def heads(self) -> Iterator[tuple[AttentionAtlas, Head]]:
        """Every head with the attention that it is in."""
        for one in self.attentions:
            for head in one.heads:
                yield one, head
