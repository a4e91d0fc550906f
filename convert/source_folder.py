"""What the user's SOURCE means: a folder, or a model of the Hub."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headcount.model.errors import HeadcountError
from headcount.sources.adapter import find_adapter
from headcount.sources.checkpoint import ADAPTER_CONFIG, Checkpoint, find_weights, inside
from headcount.sources.path import check_name
from headcount.sources.pickles.pickle_checkpoint import find_pickles, read_pickles
from headcount.sources.target import is_hub_id

from .plan.refusals.source import refuse_adapter


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFolder:
    """Where a model lies as safetensors, and how reports and records name it. `made`: its files are
    made for this run, as old as what they are made from."""

    path: Path
    name: str | None
    made: bool = False


@contextmanager
def source_folder(
    source: str,
    target: Path,
    *,
    whole: bool,
    allow_pickle: bool,
    merge_adapter: bool = False,
    judge: Callable[[SourceFolder], object] | None = None,
) -> Iterator[SourceFolder]:
    """The folder that `source` names, for as long as the context lasts.

    `whole`: with its weights, not only for a plan. `allow_pickle`: .bin files, of a folder that has
    nothing else, are turned into safetensors beside `target`. `merge_adapter`: the adapter beside
    the model is merged into its weights, in a copy beside `target`. `judge` is given the headers of
    a model of the Hub, and may refuse it, before its weights are downloaded. Raises HeadcountError.
    """
    check_name(source)
    if is_hub_id(source):
        from .hub_source import hub_source

        if merge_adapter:
            raise HeadcountError(
                f"{source}: --merge-adapter takes a folder: download model and adapter to one"
            )
        judged = None if judge is None else _of_folder(judge)
        with hub_source(source, whole=whole, judge=judged) as (snapshot, name):
            yield SourceFolder(path=snapshot, name=name)
        return
    path = Path(source)
    adapter = find_adapter(path)
    if merge_adapter and adapter is not None:
        from .adapter.merged_source import merged_source

        with merged_source(adapter, target) as copy:
            yield SourceFolder(path=copy, name=path.resolve().name, made=True)
        return
    if merge_adapter:
        raise HeadcountError(f"{path}: no {ADAPTER_CONFIG} there: leave out --merge-adapter")
    refuse_adapter(adapter)
    checkpoint = read_pickles_of(path) if allow_pickle else None
    if checkpoint is None:
        yield SourceFolder(path=path, name=None)
        return
    from .unpickle import unpickled

    with unpickled(path, checkpoint, target) as copy:
        yield SourceFolder(path=copy, name=path.resolve().name, made=True)


def _of_folder(judge: Callable[[SourceFolder], object]) -> Callable[[Path, str], object]:
    return lambda path, name: judge(SourceFolder(path=path, name=name))


def read_pickles_of(folder: Path) -> Checkpoint | None:
    """What a folder's .bin files hold, if it has no safetensors; nothing is loaded.

    Raises HeadcountError, for a folder that may not be listed, too."""
    try:
        if not folder.is_dir() or find_weights(folder) is not None:
            return None
        path = find_pickles(folder)
    except OSError as error:
        raise HeadcountError(f"{folder}: cannot be read: {error.strerror}") from error
    return None if path is None else read_pickles(inside(folder, path.name))
