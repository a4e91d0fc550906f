"""Is a target already what a conversion would write?"""

from headcount.audit.errors import HeadcountError

from .plan.errors import TargetError
from .plan.existing import Existing, check_same_job
from .plan.job import job_of
from .plan.plan import ConversionPlan
from .plan.side_files import RECORD
from .plan.source import CONFIG
from .stream.hashing import sha256_of


def check_finished(plan: ConversionPlan, existing: Existing) -> None:
    """Raises TargetError unless `existing` is the whole output of this plan, byte for byte.

    The values of the source's tensors are not read: a source file that is younger than the output
    counts as changed.
    """
    check_same_job(existing, job_of(plan))
    _check_age(plan, existing)
    if existing.manifest.keys() != _names(plan):
        raise _other(existing, "its conversion.json was changed since it was written")
    for name, entry in existing.manifest.items():
        try:
            same = sha256_of(existing.folder / name) == entry["sha256"]
        except HeadcountError:
            same = False
        if not same:
            raise _other(existing, f"{name} is missing or was changed since it was written")
    for file in plan.side_files:
        if sha256_of(file.path) != existing.manifest[file.name]["sha256"]:
            raise _other(existing, f"the source's {file.name} is another one now")


def _names(plan: ConversionPlan) -> set[str]:
    index = set() if plan.index_name is None else {plan.index_name}
    weights = {file.name for file in plan.files}
    return {CONFIG, *index, *weights, *(file.name for file in plan.side_files)}


def _check_age(plan: ConversionPlan, existing: Existing) -> None:
    written = (existing.folder / RECORD).stat().st_mtime_ns
    for path, (_, modified, _) in plan.source.stats:
        if modified > written:
            raise _other(existing, f"the source's {path.name} was written later")


def _other(existing: Existing, what: str) -> TargetError:
    return TargetError(
        f"{existing.folder}: holds an earlier conversion, but {what}; name another folder, or"
        " replace it with --overwrite"
    )
