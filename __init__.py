"""headcount: counts attention heads and what they cost."""

__version__ = "0.1.0"
