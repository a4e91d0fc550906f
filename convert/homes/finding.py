"""Which class can hold the result: the source's own where it can have fewer K/V heads, or another
that computes the same function, or a modelling file of our own."""

from collections.abc import Callable, Mapping

from ..plan.errors import CannotConvertError, HeadCountError, NoSuchHomeError
from ..plan.pruning import KeptHeads, check_pruned, kept_heads, settled_counts
from ..plan.refusals.types import STATES, refuse
from ..plan.request import HeadsOfLayers, HomeChoice, KeyValueHeads
from ..plan.source import ConversionSource
from .custom import custom
from .home import Home
from .native import native
from .rehome import rehome

# In the order of `auto`: engines load a class that they know, and few load code that comes along.
HOMES: Mapping[str, Callable[[ConversionSource, KeyValueHeads, KeptHeads], Home]] = {
    "native": native,
    "rehome": rehome,
    "custom": custom,
}


def find_home(
    source: ConversionSource,
    wanted: KeyValueHeads | None,
    choice: HomeChoice = "auto",
    pruned: HeadsOfLayers | None = None,
) -> Home:
    """The home of the result and the heads before and after: of kind `choice`, or the first that
    holds it. The query heads `pruned` go; `wanted` None: K/V heads as they are then. Raises
    CannotConvertError, and HeadCountError for a `wanted` that the heads cannot be pooled to, or for
    heads that cannot go."""
    refuse(source, STATES)
    if pruned:
        check_pruned(source)
    kept = kept_heads(source, pruned or {})
    counts = settled_counts(source, wanted, kept)
    errors: list[CannotConvertError | HeadCountError] = []
    for find in HOMES.values() if choice == "auto" else (HOMES[choice],):
        try:
            return find(source, counts, kept)
        except (CannotConvertError, HeadCountError) as error:
            errors.append(error)
    raise min(reversed(errors), key=_telling)


def _telling(error: Exception) -> int:
    """Errors about a number come first: that can be changed. Of several, the last home's: it holds
    more numbers than those before it."""
    if isinstance(error, HeadCountError):
        return 0
    return 2 if isinstance(error, NoSuchHomeError) else 1
