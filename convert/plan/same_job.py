"""Is a target the output of this plan's job, and if not, what is different?"""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.model.errors import short

from .document import plan_summary, request_document
from .errors import TargetError
from .existing import Existing
from .job import job_of
from .plan import ConversionPlan
from .request import CPU, FORMAT_CHOICES

# The options that fields of a request come from, where they are not called like these.
_OPTIONS = {
    "num_key_value_heads": "--kv-heads",
    "pruned_heads": "--prune-heads",
    "calibrated": "--calibration",
}
# What a record leaves out where nothing else was asked for.
_DEFAULTS = {"format": FORMAT_CHOICES[0], "calibration_device": CPU}
_READ = {"tokens": "tokens", "row_tokens": "tokens a row"}


def check_same_job(existing: Existing, plan: ConversionPlan) -> None:
    """Raises TargetError if the output was made from another source, by another version, or with
    other options."""
    if existing.job != job_of(plan):
        found = "; ".join(_differences(existing, plan)) or "what lies beside its weights differs"
        raise TargetError(
            f"{existing.folder}: holds another conversion ({found}): name another folder, or"
            " replace it with --overwrite"
        )


def _differences(existing: Existing, plan: ConversionPlan) -> Iterator[str]:
    """What was then, as far as the record tells it, and what is now."""
    before, now = existing.record, plan_summary(plan)
    version = ("tool", "version")
    yield from _changed("headcount", _at(before, *version), _at(now, *version))
    yield from _changed("source", _at(before, "source", "name"), plan.source.name)
    if _at(before, "source", "fingerprint") != plan.source.fingerprint:
        yield "the source's config, or what its weights say of themselves, is another"
    yield from _of_side_files(existing, plan)
    yield from _of_options(_at(before, "request"), request_document(plan.request))
    if _at(before, "budget") != _at(now, "budget"):
        yield "--budget is another"
    yield from _of_text(_at(before, "ladder", "calibration"), _at(now, "ladder", "calibration"))


def _of_side_files(existing: Existing, plan: ConversionPlan) -> Iterator[str]:
    copied = _at(existing.record, "side_files", "copied")
    before = {one for one in copied if isinstance(one, str)} if isinstance(copied, list) else set()
    now = {file.name: file.nbytes for file in plan.side_files}
    for name in sorted(before ^ now.keys()):
        yield f"the source's {short(name)} is {'new' if name in now else 'gone'}"
    for name in sorted(before & now.keys()):
        if _at(existing.manifest, name, "bytes") != now[name]:
            yield f"the source's {short(name)} is another"


def _of_options(before: object, now: Mapping[str, object]) -> Iterator[str]:
    for name, value in {**_DEFAULTS, **now}.items():
        option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
        known = isinstance(before, Mapping) and name in before
        yield from _changed(option, _at(before, name) if known else _DEFAULTS.get(name), value)


def _of_text(before: object, now: object) -> Iterator[str]:
    """Of two calibrations: that one of them has none, the options tell."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return
    if before.get("sha256") != now["sha256"]:
        yield "the text of --calibration is another"
    for key, what in _READ.items():
        yield from _changed(f"{what} of --calibration", before.get(key), now[key])


def _changed(what: str, before: object, now: object) -> Iterator[str]:
    if before != now:
        yield f"{what}: {_shown(before)} then, {_shown(now)} now"


def _shown(value: object) -> str:
    """Plain names as they are; of anything else no more than fits: the record is a stranger's."""
    if isinstance(value, str) and value.isprintable() and value.isascii() and len(value) <= 40:
        return value
    return "none" if value is None else short(value)


def _at(document: object, *keys: str) -> Any:
    """What stands below `keys`; None where it does not."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
