"""All probes of a model and, if it is there, of the original that it was made from."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from headcount.heads.sequences import RepeatedTokens
from headcount.running.progress import progress_bar

from ..loss import WindowLosses
from .behaviour_plan import BehaviourPlan
from .first_tokens import FirstToken, first_token_losses
from .generations import Generation, generations
from .positions import InContextScore, PositionLosses, in_context_score, losses_by_position
from .recall import RecallAt, recall
from .repeats import CopyScores, induction_scores
from .verdict import Word, share_kept, verdict
from .window_spread import WindowSpread, window_spread


@dataclass(frozen=True, kw_only=True, slots=True)
class Copying:
    """`sequences` of `tokens` tokens and these once more, by the model and by the original."""

    sequences: int
    tokens: int
    model: CopyScores
    against: CopyScores | None

    @property
    def kept(self) -> float | None:
        """See `share_kept`; None without an original."""
        return None if self.against is None else share_kept(self.model, self.against)

    @property
    def verdict(self) -> Word | None:
        """None without an original."""
        return None if self.against is None else verdict(self.kept)

    def document(self) -> dict[str, Any]:
        return {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "model": self.model.document(),
            "against": self.against and self.against.document(),
            "kept": self.kept,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCost:
    """`tokens` that each model read for the probes; seconds of these and of scoring the text."""

    tokens: int
    seconds: float
    scoring_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """What the probes found; None for what `not_measured` gives a reason for."""

    size: str
    induction: Copying | None
    repeated_text: Copying | None
    in_context: InContextScore | None
    by_position: tuple[PositionLosses, ...]
    recall: tuple[RecallAt, ...]
    windows: WindowSpread
    first_tokens: tuple[FirstToken, ...]
    first_token_bodies: int
    generations: tuple[Generation, ...]
    not_measured: dict[str, str]
    cost: ProbeCost

    @property
    def verdict(self) -> Word | None:
        """The worst of what copying random tokens and the text's came to; `none` where the original
        copies neither, None without an original."""
        words = [one.verdict for one in (self.induction, self.repeated_text) if one is not None]
        order: tuple[Word, ...] = ("destroyed", "weakened", "kept", "none")
        return next((word for word in order if word in words), None)

    def document(self) -> dict[str, Any]:
        """The `behaviour` part of the JSON document."""
        return {
            "size": self.size,
            "verdict": self.verdict,
            "induction": self.induction and self.induction.document(),
            "repeated_text": self.repeated_text and self.repeated_text.document(),
            "in_context": self.in_context and self.in_context.document(),
            "loss_by_position": [one.document() for one in self.by_position],
            "recall": [one.document() for one in self.recall],
            "windows": self.windows.document(),
            "first_tokens": [one.document() for one in self.first_tokens],
            "generations": [one.document() for one in self.generations],
            "not_measured": dict(self.not_measured),
            "cost": {"tokens": self.cost.tokens},
        }


def probe(
    plan: BehaviourPlan,
    models: Sequence[PreTrainedModel],
    windows: Sequence[WindowLosses],
    decode: Callable[[list[int]], str],
    *,
    scoring_seconds: float,
) -> Behaviour:
    """`windows` are those of the text, scored whole by the same models; `decode` turns tokens into
    text. Raises EvaluationFailedError for a loss that is not finite."""
    start = time.perf_counter()
    with progress_bar(None, "behaviour", "probe", total=5) as bar:
        induction = _copying(models, plan.induction, bar)
        repeated_text = _copying(models, plan.repeated_text, bar)
        recalled = recall(models, plan.recall) if plan.recall else ()
        bar.update()
        firsts = plan.first_tokens
        first_tokens = first_token_losses(models, firsts, decode) if firsts else ()
        bar.update()
        continued = generations(models, plan.prompts, decode, tokens=plan.new_tokens)
        bar.update()
    in_context = in_context_score(windows, window=plan.window)
    reasons = dict(plan.not_measured)
    if in_context is None:
        reasons["in_context"] = "no window is long enough"
    return Behaviour(
        size=plan.size,
        induction=induction,
        repeated_text=repeated_text,
        in_context=in_context,
        by_position=losses_by_position(windows),
        recall=recalled,
        windows=window_spread(windows, plan.ids, decode, worst=plan.sizes.worst),
        first_tokens=first_tokens,
        first_token_bodies=firsts.bodies if firsts else 0,
        generations=continued,
        not_measured=reasons,
        cost=ProbeCost(
            tokens=_tokens_read(plan),
            seconds=time.perf_counter() - start,
            scoring_seconds=scoring_seconds,
        ),
    )


def _copying(
    models: Sequence[PreTrainedModel], sequences: RepeatedTokens | None, bar: Any
) -> Copying | None:
    bar.update()
    if sequences is None:
        return None
    scores = [induction_scores(model, sequences) for model in models]
    return Copying(
        sequences=len(sequences.ids),
        tokens=sequences.tokens,
        model=scores[0],
        against=scores[1] if len(scores) > 1 else None,
    )


def _tokens_read(plan: BehaviourPlan) -> int:
    rows = (plan.induction, plan.repeated_text, plan.recall, plan.first_tokens)
    read = sum(one.ids.numel() for one in rows if one is not None)
    return read + plan.prompts.numel() + len(plan.prompts) * plan.new_tokens
