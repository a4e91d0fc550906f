"""What may be changed in an attention: plans say it, too, so that nothing here needs torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Freedom:
    """Which changes of an attention leave its function as it is.

    `real` and `imaginary` are the rows of a q or k head that rotate together, as one complex
    number each; both are empty without rotary embedding. Rows in neither are not rotated. `keys`:
    nothing but the rotation stands between a projection and the scores, so that q and k may be
    turned against each other; a q or k norm forbids it. `head_norms`: such a norm is over one head
    at a time, so that a head's scale does not count (a norm over all heads keeps it). `values`: the
    same of v and o; a gate or norm between them forbids it. `order`: heads may change places; ALiBi
    forbids it. Attentions with the same number in `order_set` must do so together, since they read
    one table of what each head adds to its scores; None: each for itself. `key_bias`: k has a bias
    slot, `output_bias`: o has one.
    """

    real: tuple[int, ...] = ()
    imaginary: tuple[int, ...] = ()
    keys: bool = True
    values: bool = True
    order: bool = True
    order_set: int | None = None
    key_bias: bool = False
    output_bias: bool = False
    head_norms: bool = False
