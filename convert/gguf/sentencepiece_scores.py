"""Scores of tokens from a list of merges, where both cut every text alike.

SentencePiece (and llama.cpp's "llama") always merges the pair whose token has the highest score;
the package tokenizers merges the pair that stands first in its list. That is one and the same
where every pair that makes a token is in the list, and the pairs of a token stand together.
"""

from collections.abc import Mapping, Sequence


def scores_of(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, ...]]
) -> dict[str, float] | None:
    """The score of each token that a merge makes: 0, -1, -2… in their order. None where scores
    cannot say what the list says."""
    scores: dict[str, float] = {}
    last = ""
    for pair in merges:
        made = "".join(pair)
        if made != last:
            if made in scores:
                return None  # another token's pairs stand between its own
            scores[made] = float(-len(scores))
            last = made
    listed = set(merges)
    for token in scores:
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        for left, right in cuts:
            is_pair = _is_reached(left, scores, vocabulary) and _is_reached(
                right, scores, vocabulary
            )
            if is_pair and (left, right) not in listed:
                return None
    return scores


def _is_reached(piece: str, scores: Mapping[str, float], vocabulary: Mapping[str, int]) -> bool:
    """Whether a text can be cut into this piece on the way: a character, or what a merge makes."""
    return piece in scores or (len(piece) == 1 and piece in vocabulary)
