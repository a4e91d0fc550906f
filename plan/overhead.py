"""What a rank needs beside weights and cache: a runtime and the activations of one step.

An estimate, in contrast to the rest of a plan; docs/planning.md compares it with start-up logs.
"""

from dataclasses import dataclass
from math import ceil

from headcount.model.spec import ModelSpec

from .budget import Term
from .request import Workload

GIB = 2**30
# Memory outside the tensor allocator, as vLLM start-up logs on H100 give it: 0.13 GiB on one
# device, 0.55 with the buffers of collective communication.
RUNTIME_ALONE, RUNTIME_PARALLEL = 15 * GIB // 100, 60 * GIB // 100
# Prompts run in pieces: the token budget of a step that vLLM takes on devices of 70 GiB and more.
STEP_TOKENS = 8192
# Residual stream, normed input and attention output, on every rank whole; and gate, up and their
# product in an MLP of 4 x hidden_size, split over the ranks.
WIDTH_WHOLE, WIDTH_SPLIT = 4, 12
# Sampling with float32 logits, sorted copies, their int64 indices, softmax and cumulative sums:
# 38.4 to 39.6 bytes in start-up logs of seven models whose sampler is PyTorch's.
SAMPLER_BYTES = 39


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """`vocab_size` is None for a model that samples nothing; `in_steps` False for one that must see
    a sequence whole. A step has at most `step_limit` tokens, None: as many as there are."""

    hidden_size: int
    vocab_size: int | None
    element_bytes: int
    encoder_tokens: int
    tp: int
    in_steps: bool
    step_limit: int | None = STEP_TOKENS

    @property
    def runtime_bytes(self) -> int:
        return RUNTIME_ALONE if self.tp == 1 else RUNTIME_PARALLEL

    def step_tokens(self, context: int, batch_size: int) -> int:
        """Tokens of the largest forward pass. An encoder is not run in pieces."""
        decoded = context * batch_size
        if self.in_steps and self.step_limit is not None:
            decoded = min(decoded, self.step_limit)
        return max(decoded, self.encoder_tokens * batch_size)

    def forward_bytes(self, context: int, batch_size: int) -> int:
        width = ceil(self.hidden_size * (WIDTH_WHOLE * self.tp + WIDTH_SPLIT) / self.tp)
        return width * self.step_tokens(context, batch_size) * self.element_bytes

    def sampler_bytes(self, batch_size: int) -> int:
        return SAMPLER_BYTES * batch_size * (self.vocab_size or 0)

    def total_bytes(self, context: int, batch_size: int) -> int:
        step = max(self.forward_bytes(context, batch_size), self.sampler_bytes(batch_size))
        return self.runtime_bytes + step

    def terms(self, context: int, batch_size: int) -> tuple[Term, Term]:
        """The runtime, and the larger of forward pass and sampler: one ends before the other."""
        sampler, forward = self.sampler_bytes(batch_size), self.forward_bytes(context, batch_size)
        by_sampler = sampler > forward
        return (
            Term(
                key="runtime",
                title="Runtime",
                bytes=self.runtime_bytes,
                formula="estimate: libraries and workspaces"
                if self.tp == 1
                else "estimate: libraries, workspaces and communication buffers",
            ),
            Term(
                key="activations",
                title="Activations",
                bytes=max(sampler, forward),
                formula=self._sampler_formula(batch_size)
                if by_sampler
                else self._forward_formula(context, batch_size),
            ),
        )

    def _sampler_formula(self, batch_size: int) -> str:
        rows = f"{batch_size:,} x vocabulary {self.vocab_size:,}"
        return f"estimate: sampler, {SAMPLER_BYTES} B x {rows}"

    def _forward_formula(self, context: int, batch_size: int) -> str:
        split = f"{WIDTH_SPLIT}/{self.tp}" if self.tp > 1 else str(WIDTH_SPLIT)
        return (
            f"estimate: forward, {self.step_tokens(context, batch_size):,} tokens x"
            f" ({WIDTH_WHOLE} + {split}) x hidden {self.hidden_size:,} x {self.element_bytes} B"
        )


def plan_overhead(
    spec: ModelSpec, work: Workload, *, step_limit: int | None = STEP_TOKENS
) -> Overhead:
    """The overhead of one rank. A model without a cache samples nothing."""
    decodes = spec.is_cached
    return Overhead(
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size if decodes else None,
        element_bytes=ceil(work.compute_bits / 8),
        encoder_tokens=work.encoder_tokens,
        tp=work.request.tp,
        in_steps=decodes,
        step_limit=step_limit,
    )
