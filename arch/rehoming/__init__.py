"""Pairs of classes of transformers that compute one function, of which the second holds fewer K/V
heads. `Architecture.rehomes` names those of a type."""

from importlib import import_module

from .rehome import Rehome


def rehome_of(name: str) -> Rehome:
    """The pair `name`, such as `phi.GPTJ_TO_PHI`: a value of that module."""
    module, _, value = name.partition(".")
    found = getattr(import_module(f".{module}", __name__), value)
    assert isinstance(found, Rehome)
    return found
