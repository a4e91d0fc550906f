"""One head in place of several: the maps to it and back, and what they lose.

Everything is in the space of the heads. Members x_1 … x_m of r rows each, with E[x x^H] = C
[m*r, m*r], become y = sum_h encode_h x_h, and x_h is taken to be decode_h y where it is read. What
reads x_h counts an error e as e^H weight_h e, so that

    lost = sum_h tr(weight_h R_h C R_h^H),   R_h = (row h of the identity) - decode_h encode.

Scores q^H k and outputs W_o z both have this form: weight_h is E[q q^H] of the queries that read
K head h, or the sum of their W_o^H W_o. Rows that rotate together are one complex number (r = 1).
Tensors may have leading dimensions, one problem each, and may be complex; all are float64.
"""

from dataclasses import dataclass

import torch

# Eigenvalues below this share of the largest are rounding.
_ROUNDING = 1e-13
_PROCRUSTES_STEPS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedHead:
    """`encode` and `decode`, both [..., m, r, r]: x_h ~ decode_h sum_g encode_g x_g."""

    encode: torch.Tensor
    decode: torch.Tensor

    @property
    def row(self) -> torch.Tensor:
        """[..., r, m*r]: the encoders side by side."""
        return self.encode.movedim(-3, -2).flatten(-2)


def lost(shared: SharedHead, weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """[...]: what is lost of all members; `weight` [..., m, r, r]."""
    row = shared.row
    parts = [
        lost_by(row, shared.decode[..., h, :, :], h, weight[..., h, :, :], covariance)
        for h in range(weight.shape[-3])
    ]
    return torch.stack(parts).sum(0)


def lost_by(
    row: torch.Tensor,
    decode: torch.Tensor,
    member: int,
    weight: torch.Tensor,
    covariance: torch.Tensor,
) -> torch.Tensor:
    """[...]: what one reader of a member loses, of `weight` and `decode` [..., r, r]."""
    rank = weight.shape[-1]
    rest = -decode @ row
    rest[..., member * rank : (member + 1) * rank] += torch.eye(
        rank, dtype=rest.dtype, device=rest.device
    )
    return ((weight @ rest @ covariance) * rest.conj()).sum((-2, -1)).real


def energy(weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """[...]: what would be lost without any head: sum_h tr(weight_h C_hh)."""
    own = own_blocks(covariance, weight.shape[-3])
    return (weight * own.transpose(-1, -2)).sum((-3, -2, -1)).real


def own_blocks(covariance: torch.Tensor, members: int) -> torch.Tensor:
    """[..., m, r, r]: the moments of every member by itself."""
    blocks = _blocks(covariance, members)
    return torch.stack([blocks[..., h, :, h, :] for h in range(members)], -3)


def averaging_head(like: torch.Tensor, scale: float = 1.0) -> SharedHead:
    """`scale` times the mean of the members, read in place of each."""
    identity = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device).expand_as(like)
    return SharedHead(encode=identity * (scale / like.shape[-3]), decode=identity)


def weighted_head(weight: torch.Tensor) -> SharedHead:
    """The mean in which every row counts as much as what reads it: the least that is lost when
    nothing can be mapped back and rows do not mix."""
    read = weight.diagonal(dim1=-2, dim2=-1).real.clamp_min(0)
    total = read.sum(-2, keepdim=True)
    shares = torch.where(total > 0, read / total.clamp_min(1e-300), 1 / read.shape[-2])
    encode = torch.diag_embed(shares).to(weight.dtype)
    return SharedHead(encode=encode, decode=averaging_head(weight).decode)


def best_head(weight: torch.Tensor, covariance: torch.Tensor) -> SharedHead:
    """The head that loses least of all: lost = the sum of all but the r largest eigenvalues of
    Z = weight^1/2 C weight^1/2 (Eckart-Young; `weight` block-diagonal).

    With Z = U S^2 U^H, encode = U_r^H weight^1/2 up to an invertible map that cancels, and decode
    is the regression of the members on it. That map is chosen so that neither side is lopsided, and
    so that y has the members' mean energy. Where Z has no r directions, the rest of y is 0.
    """
    members, rank = weight.shape[-3], weight.shape[-1]
    roots = square_roots(weight)
    values, vectors = torch.linalg.eigh(weighed(covariance, roots))
    top = values[..., -rank:].flip(-1)
    kept = top > _ROUNDING * values[..., -1:].clamp_min(0)
    singular = torch.where(kept, top, 1.0).sqrt()
    basis = vectors[..., -rank:].flip(-1).unflatten(-2, (members, rank))
    encode = (basis.mH @ roots) * (kept / singular)[..., None, :, None]  # E[y y^H] = 1
    row = encode.movedim(-3, -2).flatten(-2)
    own = _hermitian(row @ covariance @ row.mH) + torch.diag_embed(~kept).to(row.dtype)
    # Regression proper, since the eigenvectors of small values are not as precise as that.
    decode = torch.linalg.solve(own, row @ covariance).mH.unflatten(-2, (members, rank))
    scale = _scale_to_members((singular * kept).sum(-1), covariance, members)
    gauge = singular.sqrt() * scale[..., None]
    return SharedHead(
        encode=encode * gauge[..., None, :, None], decode=decode / gauge[..., None, None, :]
    )


def _scale_to_members(held: torch.Tensor, covariance: torch.Tensor, members: int) -> torch.Tensor:
    """[...]: what brings a head of energy `held` [...] to what the members have in the mean; 1
    where there is none."""
    wanted = covariance.diagonal(dim1=-2, dim2=-1).real.sum(-1) / members
    some = (held > 0) & (wanted > 0)
    return torch.where(some, wanted / torch.where(some, held, 1.0), 1.0).sqrt()


def weighed(covariance: torch.Tensor, roots: torch.Tensor) -> torch.Tensor:
    """[..., m*r, m*r]: weight^1/2 C weight^1/2 from the `roots` [..., m, r, r] of the weights."""
    product = torch.einsum(
        "...gab,...gbhc,...hcd->...gahd", roots, _blocks(covariance, roots.shape[-3]), roots
    )
    return _hermitian(product.flatten(-4, -3).flatten(-2))


def aligned_head(covariance: torch.Tensor, members: int) -> SharedHead:
    """The mean of members that unitary maps turn towards it: generalised Procrustes analysis
    (Gower 1975; for heads Jin et al., arXiv 2412.20677). One complex row: phases."""
    blocks = _blocks(covariance, members)
    turns = _unitary(blocks[..., 0, :, :, :].movedim(-2, -3))  # towards the first
    for _ in range(_PROCRUSTES_STEPS):
        turns = _unitary(torch.einsum("...gab,...gbhc->...hac", turns, blocks))
    return SharedHead(encode=turns / members, decode=turns.mH)


def _blocks(covariance: torch.Tensor, members: int) -> torch.Tensor:
    """[..., m, r, m, r]"""
    rank = covariance.shape[-1] // members
    shape = (*covariance.shape[:-2], members, rank, members, rank)
    return covariance.reshape(shape)


def _hermitian(matrix: torch.Tensor) -> torch.Tensor:
    return (matrix + matrix.mH) / 2


def square_roots(matrix: torch.Tensor) -> torch.Tensor:
    """Of positive semidefinite Hermitian matrices."""
    values, vectors = torch.linalg.eigh(_hermitian(matrix))
    root: torch.Tensor = (vectors * values.clamp_min(0).sqrt()[..., None, :]) @ vectors.mH
    return root


def _unitary(matrix: torch.Tensor) -> torch.Tensor:
    """The unitary factor of the polar decomposition."""
    left, _, right = torch.linalg.svd(matrix)
    factor: torch.Tensor = left @ right
    return factor
