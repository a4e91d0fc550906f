"""What an engine calls the types of its cache, by version: --kv-dtype names one of them, or a dtype
that one of them is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headcount.model.dtypes import resolve_dtype
from headcount.model.errors import HeadcountError, short

from .version import Version, text_of

AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheNames:
    """`since` maps each name that `engine` takes for its option to the release that was the first
    to have it, of those that were read; `until` to the first that has it no more. `auto`, the
    dtype that is computed in, is a name of every release, and the only one where `since` is
    empty."""

    engine: str
    option: str
    since: Mapping[str, tuple[int, ...]]
    until: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def own(self, name: str | None, version: Version, compute_dtype: str) -> str:
        """The engine's own name of what a user calls `name`, whose dtype may have several names;
        `auto` for none and for the dtype that is computed in, where that has no name.

        Raises HeadcountError for what `version` has no name for."""
        if name is None or name == AUTO:
            return AUTO
        known = self._known(version)
        if name.lower() in known:
            return name.lower()
        dtype = _dtype(name)
        same = (each for each in known if dtype is not None and _dtype(each) == dtype)
        found = next(same, AUTO if dtype == compute_dtype else None)
        if found is None:
            raise HeadcountError(self._unknown(name, version, known, compute_dtype))
        return found

    def _known(self, version: Version) -> tuple[str, ...]:
        return tuple(
            name
            for name, since in self.since.items()
            if version.at_least(*since)
            and not (name in self.until and version.at_least(*self.until[name]))
        )

    def _unknown(
        self, name: str, version: Version, known: Iterable[str], compute_dtype: str
    ) -> str:
        if not self.since:
            return (
                f"{self.engine} keeps its cache in the dtype that it computes in, {compute_dtype},"
                f" and not in {short(name)}: leave out --kv-dtype, or give another --dtype"
            )
        release = f" {version.text}" if version.text else ""
        listed = ", ".join((AUTO, *known))
        later = self.since.get(name.lower())
        since = "" if later is None or version.at_least(*later) else f" {text_of(later)} has it;"
        return (
            f"{self.engine}{release} has no cache of {short(name)} where it computes in"
            f" {compute_dtype};{since} {self.option} takes {listed}"
        )


def _dtype(name: str) -> str | None:
    try:
        return resolve_dtype(name)
    except HeadcountError:
        return None
