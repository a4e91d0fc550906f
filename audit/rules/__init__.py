"""Rules: what is wrong with a checkpoint. Each is a function from typed facts to findings."""

from .facts import Facts
from .registry import RULES, Rule, check

__all__ = ["RULES", "Facts", "Rule", "check"]
