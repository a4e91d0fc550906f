"""`headcount.verify`: whether a converted folder is still what was made of its source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.model.errors import HeadcountError
from headcount.running.extra import need_extra

from .result import Result, bars, public
from .values import Name, flag, integer, model_name, path

if TYPE_CHECKING:
    from headcount.report.report import Report


@dataclass(frozen=True, kw_only=True)
class VerifiedDifference:
    """`where` is a file or a tensor, `what` how it is not as it should be."""

    where: str
    what: str


@dataclass(frozen=True, kw_only=True, eq=False)
class VerificationResult(Result):
    """What was looked at, by its kind, and what differs. `holds`: nothing does."""

    holds: bool
    checked: Mapping[str, int] = field(repr=False)
    differences: tuple[VerifiedDifference, ...] = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)


@public
def verify(
    target: Name,
    source: Name | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    merge_adapter: bool = False,
) -> VerificationResult:
    """Holds the converted folder `target` against its record and, if given, against `source`, the
    folder or model of the Hub that it was made from. Needs the extra `convert`.

    Of tensors only `sample` are read, drawn by `seed`; None: all. Differences are in the result.
    Raises HeadcountError for what cannot be read.
    """
    need_extra("headcount.verify")
    with bars(shown=False):
        report = verification_of(
            path("target", target),
            None if source is None else model_name(source),
            sample=None if sample is None else integer("sample", sample),
            seed=partial(integer, least=-(2**63))("seed", seed),
            allow_pickle=flag("allow_pickle", allow_pickle),
            merge_adapter=flag("merge_adapter", merge_adapter),
        )
    found: Any = report.document["verify"]
    return VerificationResult(
        report=report,
        holds=not found["differences"],
        checked=dict(found["checked"]),
        differences=tuple(VerifiedDifference(**one) for one in found["differences"]),
        notes=tuple(found["notes"]),
    )


def verification_of(
    folder: Path,
    source: str | None,
    *,
    sample: int | None,
    seed: int,
    allow_pickle: bool,
    merge_adapter: bool,
) -> "Report":
    """The report on the output in `folder`. Raises HeadcountError for what cannot be read."""
    from headcount.convert.source_folder import source_folder
    from headcount.convert.verification.recorded import read_recorded
    from headcount.convert.verification.verification import verify as verified_against
    from headcount.convert.verification.verification_report import verification_report

    recorded = read_recorded(folder)
    if source is None:
        found = verified_against(recorded, None, sample=sample, seed=seed)
        return verification_report(folder, found)
    if folder.resolve() == Path(source).resolve():
        raise HeadcountError(
            f"{folder}: is OUT and SOURCE at once: name the folder that it was made from, or leave"
            " SOURCE out"
        )
    beside = folder.with_name(f"{folder.name}.verified")  # of pickles, a copy lies there
    with source_folder(
        source, beside, whole=True, allow_pickle=allow_pickle, merge_adapter=merge_adapter
    ) as made_of:
        found = verified_against(recorded, made_of.path, sample=sample, seed=seed)
    return verification_report(folder, found)
