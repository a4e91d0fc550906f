"""Mixers that fold the past into a state of fixed size: SSMs, linear attention, convolutions."""

from dataclasses import dataclass
from typing import ClassVar

from .state import Keeper, Parts, State, Stateful


@dataclass(frozen=True, kw_only=True, slots=True)
class Recurrent(Stateful):
    """A mixer without keys and values. `form` says which: `Mamba-2`, `gated delta net`…

    Heads are those of its state, None where it has none. The parameters differ from form to form,
    so a row counts them: matrices and biases in `weights`, of which `biases`, and `norms`.
    """

    kind: ClassVar[str] = "recurrent"
    heads: ClassVar[str | None] = None
    num_key_value_heads: ClassVar[int | None] = None
    group_size: ClassVar[int | None] = None
    window: ClassVar[int | None] = None

    form: str
    hidden_size: int
    weights: int
    norms: int = 0
    biases: int = 0
    num_attention_heads: int | None = None
    head_dim: int | None = None
    v_head_dim: int | None = None
    states: tuple[State, ...] = ()

    def parameters(self) -> Parts:
        return Parts(other=self.weights, norm=self.norms)

    def bias_parameters(self) -> int:
        return self.biases

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        return 0

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        return 0

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 0
