"""The page on what heads do together: induction."""

from .page import ELHAGE, OLSSON, Page, Sum, product
from .subject import Subject

_INDUCTION = (
    "In a text A B … A an induction head attends from the second A to B, the token after the first"
    " A, and makes B likelier: it continues what it has seen before. It takes two layers: a head of"
    " an earlier layer tells each token which one came before it (a previous-token head), and the"
    " induction head's query finds the key that says A came before. Olsson et al. measure it on"
    " random tokens that are repeated (prefix matching and copying), see these heads form while the"
    " loss falls by a sudden step, and argue that much of learning in context rests on them."
)
_SHARED = (
    "Heads that share a K/V head share the keys that they match with: if K/V heads are merged,"
    " their previous-token and induction heads may be lost though the loss on plain text hardly"
    " moves."
)
_WHICH = (
    "Which of the heads they are, no config says. `headcount heads MODEL` finds them by running the"
    " model (a folder or a model of the Hub; needs the extra `convert`): one cell a head, I for"
    " induction, and the scores with --format json."
)
_HEADLESS = "This model has no attention, so there are no heads to look at."


def induction(subject: Subject) -> Page:
    sources = (OLSSON, ELHAGE)
    attending = [
        (m, n)
        for m, n in subject.mixers.items()
        if m.kind not in ("recurrent", "cross_attention") and m.num_attention_heads
    ]
    if not attending or not subject.spec.is_cached:
        none = (
            _HEADLESS if not attending else "This model decodes nothing, so it continues no text."
        )
        return Page(False, (_INDUCTION, none), sources)
    terms = [product(n, m.num_attention_heads or 0) for m, n in attending]
    total = sum(n * (m.num_attention_heads or 0) for m, n in attending)
    heads = Sum("heads", "heads that may be one: layers x heads", " + ".join(terms), total)
    return Page(True, (_INDUCTION, heads, _SHARED, _WHICH), sources)
