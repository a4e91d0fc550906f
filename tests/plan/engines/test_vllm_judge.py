"""vLLM itself as the judge: what its own code makes of every config of the catalogue and of every
class that it has, held against plans. `tests/plan/engines/vllm.jsonl` has its answers, which
tools/record_vllm.py wrote; one slow test asks it anew.
"""

import json
from pathlib import Path

import pytest
from vllm_cases import (
    RECORD,
    SETTINGS,
    Answer,
    Recorded,
    differences,
    header,
    recorded,
)
from vllm_environment import VERSION, NoEnvironmentError, asked, interpreter

from headcount.sources.catalogue import catalogue

# Why a plan says other than vLLM: none does. One that has become equal fails.
DIFFERENT: dict[str, str] = {}
TYPES = {row.id: row.model_type for row in catalogue()}


def one_of_each_type() -> list[Recorded]:
    """The first model of each model_type that vLLM has, what was made up, and every exception."""
    first: dict[str, Recorded] = {}
    for case in recorded():
        kind = case.id if case.config is not None else TYPES[case.id]
        if case.id not in DIFFERENT and any(isinstance(n, Answer) for n in case.answers):
            first.setdefault(str(kind), case)
    return [*first.values(), *(case for case in recorded() if case.id in DIFFERENT)]


SAMPLE = one_of_each_type()


def assert_equal(case: Recorded) -> None:
    found = differences(case, header()["vllm"])
    assert bool(found) == (case.id in DIFFERENT), "\n".join(
        f"{SETTINGS[number]}: {text}" for number, text in found.items()
    )


def test_the_record_is_of_the_release_and_the_settings_that_are_asked() -> None:
    assert header()["vllm"] == VERSION
    assert header()["settings"] == list(SETTINGS)
    assert {row.id for row in catalogue()} <= {case.id for case in recorded()}


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: str(case.id))
def test_a_plan_has_the_blocks_tokens_and_requests_of_vllms_own_code(case: Recorded) -> None:
    assert_equal(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", recorded(), ids=lambda case: str(case.id))
def test_so_has_that_of_every_model(case: Recorded) -> None:
    assert_equal(case)


@pytest.mark.slow
def test_vllm_gives_today_what_is_recorded(tmp_path: Path) -> None:
    try:
        python = interpreter(tmp_path / "vllm")
    except NoEnvironmentError as error:
        pytest.skip(f"vLLM cannot be installed here: {error}")
    wanted = {case.id for case in SAMPLE}
    known = RECORD.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
    expected = [line for line in known if json.loads(line)["model"] in wanted]
    assert sorted(asked(python, wanted)) == sorted(expected)
