"""What a search over layers has found, and what it went by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Criterion = Literal["text", "weights"]
Kind = Literal["num_key_value_heads", "latent_rank"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TogetherCost:
    """What all layers together add on text that nothing was fitted to, in nats a token: to the
    loss, and as KL(source || result)."""

    delta_loss: float
    kl_divergence: float

    def document(self) -> dict[str, float]:
        """JSON-ready."""
        return {"delta_loss": self.delta_loss, "kl_divergence": self.kl_divergence}


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSearch:
    """`sizes` by layer, K/V heads or ranks as `kind` says, which keep `reached` bytes a token of
    the `asked`; `equal` are those of layers that keep equal shares. `costs` is what each layer
    alone was found to cost at each size: by `criterion` text nats a token, KL(source || result),
    on `tokens` tokens of the text with that digest; by weights the sum of the shares that are lost
    of its scores' and its output's energy. `together` and `equal_together` are None without text.
    Four digits: sums differ between processors."""

    kind: Kind
    criterion: Criterion
    asked: int
    source: int
    reached: int
    sizes: Mapping[int, int]
    equal: Mapping[int, int]
    costs: Mapping[int, Mapping[int, float]]
    sha256: str | None = None
    tokens: int = 0
    forward_passes: int = 0
    together: TogetherCost | None = None
    equal_together: TogetherCost | None = None

    @property
    def keeps_equal(self) -> bool:
        """Whether layers that keep equal shares were found to be the best."""
        return self.sizes == self.equal

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        both = {"by_layer": self.together, "equal": self.equal_together}
        return {
            "of": self.kind,
            "criterion": self.criterion,
            "cache_bytes_per_token": {
                "asked": self.asked,
                "source": self.source,
                "reached": self.reached,
            },
            "sha256": self.sha256,
            "tokens": self.tokens,
            "forward_passes": self.forward_passes,
            "measured": {n: None if one is None else one.document() for n, one in both.items()},
            "layers": [
                {
                    "index": index,
                    "size": size,
                    "equal": self.equal[index],
                    "costs": {str(s): cost for s, cost in self.costs[index].items()},
                }
                for index, size in self.sizes.items()
            ],
        }


def rounded(value: float) -> float:
    """To four digits."""
    return float(f"{value:.4g}")
