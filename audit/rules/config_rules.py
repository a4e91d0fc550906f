"""The rules that need a config alone: they run for every model, names of the catalogue included."""

from . import assumed, declared, heads, positions, sizes
from .config_facts import ConfigFacts
from .rule import Rule

RULES: tuple[Rule[ConfigFacts], ...] = (
    *heads.RULES,
    *positions.RULES,
    *sizes.RULES,
    *assumed.RULES,
    *declared.RULES,
)
