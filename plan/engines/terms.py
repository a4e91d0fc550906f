"""One addend of an engine's memory budget: what it is, how it came about, how sure it is."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetTerm:
    """`bytes` of one rank, `error_bytes` more or less. `formula` has its numbers in it; `source`
    says where the constant of an estimate comes from."""

    key: str
    title: str
    bytes: int
    formula: str
    source: str = ""
    error_bytes: int = 0

    def document(self) -> dict[str, object]:
        return {
            "key": self.key,
            "bytes": self.bytes,
            "error_bytes": self.error_bytes,
            "formula": self.formula,
            "source": self.source,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What an engine may take, less what it takes for other things than the cache."""

    allowed: BudgetTerm
    taken: tuple[BudgetTerm, ...]

    @property
    def available_bytes(self) -> int:
        """What is left for the cache; negative where nothing is."""
        return self.allowed.bytes - sum(term.bytes for term in self.taken)

    @property
    def error_bytes(self) -> int:
        """How far off `available_bytes` may be if all estimates err the same way."""
        return self.allowed.error_bytes + sum(term.error_bytes for term in self.taken)
