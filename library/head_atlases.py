"""`headcount.heads`: what each attention head of a model does, or is worth."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headcount.heads.heads_request import HeadsRequest, Thresholds, parse_thresholds
from headcount.heads.importance.importance_request import ImportanceRequest
from headcount.model.errors import HeadcountError
from headcount.running.extra import need_extra

from .result import Result, public
from .values import Name, Size, integer, model_name
from .values import tokens as token_count

if TYPE_CHECKING:
    from headcount.report.report import Report

Place = tuple[int, int]  # a layer and a head of it
_DEFAULTS = HeadsRequest(model="")


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadsResult(Result):
    """What heads do: `roles` are the layer and number of every head with a role, by the role. Of a
    comparison, or of what heads are worth, they are empty: `to_dict()` has what was found."""

    id: str
    model_type: str
    roles: Mapping[str, tuple[Place, ...]] = field(repr=False)
    warnings: tuple[str, ...] = field(repr=False)


@public
def heads(
    model: Name,
    *,
    against: Name | None = None,
    tokens: Size | None = None,
    sequences: int = _DEFAULTS.sequences,
    batch_size: int = _DEFAULTS.batch_size,
    seed: int = 0,
    thresholds: Mapping[str, float] | str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    importance: bool = False,
    exact: bool = False,
    text: Name | None = None,
    max_tokens: Size | None = None,
    progress: bool = False,
) -> HeadsResult:
    """Says what each head of `model` (a folder, or a model of the Hub) does on random tokens that
    are repeated, or which roles its heads kept of those of `against`, the model that it was made
    from. Needs the extra `convert`.

    With `importance` it says what each head is worth to the loss on `text` instead (a UTF-8 file;
    None: a sample), of which `max_tokens` are read; with `exact` also by a pass a head.
    `thresholds` are {"induction": 0.3}: the excess over uniform attention that makes a role.
    Raises HeadcountError.
    """
    need_extra("headcount.heads")
    name = model_name(model)
    if importance:
        _refuse("importance", against=against, tokens=tokens, dtype=dtype, thresholds=thresholds)
        asked = {"max_tokens": _count("max_tokens", max_tokens)}
        asked |= {"text": None if text is None else model_name(text)}
        given = {key: value for key, value in asked.items() if value is not None}
        return _result(
            *importance_report_of(
                ImportanceRequest(model=name, seed=seed, exact=exact, device=device, **given),
                progress=progress,
            )
        )
    _refuse("importance=False", exact=exact or None, text=text, max_tokens=max_tokens)
    request = HeadsRequest(
        model=name,
        tokens=_count("tokens", tokens),
        sequences=integer("sequences", sequences),
        batch_size=integer("batch_size", batch_size),
        seed=seed,
        dtype=dtype,
        device=device,
        thresholds=_thresholds(thresholds),
    )
    original = None if against is None else model_name(against)
    return _result(*heads_report(request, original, progress=progress))


def _count(name: str, value: Any) -> Any:
    return None if value is None else token_count(name, value)


def _refuse(beside: str, **others: object) -> None:
    """Raises HeadcountError for arguments that have no say in what is asked for."""
    useless = next((name for name, value in others.items() if value is not None), None)
    if useless is not None:
        raise HeadcountError(f"{useless} does not go with {beside}: leave one of them out")


def _thresholds(given: Mapping[str, float] | str | None) -> Thresholds:
    if isinstance(given, Mapping):
        given = ",".join(f"{name}={value}" for name, value in given.items())
    return parse_thresholds(given)


def _result(report: "Report", warnings: tuple[str, ...]) -> HeadsResult:
    document: Mapping[str, Any] = report.document
    is_atlas = "against" not in document and "roles" in document
    roles = document["roles"] if is_atlas else {}
    return HeadsResult(
        report=report,
        id=document["model"]["id"],
        model_type=document["model"]["model_type"],
        roles=MappingProxyType(
            {role: tuple((layer, head) for layer, head in at) for role, at in roles.items()}
        ),
        warnings=warnings,
    )


def importance_report_of(
    request: ImportanceRequest, *, progress: bool
) -> "tuple[Report, tuple[str, ...]]":
    """The report of what heads are worth, and no warnings. Raises HeadcountError."""
    from headcount.convert.source_folder import source_folder
    from headcount.heads.importance.importance import measure_importance
    from headcount.heads.importance.importance_report import importance_report

    name = request.model
    with source_folder(name, Path(name), whole=True, allow_pickle=False) as found:
        measured = measure_importance(request, found.path, found.name or name, progress=progress)
    return importance_report(measured), ()


def heads_report(
    request: HeadsRequest, against: str | None, *, progress: bool
) -> "tuple[Report, tuple[str, ...]]":
    """The report of an atlas, or of how two differ, and warnings. Raises HeadcountError."""
    from headcount.heads.atlas_report import atlas_report
    from headcount.heads.atlas_run import make_atlas

    if against is not None:
        return _comparison(request, against, progress=progress)
    with _folder_of(request.model) as (folder, name):
        atlas = make_atlas(request, folder, name, progress=progress)
    return atlas_report(atlas), atlas.warnings


def _comparison(
    request: HeadsRequest, against: str, *, progress: bool
) -> "tuple[Report, tuple[str, ...]]":
    from headcount.heads.comparison.comparison_report import comparison_report
    from headcount.heads.comparison.comparison_run import NamedFolder, compare_heads

    with _folder_of(request.model) as model, _folder_of(against) as original:
        folders = NamedFolder(*model), NamedFolder(*original)
        found = compare_heads(request, *folders, progress=progress)
    return comparison_report(found), tuple(found.warnings)


@contextmanager
def _folder_of(model: str) -> Iterator[tuple[Path, str]]:
    """The folder that `model` names, and how reports name it. Raises HeadcountError."""
    from headcount.convert.hub_source import hub_source
    from headcount.sources.path import check_name
    from headcount.sources.target import is_hub_id

    check_name(model)
    if not is_hub_id(model):
        yield Path(model), model
        return
    with hub_source(model, whole=True) as found:
        yield found
