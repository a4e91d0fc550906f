"""The results of an evaluation: raw numbers, and the JSON document made of them."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from headcount.heads.comparison.comparison import AtlasComparison
from headcount.heads.comparison.comparison_document import comparison_summary
from headcount.running.measured_cache import CacheBytes

from .behaviour.behaviour import Behaviour
from .divergence import Divergence
from .speed import Speed
from .tasks import TaskResult

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelScore:
    """One model on the text: mean loss in nats over `tokens` scored tokens."""

    id: str
    loss: float
    tokens: int
    bits_per_byte: float | None
    dtype: str
    cache: CacheBytes
    speed: Speed | None

    @property
    def perplexity(self) -> float | None:
        """exp(loss); None where that is beyond a float."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return None

    def document(self) -> dict[str, Any]:
        """The `model` or `against` part of the JSON document."""
        return {
            "id": self.id,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "tokens": self.tokens,
            "bits_per_byte": self.bits_per_byte,
            "dtype": self.dtype,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """KL(original || model) in nats a token, and the share of tokens ranked first by both."""

    kl_divergence: float
    top1_agreement: float

    @classmethod
    def of(cls, divergence: Divergence | None) -> "Comparison | None":
        """The means over all tokens; None where nothing was compared."""
        if divergence is None:
            return None
        return cls(
            kl_divergence=divergence.kl.mean().item(),
            top1_agreement=divergence.top1.double().mean().item(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All that decides the numbers. `tokens` are those read, of so many `documents`; one less of
    each is scored. `bos`: every window begins with BOS. `targets`: where an encoder-decoder's are
    from, which are documents and windows at once, and scored whole."""

    window: int
    stride: int
    text: str
    text_sha256: str
    documents: int
    tokens: int
    max_tokens: int
    bos: bool
    tokenizer: str
    dtype: str
    device: str
    threads: int
    attention: str
    prompt_tokens: int
    decode_tokens: int
    repeats: int
    torch: str
    transformers: str
    targets: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationReport:
    """What was measured; `warnings` are lines for stderr, and part of the document. `of_text` are
    those of them that are about the text and not the model, and without places of files they go
    into a model card."""

    model: ModelScore
    against: ModelScore | None
    comparison: Comparison | None
    behaviour: Behaviour | None
    settings: Settings
    warnings: tuple[str, ...]
    tasks: tuple[TaskResult, ...] = ()
    roles: AtlasComparison | None = None
    of_text: tuple[str, ...] = ()
    of_text_without_places: tuple[str, ...] = ()

    @property
    def failure(self) -> str | None:
        """Why the numbers are worth nothing, in one line; None for a sound measurement."""
        for score in (self.model, self.against):
            if score is not None and score.perplexity is None:
                return (
                    f"{score.id}: a loss of {score.loss:,.0f} nats a token, whose perplexity is"
                    " beyond any number: the weights are damaged, or tokenizer and text are not the"
                    " model's"
                )
        return None

    @property
    def delta_loss(self) -> float | None:
        """Loss of the model minus that of the original, in nats a token."""
        return None if self.against is None else self.model.loss - self.against.loss

    def document(self) -> dict[str, Any]:
        """The report as JSON: stable keys, raw numbers, null for what was not measured."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model.document(),
            "against": self.against and self.against.document(),
            "delta_loss": self.delta_loss,
            "kl_divergence": self.comparison and self.comparison.kl_divergence,
            "top1_agreement": self.comparison and self.comparison.top1_agreement,
            "behaviour": self.behaviour and self.behaviour.document(),
            "tasks": [task.document() for task in self.tasks],
            "roles": self.roles and comparison_summary(self.roles),
            "cache_bytes": self._cache_bytes(),
            "speed": self._speed(),
            "settings": asdict(self.settings),
            "warnings": list(self.warnings),
        }

    def _cache_bytes(self) -> dict[str, Any]:
        return {
            **asdict(self.model.cache),
            "batch_size": 1,
            "against": self.against and asdict(self.against.cache),
        }

    def _speed(self) -> dict[str, Any] | None:
        speed = self.model.speed
        if speed is None:
            return None
        original = self.against and self.against.speed
        return {
            **asdict(speed),
            "against": asdict(original) if original else None,
            "prefill_ratio": original
            and speed.prefill_tokens_per_second / original.prefill_tokens_per_second,
            "decode_ratio": original
            and speed.decode_tokens_per_second / original.decode_tokens_per_second,
        }
