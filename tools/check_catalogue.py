"""Hold every model of the catalogue against what transformers reads and builds of its config.

Models are built on the meta device, so that none costs memory. A checkpoint that is shown by the
config of another model is held as well where its own differences are known. Exit 1 if any total,
length, dtype or cache differs.

    python tools/check_catalogue.py                  # everything: minutes
    python tools/check_catalogue.py glm-5 kimi-k2.5  # these
    python tools/check_catalogue.py --recorded       # by the record in tests/truth: seconds
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
sys.path[:0] = [str(SUPPORT), str(SUPPORT / "truth")]

from against_record import differences  # noqa: E402
from headcount.audit import audit_model  # noqa: E402
from headcount.model.errors import HeadcountError  # noqa: E402
from headcount.sources.catalogue import find_row, unknown_model  # noqa: E402
from truth_record import Line, catalogue_models, key_of, recorded  # noqa: E402

HEADER = ("model", "parameters", "max_position_embeddings", "dtype", "against transformers")


def lines_of(models: Iterable[str], *, anew: bool) -> Iterator[Line]:
    """The record's line of each model, or one that is made now."""
    if not anew:
        known = {key_of(line): line for line in recorded("catalogue")}
        yield from (known[model] for model in models)
        return
    from recording import lines

    for model in models:
        yield from lines("catalogue", model)


def row_of(line: Line) -> tuple[tuple[str, ...], bool]:
    """What is printed of one model, and whether anything differs."""
    spec = audit_model(key_of(line)).spec
    total = "unknown" if spec.parameters is None else f"{spec.parameters:,}"
    found = [] if "reason" in line else differences("catalogue", line)
    verdict = "; ".join(found) or line.get("reason", "the same")
    shown = (total, str(spec.max_position_embeddings), str(spec.dtype))
    return (key_of(line), *shown, verdict), bool(found)


def chosen(names: list[str]) -> list[str]:
    """Ids as the record has them. Raises UnknownModelError."""
    known = []
    for name in names:
        row = find_row(name)
        if row is None:
            raise unknown_model(name)
        known.append(row.checkpoint(name) or row.id)
    return known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--recorded", action="store_true", help="build nothing")
    given = parser.parse_args()
    try:
        models = chosen(given.models) or catalogue_models()
    except HeadcountError as error:
        parser.error(str(error))
    print("\t".join(HEADER))
    wrong = 0
    for line in lines_of(models, anew=not given.recorded):
        cells, differs = row_of(line)
        print("\t".join(cells), flush=True)
        wrong += differs
    print(f"{len(models)} models, {wrong} with a difference", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
