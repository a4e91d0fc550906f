"""Keys and values as attention reads them, without making them of the latents that are cached.

Lies beside `modeling_headcount_latent.py`, and needs torch only.

Where nothing stands between a projection and the cache (no rotation, norm or clip), the keys of a
head are k = U_k c + b_k, and its values v = U_v c + b_v, linear in the latents c. Then

    q k^T = (q U_k) c^T + q b_k        and        p v = (p c) U_v^T + (sum p) b_v

read the latents themselves: maps that are absorbed into queries and results, as in DeepSeek-V2
(arXiv 2405.04434, 2.1.2). Masks, biases of positions, scale and softmax stay the class's own.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def is_absorbed(queries: int, tokens: int, rank: int, head_dim: int) -> bool:
    """Whether reading the latents takes fewer multiplications than making keys, or values, of them
    and reading those. For each K/V head, whose query heads make `queries` rows together:

        absorbed  queries * rank * (head_dim + tokens)
        rebuilt   tokens * head_dim * (rank + queries)
    """
    return queries * rank * (head_dim + tokens) < tokens * head_dim * (rank + queries)


class Factored:
    """Keys or values [batch, heads, tokens, head_dim] that stay factors: `latents` [batch, tokens,
    rank], `weight` [heads, head_dim, rank] and `bias` [heads, head_dim] or None.

    `merged`: batch and heads are one dimension; `turned`: the last two have changed places. What
    asks for more than a product with it gets the tensor, which `whole` makes.
    """

    def __init__(
        self,
        latents: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        merged: bool = False,
        turned: bool = False,
    ) -> None:
        self.latents, self.weight, self.bias = latents, weight, bias
        self.merged, self.turned = merged, turned

    @property
    def shape(self) -> torch.Size:
        batch, tokens, _ = self.latents.shape
        heads, head_dim, _ = self.weight.shape
        leading = (batch * heads,) if self.merged else (batch, heads)
        own = (head_dim, tokens) if self.turned else (tokens, head_dim)
        return torch.Size((*leading, *own))

    @property
    def dtype(self) -> torch.dtype:
        return self.latents.dtype

    @property
    def device(self) -> torch.device:
        return self.latents.device

    def dim(self) -> int:
        return 3 if self.merged else 4

    ndim = property(dim)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def whole(self) -> torch.Tensor:
        """The tensor itself."""
        bias = None if self.bias is None else self.bias.flatten()
        made = nn.functional.linear(self.latents, self.weight.flatten(0, 1), bias)
        heads: torch.Tensor = made.unflatten(-1, (self.weight.shape[0], -1)).transpose(1, 2)
        heads = heads.flatten(0, 1) if self.merged else heads
        return heads.transpose(-1, -2) if self.turned else heads

    def contiguous(self) -> "Factored":
        return self

    def float(self) -> Any:
        return self.to(torch.float32)

    def to(self, dtype: Any) -> Any:
        if not isinstance(dtype, torch.dtype):
            return self.whole().to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        return self._with(latents=self.latents.to(dtype), weight=self.weight.to(dtype), bias=bias)

    def transpose(self, one: int, two: int) -> Any:
        last = self.dim() - 1
        if {one % self.dim(), two % self.dim()} != {last, last - 1}:
            return self.whole().transpose(one, two)
        return self._with(turned=not self.turned)

    def reshape(self, *shape: Any) -> Any:
        """Batch and heads may become one dimension."""
        asked = tuple(shape[0] if len(shape) == 1 else shape)
        batch, heads, *own = self.shape if not self.merged else (0, 0, 0, 0)
        if not self.merged and _fits(asked, (batch, heads, *own)):
            return self
        if self.merged or not _fits(asked, (batch * heads, *own)):
            return self.whole().reshape(*shape)
        return self._with(merged=True)

    view = reshape

    def times(self, left: torch.Tensor) -> torch.Tensor:
        """`left` @ this: scores of queries with keys that are turned, or what values give."""
        heads, head_dim, rank = self.weight.shape
        batch, tokens, _ = self.latents.shape
        rows = left.unflatten(0, (batch, heads)) if self.merged else left
        is_absorbable = rows.dim() == 4 and rows.shape[:2] == (batch, heads)
        if not is_absorbable or not is_absorbed(rows.shape[2], tokens, rank, head_dim):
            return torch.matmul(left, self.whole())
        found = self._scores(rows) if self.turned else self._results(rows)
        return found.flatten(0, 1) if self.merged else found

    def _scores(self, queries: torch.Tensor) -> torch.Tensor:
        absorbed = torch.matmul(queries, self.weight)
        read = torch.bmm(absorbed.flatten(1, 2), self.latents.transpose(1, 2))
        found: torch.Tensor = read.unflatten(1, queries.shape[1:3])
        return found if self.bias is None else found + torch.matmul(queries, self.bias[..., None])

    def _results(self, shares: torch.Tensor) -> torch.Tensor:
        read = torch.bmm(shares.flatten(1, 2), self.latents).unflatten(1, shares.shape[1:3])
        found = torch.matmul(read, self.weight.transpose(1, 2))
        if self.bias is None:
            return found
        return found + shares.sum(-1, keepdim=True) * self.bias[:, None]

    def _with(self, **changed: Any) -> "Factored":
        names = ("latents", "weight", "bias", "merged", "turned")
        return Factored(**{name: changed.get(name, getattr(self, name)) for name in names})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole(), name)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What a function of torch gives for factors among its arguments."""
        kwargs = kwargs or {}
        known = _FUNCTIONS.get(function)
        found = NotImplemented if known is None else known(*args, **kwargs)
        if found is not NotImplemented:
            return found
        return function(*_wholes(args), **{name: _whole(v) for name, v in kwargs.items()})


def _on_the_whole(name: str) -> Any:
    def operator(self: Factored, *args: Any) -> Any:
        return getattr(self.whole(), name)(*_wholes(args))

    return operator


_OPERATORS = ("getitem", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "matmul", "neg")
for _name in _OPERATORS:
    setattr(Factored, f"__{_name}__", _on_the_whole(f"__{_name}__"))


def _fits(asked: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether sizes, of which one may be -1, are those of `shape`."""
    return len(asked) == len(shape) and all(
        a in (-1, size) for a, size in zip(asked, shape, strict=True)
    )


def _whole(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_wholes(value))
    return value.whole() if isinstance(value, Factored) else value


def _wholes(values: Any) -> list[Any]:
    return [_whole(value) for value in values]


def _product(left: Any, right: Any) -> Any:
    """matmul, bmm."""
    is_factored = isinstance(right, Factored) and isinstance(left, torch.Tensor)
    return right.times(left) if is_factored else NotImplemented


def _sum_with_product(
    other: torch.Tensor, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1
) -> Any:
    """baddbmm."""
    product = _product(batch1, batch2)
    if product is NotImplemented:
        return NotImplemented
    return product * alpha if beta == 0 else torch.add(product * alpha, other, alpha=beta)


def _attention(
    query: torch.Tensor,
    key: Any,
    value: Any,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention, with the latents as keys and values of one head, which all
    query heads read. What b_k adds to a row of scores softmax takes away again; the shares of a row
    add up to 1, but where all is masked, which nobody reads."""
    both = isinstance(key, Factored) and isinstance(value, Factored)
    if not both or dropout_p or is_causal or key.turned or key.latents is not value.latents:
        return NotImplemented
    heads, head_dim, rank = key.weight.shape
    batch, tokens, _ = key.latents.shape
    if query.dim() != 4 or query.shape[0] != batch or query.shape[1] % heads:
        return NotImplemented
    grouped = query.unflatten(1, (heads, -1)).flatten(2, 3)
    if not is_absorbed(grouped.shape[2], tokens, rank, head_dim):
        return NotImplemented
    absorbed = torch.matmul(grouped, key.weight).flatten(1, 2)[:, None]
    latents = key.latents[:, None]
    read = nn.functional.scaled_dot_product_attention(
        absorbed,
        latents,
        latents,
        attn_mask=_mask_of_rows(attn_mask, query),
        scale=query.shape[-1] ** -0.5 if scale is None else scale,
    )
    read = read.unflatten(2, (heads, -1))[:, 0]
    found = torch.matmul(read, value.weight.transpose(1, 2))
    found = found if value.bias is None else found + value.bias[:, None]
    return found.flatten(1, 2).unflatten(1, query.shape[1:3])


def _mask_of_rows(mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """[batch, heads, queries, tokens], or what extends to it, for heads and queries in one
    dimension."""
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.shape[1:3] == (1, 1):
        return mask
    return mask.expand(-1, *query.shape[1:3], -1).flatten(1, 2)[:, None]


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), _product),
    **dict.fromkeys((torch.bmm, torch.Tensor.bmm), _product),
    **dict.fromkeys((torch.baddbmm, torch.Tensor.baddbmm), _sum_with_product),
    nn.functional.scaled_dot_product_attention: _attention,
}
