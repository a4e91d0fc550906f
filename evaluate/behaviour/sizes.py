"""How much of each probe is run: `brief` stays well below what scoring the text costs."""

from dataclasses import dataclass

# Of a model that sets no limit to its positions, what `full` reads at most.
UNLIMITED = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeSizes:
    """Sequences of each probe, and tokens of one copy, body or continuation."""

    random_sequences: int
    random_tokens: int
    passages: int
    passage_tokens: int
    recall_rows: int
    first_tokens: int
    bodies: int
    body_tokens: int
    prompts: int
    prompt_tokens: int
    new_tokens: int
    worst: int  # windows and first tokens that are shown


SIZES = {
    "brief": ProbeSizes(
        random_sequences=16,
        random_tokens=64,
        passages=16,
        passage_tokens=64,
        recall_rows=4,
        first_tokens=24,
        bodies=2,
        body_tokens=32,
        prompts=3,
        prompt_tokens=32,
        new_tokens=24,
        worst=3,
    ),
    "full": ProbeSizes(
        random_sequences=32,
        random_tokens=256,
        passages=32,
        passage_tokens=256,
        recall_rows=16,
        first_tokens=96,
        bodies=8,
        body_tokens=64,
        prompts=8,
        prompt_tokens=64,
        new_tokens=48,
        worst=10,
    ),
}
