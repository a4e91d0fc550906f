"""vLLM itself as the judge: what its own code makes of every config of the catalogue and of every
class that it has, held against plans. `tests/truth/vllm.jsonl` has its answers; the slow test asks
it anew.
"""

from itertools import groupby

from vllm_cases import (
    SETTINGS,
    Recorded,
    differences,
    header,
    model_of,
    recorded,
)
from vllm_environment import VERSION

# id -> why its plan says other than vLLM. One that has become equal fails.
DIFFERENT: dict[str, str] = {}
# id -> (vLLM's default length, the plan's), and why they differ.
LENGTHS: dict[str, tuple[int, int]] = {}


def first_of_each_kind() -> list[Recorded]:
    """One model of each model_type, and every other one that is an exception."""
    known = sorted(recorded(), key=lambda n: (model_of(n).spec.model_type, n.id))
    first = [next(same) for _, same in groupby(known, lambda n: model_of(n).spec.model_type)]
    return first


def held(case: Recorded) -> None:
    found = differences(case, header()["vllm"])
    assert bool(found) == (case.id in DIFFERENT), "\n".join(
        f"{SETTINGS[number]}: {text}" for number, text in found.items()
    )


def test_the_record_is_of_a_release_that_is_asked_again() -> None:
    first = header()
    assert first["vllm"] == VERSION
    assert first["settings"] == list(SETTINGS)
