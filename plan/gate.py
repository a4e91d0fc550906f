"""`--require`: what a plan must hold for the exit status to be 0."""

import re
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headcount.model.errors import HeadcountError, short
from headcount.model.units import parse_tokens

from .plan import Plan, Verdict

_FORM = re.compile(r"(context|concurrency|kv_tokens)\s*(>=?)\s*([^\s>=].*)")
_MEANT = "fits, context>=32k, concurrency>=8 or kv_tokens>=1m is meant"


class Requirement(NamedTuple):
    """`least` is None for `fits`; `is_more`: more than that is required."""

    text: str
    figure: str
    least: float | None = None
    is_more: bool = False

    def is_met(self, found: float | bool) -> bool:
        if self.least is None:
            return bool(found)
        return found > self.least if self.is_more else found >= self.least


_ALMOST = 1 - 1e-9  # the share of what does not hold, however near it is


class Held(NamedTuple):
    """Whether a plan holds a requirement, what it has, and what it has at the least if all
    estimates err: by that it is judged."""

    requirement: Requirement
    found: float | bool
    low: float | bool
    holds: bool
    verdict: Verdict | None

    @property
    def share(self) -> float:
        """How much of what is required is there, 1 where it holds."""
        if self.holds or not self.requirement.least:
            return float(self.holds)
        return min(self.low / self.requirement.least, _ALMOST)

    @property
    def text(self) -> str:
        """What was found, and the least of it where that is another."""
        if self.requirement.figure == "fits":
            return str(self.verdict)
        low = f", {self.low:,.6g} if the estimates err" if self.low != self.found else ""
        return f"{self.found:,.6g}{low}"

    def document(self) -> dict[str, object]:
        return {
            "require": self.requirement.text,
            "found": _finite(self.found),
            "low": _finite(self.low),
            "holds": self.holds,
        }


def _finite(value: float) -> float | None:
    """None for no limit, which JSON has no number for."""
    return None if value == inf else value


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """`fits`, `context>=32k`, `concurrency > 8`, several with commas. Raises HeadcountError."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> Requirement:
    if text == "fits":
        return Requirement(text=text, figure="fits")
    match = _FORM.fullmatch(text)
    if match is None:
        raise HeadcountError(f"--require {short(text)}: {_MEANT}{_unquoted(text)}")
    figure, sign, value = match.groups()
    least = _number(value) if figure == "concurrency" else float(parse_tokens(value))
    return Requirement(text=text, figure=figure, least=least, is_more=sign == ">")


def _unquoted(text: str) -> str:
    """What a shell did to a requirement without quotes: all behind `>` names a file to it."""
    if text not in _FIGURES:
        return ""
    asked = f"{text}>={'8' if text == 'concurrency' else '32k'}"
    return (
        f"\nquote it, --require '{asked}': without quotes a shell takes > for a file to write,"
        " which it then has made"
    )


def _number(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip(), re.ASCII):
        raise HeadcountError(f"--require concurrency>={short(text)}: a number is meant")
    return float(text)


_FIGURES: dict[str, Callable[[Plan], float | bool]] = {
    "fits": lambda plan: bool(plan.fits),
    "context": lambda plan: _most(plan),
    "concurrency": lambda plan: _at_once(plan),
    "kv_tokens": lambda plan: inf if plan.is_kept_by_host else plan.kv_tokens,
}


def _at_once(plan: Plan) -> float:
    if not plan.is_kept_by_host:
        return round(plan.at_once, 4)
    return inf if plan.most_at_once is None else plan.most_at_once


def _most(plan: Plan) -> float:
    most = plan.limits.max_context
    return inf if most is None else most


def check(plan: Plan, requirements: tuple[Requirement, ...]) -> tuple[Held, ...]:
    """Each requirement held against `plan`, which has a device, or K/V memory; none holds where
    the engine would not start, or nothing is left for a cache."""
    return tuple(_check(plan, requirement) for requirement in requirements)


def may_hold(plan: Plan, requirements: tuple[Requirement, ...]) -> bool:
    """Whether each requirement holds if the estimates err in the plan's favour."""
    return all(one.is_met(_FIGURES[one.figure](plan.high)) for one in requirements)


def _check(plan: Plan, requirement: Requirement) -> Held:
    figure = _FIGURES[requirement.figure]
    found, low = figure(plan), figure(plan.low)
    holds = requirement.is_met(low) and plan.low.loads and not plan.refusals
    return Held(requirement, found=found, low=low, holds=holds, verdict=plan.verdict)
