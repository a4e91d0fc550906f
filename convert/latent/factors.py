"""Keys and values as low-rank maps of one latent: pure functions on weights and moments.

For k = W_k x and v = W_v x, with C = E[x x^T], the latent c = A x [r] and the maps back U_k, U_v
minimise

    E |k - U_k c|_K^2 / E |k|_K^2 + E |v - U_v c|_V^2 / E |v|_V^2

(Eckart and Young 1936; weighted by the covariance of the inputs, as in CARE, arXiv 2603.17946).
|.|_V is the norm of what o makes of a head's values, and |.|_K that of the scores: with rotary
embedding and positions that may be anywhere, the mean square of the queries that read a pair of
rows, since only rows that rotate together meet. So keys and values compete for the elements of one
latent by what their errors do. For a given A the best maps back are the regression of k and v on c.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..merge.attention_weights import AttentionWeights
from ..merge.freedom import Freedom

# Added to the diagonal of moments, of their mean: a norm that subtracts the mean, or a short text,
# leaves directions unseen, and sums round. The first that makes them positive.
_RIDGES = (1e-9, 1e-7, 1e-5, 1e-3)


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """`down` A [r, E], and what makes keys and values of the latent: `key` [G, d, r] and `value`
    [G, dv, r] of G heads. `key_error` and `value_error`: the shares of the two sums above that are
    lost."""

    down: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    key_error: float
    value_error: float

    @property
    def rank(self) -> int:
        return self.down.shape[0]


@torch.no_grad()
def low_rank(
    weights: AttentionWeights,
    freedom: Freedom,
    inputs: torch.Tensor,
    rank: int,
    like: AttentionWeights | None = None,
) -> Factors:
    """The best latent of `rank` for inputs with the second moment `inputs` [E, E], in the dtype of
    `weights`. Where nothing need be lost, nothing is computed that rounding could change. `like`:
    keys and values weigh as much as those of that attention do (None: as these), of which `weights`
    are a part."""
    both = torch.cat([weights.k.flatten(0, 1), weights.v.flatten(0, 1)])
    if rank >= min(both.shape):
        return _factors(weights, *_whole(both), (0.0, 0.0))
    second = _with_ridge(inputs.double())
    pieces = _pieces(weights, freedom, second, like or weights)
    seen = torch.cat(pieces)
    down = _down(seen, second, rank)
    mixed = second @ down.T
    inverse = torch.linalg.inv(down @ mixed)
    errors = [_energy(piece - piece @ mixed @ inverse @ down, second) for piece in pieces]
    return _factors(weights, down, both.double() @ mixed @ inverse, errors)


def _whole(both: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs themselves, or keys and values where these are fewer."""
    rows, width = both.shape
    if width <= rows:
        return torch.eye(width, dtype=both.dtype), both
    return both, torch.eye(rows, dtype=both.dtype)


def _factors(
    weights: AttentionWeights, down: torch.Tensor, up: torch.Tensor, errors: Sequence[float]
) -> Factors:
    dtype, count = weights.k.dtype, weights.k.shape[0] * weights.k.shape[1]
    return Factors(
        down=down.to(dtype).contiguous(),
        key=up[:count].to(dtype).unflatten(0, weights.k.shape[:2]).contiguous(),
        value=up[count:].to(dtype).unflatten(0, weights.v.shape[:2]).contiguous(),
        key_error=max(0.0, errors[0]),
        value_error=max(0.0, errors[1]),
    )


def _with_ridge(second: torch.Tensor) -> torch.Tensor:
    """`second`, positive: nothing at all is seen as white."""
    scale, eye = float(second.diagonal().mean()), torch.eye(len(second), dtype=second.dtype)
    if not scale > 0:
        return eye
    made = (second + ridge * scale * eye for ridge in _RIDGES)
    return next((m for m in made if not int(torch.linalg.cholesky_ex(m).info)), scale * eye)


def _energy(maps: torch.Tensor, second: torch.Tensor) -> float:
    """E |maps x|^2."""
    return float(((maps @ second) * maps).sum())


def _pieces(
    weights: AttentionWeights, freedom: Freedom, second: torch.Tensor, like: AttentionWeights
) -> tuple[torch.Tensor, torch.Tensor]:
    """[G*d, E] and [G*dv, E]: what is to be told of keys, and of values, as shares of `like`'s
    energies."""
    metrics = (key_metric(weights, freedom, second), value_metric(weights))
    pieces = []
    parts = ((weights.k, like.k), (weights.v, like.v))
    for (heads, wholes), metric in zip(parts, metrics, strict=True):
        root = _roots(metric)
        whole = _energy((root @ wholes.double()).flatten(0, 1), second)
        pieces.append((root @ heads.double()).flatten(0, 1) / (whole**0.5 or 1.0))
    return pieces[0], pieces[1]


def _roots(metric: torch.Tensor) -> torch.Tensor:
    """Symmetric square roots of positive matrices."""
    values, vectors = torch.linalg.eigh(metric)
    roots: torch.Tensor = (vectors * values.clamp(min=0).sqrt()[..., None, :]) @ vectors.mT
    return roots


def key_metric(weights: AttentionWeights, freedom: Freedom, second: torch.Tensor) -> torch.Tensor:
    """[G, d, d]: by how much an error of each K head changes the scores of its query heads."""
    query = weights.q.double()
    moments = query @ second @ query.mT
    if weights.q_bias is not None:
        moments = moments + weights.q_bias.double()[:, :, None] * weights.q_bias.double()[:, None]
    if freedom.head_norms:
        moments = moments / moments.diagonal(dim1=1, dim2=2).sum(1)[:, None, None].clamp_min(1e-30)
    metric = moments.unflatten(0, (len(weights.k), -1)).sum(1)
    if freedom.head_norms:
        keys = weights.k.double()
        sizes = ((keys @ second) * keys).sum((1, 2)).clamp_min(1e-30)
        metric = metric / sizes[:, None, None]
    return _rotated(metric, freedom)


def _rotated(metric: torch.Tensor, freedom: Freedom) -> torch.Tensor:
    """The mean over all angles that rows may be turned by: of a pair of rows the mean square, and
    nothing between pairs. Where it is not known which rows rotate, of all rows of a head."""
    rows = metric.shape[-1]
    eye = torch.eye(rows, dtype=metric.dtype)
    if not freedom.keys and not freedom.real:
        return metric.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * eye
    turned = torch.zeros(rows, dtype=torch.bool)
    turned[[*freedom.real, *freedom.imaginary]] = True
    squares = metric.diagonal(dim1=1, dim2=2).clone()
    real, imaginary = list(freedom.real), list(freedom.imaginary)
    both = (squares[:, real] + squares[:, imaginary]) / 2
    squares[:, real] = squares[:, imaginary] = both
    still = ~turned
    return torch.where(still[:, None] & still, metric, squares[:, None] * eye)


def value_metric(weights: AttentionWeights) -> torch.Tensor:
    """[G, dv, dv]: by how much an error of each V head changes what o gives."""
    output = weights.o.double()
    made = output.mT @ output
    metric: torch.Tensor = made.unflatten(0, (len(weights.v), -1)).sum(1)
    return metric


def _down(seen: torch.Tensor, second: torch.Tensor, rank: int) -> torch.Tensor:
    """[r, E] with orthonormal rows: of all latents c = A x that which tells most of `seen` x. By
    the smaller of two eigenvalue problems."""
    rows, width = seen.shape
    if rows <= width:
        _, vectors = torch.linalg.eigh(seen @ second @ seen.T)
        down = vectors[:, -rank:].T @ seen
    else:
        root = torch.linalg.cholesky(second)
        product = seen @ root
        _, vectors = torch.linalg.eigh(product.T @ product)
        down = torch.linalg.solve_triangular(root.T, vectors[:, -rank:], upper=True).T
    made: torch.Tensor = torch.linalg.qr(down.T).Q.T
    return made
