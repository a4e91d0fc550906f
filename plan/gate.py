"""`--require`: what a plan must hold for the exit status to be 0."""

import re
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headcount.model.errors import HeadcountError, short
from headcount.model.units import parse_tokens

from .plan import Plan

_FORM = re.compile(r"\s*(context|concurrency|kv_tokens)\s*>=\s*(\S.*)")


class Requirement(NamedTuple):
    """`least` is None for `fits`."""

    text: str
    figure: str
    least: float | None = None


class Held(NamedTuple):
    """Whether a plan holds a requirement, and what it has."""

    requirement: Requirement
    found: float | bool
    holds: bool

    def document(self) -> dict[str, object]:
        return {
            "require": self.requirement.text,
            "found": self.found,
            "holds": self.holds,
        }


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """`fits`, `context>=32k`, `concurrency>=8`, several with commas. Raises HeadcountError."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> Requirement:
    if text == "fits":
        return Requirement(text=text, figure="fits")
    match = _FORM.fullmatch(text)
    if match is None:
        raise HeadcountError(
            f"--require {short(text)}: fits, context>=32k, concurrency>=8 or kv_tokens>=1m is meant"
        )
    figure, value = match.groups()
    least = _number(value) if figure == "concurrency" else float(parse_tokens(value))
    return Requirement(text=text, figure=figure, least=least)


def _number(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip(), re.ASCII):
        raise HeadcountError(f"--require concurrency>={short(text)}: a number is meant")
    return float(text)


_FIGURES: dict[str, Callable[[Plan], float | bool]] = {
    "fits": lambda plan: bool(plan.fits),
    "context": lambda plan: _most(plan),
    "concurrency": lambda plan: round(plan.concurrency, 4),
    "kv_tokens": lambda plan: plan.kv_tokens,
}


def _most(plan: Plan) -> float:
    most = plan.limits.max_context
    return inf if most is None else most


def check(plan: Plan, requirements: tuple[Requirement, ...]) -> tuple[Held, ...]:
    """Each requirement held against `plan`, which has a device, or K/V memory; none holds where
    nothing is left for a cache."""
    return tuple(_check(plan, requirement) for requirement in requirements)


def _check(plan: Plan, requirement: Requirement) -> Held:
    found = _FIGURES[requirement.figure](plan)
    holds = bool(found) if requirement.least is None else found >= requirement.least
    return Held(requirement=requirement, found=found, holds=holds)
