"""llama.cpp's recorded buffers beside those that the plan gives: how far each is off."""

from collections.abc import Iterable, Iterator
from functools import cache

from headcount.plan.planned_model import PlannedModel
from llama_record import Json, recorded
from planned_buffers import model_of, planned

HEAD, MODELS = recorded()
LARGE = [line for line in MODELS if line.get("large")]
SMALL = [line for line in MODELS if not line.get("large")]
EVERY = 99  # layers (-ngl)
Pair = tuple[float, float]


@cache
def _model(name: str) -> PlannedModel:
    return model_of(next(line for line in MODELS if line["name"] == name))


@cache
def planned_of(name: str, run: str) -> dict[str, float]:
    """MiB by kind and place."""
    return planned(_model(name), HEAD["runs"][run])


def answers(lines: list[Json]) -> list[tuple[str, str, dict[str, float]]]:
    """Model, start and buffers, of the starts that llama.cpp did not refuse."""
    return [
        (line["name"], run, found)
        for line in lines
        for run, found in line["answers"].items()
        if isinstance(found, dict)
    ]


def compute_errors(lines: list[Json], place: str, *, whole: bool = True) -> list[Pair]:
    """Of each start how far the plan is off, and its own bar, as shares of the buffer: of those
    with `whole` models on the device, or with a part of them."""
    return [
        (
            abs(planned_of(name, run)[f"compute {place}"] / found[f"compute {place}"] - 1),
            planned_of(name, run)[f"bar of compute {place}"] / found[f"compute {place}"],
        )
        for name, run, found in answers(lines)
        if found.get(f"compute {place}") and is_whole(HEAD["runs"][run]) == whole
    ]


def is_whole(run: Json) -> bool:
    return run.get("layers") == EVERY and not run.get("cpu_moe")


def share(held: Iterable[bool]) -> float:
    found = list(held)
    return sum(found) / len(found)


def compute_rows() -> Iterator[str]:
    """The table of compute buffers in docs/engines.md, a line each."""
    kinds = {
        "real sizes": compute_errors(LARGE, "device"),
        "real sizes, a part of them": compute_errors(LARGE, "device", whole=False),
        "tiny models": compute_errors(SMALL, "device"),
        "tiny models, a part of them": compute_errors(SMALL, "device", whole=False),
        "the host's, real sizes": compute_errors(LARGE, "host"),
        "the host's, real sizes, a part of them": compute_errors(LARGE, "host", whole=False),
    }
    for kind, pairs in kinds.items():
        within = (f"{share(error <= most for error, _ in pairs):.0%}" for most in (0.01, 0.1))
        inside = share(error <= bar for error, bar in pairs)
        worst = max(error for error, _ in pairs)
        yield (
            f"{kind}: {len(pairs)} starts, within 1 % and 10 %: {', '.join(within)};"
            f" inside the bar {inside:.1%}; worst {worst:.0%}"
        )
