"""H218: the head of a draft (EAGLE, EAGLE-3, DFlash), which works with the parts of its model."""

import re
from collections.abc import Iterator
from dataclasses import replace

from headcount.sources.checkpoint import Checkpoint
from headcount.sources.safetensors import TensorInfo

from . import elements, files, geometry
from .rule import Rule, Sighting, rule
from .weight_facts import WeightFacts

_JOIN = re.compile(r"(?:model\.)?fc\.weight")
# The one layer of EAGLE-3, which its own code calls so.
_MIDDLE = re.compile(r"(?P<front>(?:model\.)?)midlayer\.")


def joining_matrix(checkpoint: Checkpoint, hidden: int) -> TensorInfo | None:
    """What makes one hidden state of several of its model, [hidden, n x hidden]; None where no
    draft's head lies here."""
    for name, tensor in checkpoint.tensors.items():
        if _JOIN.fullmatch(name) and len(tensor.shape) == 2:
            out, inputs = tensor.shape
            if out == hidden and inputs >= 2 * hidden and inputs % hidden == 0:
                return tensor
    return None


def with_numbered_layer(checkpoint: Checkpoint) -> Checkpoint:
    """The same headers with the layer of EAGLE-3 under the name that engines load it by."""
    renamed = {
        _MIDDLE.sub(r"\g<front>layers.0.", name): t for name, t in checkpoint.tensors.items()
    }
    tensors = {name: replace(tensor, name=name) for name, tensor in renamed.items()}
    return replace(checkpoint, tensors=tensors)


@rule(
    "H218",
    "head-of-a-draft",
    "note",
    "what is not stored here is that model's; `plan --speculative-config` weighs both",
)
def of_a_draft(facts: WeightFacts) -> Iterator[Sighting]:
    """The weights are a head that drafts for another model, and no model of their own."""
    found = joining_matrix(facts.checkpoint, facts.spec.hidden_size)
    if found is not None:
        states = found.shape[1] // found.shape[0]
        yield Sighting(found.name, f"joins {states} hidden states of the model that it drafts for")


_ASKS_FOR_A_MODEL = frozenset({"H107"})
OWN = (of_a_draft,)
# Those that ask for nothing that a head leaves to its model.
RULES: tuple[Rule[WeightFacts], ...] = (
    *OWN,
    geometry.kv_heads,
    *(one for one in (*files.RULES, *elements.RULES) if one.code not in _ASKS_FOR_A_MODEL),
)
