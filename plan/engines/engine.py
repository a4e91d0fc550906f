"""What a plan asks of an engine: one value, which the engine's file makes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from headcount.model.errors import HeadcountError

from ..budget import Budget, Term
from ..devices import Device
from ..planned_model import PlannedModel
from ..request import CacheType, PlanRequest, Workload, flag
from ..served import with_stored_head
from ..weights import Weights
from .launch import Launch
from .pool import CachePool
from .refusals.platforms import Platforms, not_run_on
from .registry import ENGINES
from .version import Releases, Version

NO_RELEASES = Releases()
# What holds the latents of a conversion: a modelling file of ours, or a class with latent attention
LatentHome = Literal["latent", "mla"]


def _nothing(model: PlannedModel, device: Device | None, work: Workload) -> Iterator[str]:
    return iter(())


def _everywhere(version: Version) -> Platforms | None:
    return None


def _unlimited(model: PlannedModel, device: Device | None, work: Workload) -> int | None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """`budget` is that of one rank of each pipeline stage, `pool` its K/V memory. `launch` gives
    the command that starts it as planned, from the model, the workload and the tokens of cache;
    None: nothing is started, and a plan needs no device.

    `cache_type` reads --kv-dtype, of a version and the dtype that is computed in, and `weights`
    says what loading makes of the model's. `options` are the fields of a request that it heeds
    beyond those of any plan. `narrower_caches` and `narrower_weights` are the types to offer where
    a cache, or the weights, are too large, the mildest first; `profiles_sequences`: fewer
    --max-num-seqs leave more memory; `keeps_float32`: float32 weights are not loaded as 16 bit
    unless a dtype is asked for. `platforms` are the devices that a version runs on (None: all);
    `refusals` reasons for which it would not start on one of them, however much memory there is;
    `most_at_once` the most requests that it runs at once, None where only memory limits them;
    `notes` what is particular to how a version runs the model; `listed_as` is its name among those
    whose lists of classes are known (arch/engine_types.py); `host` says what it puts in the host's
    memory, which no verdict counts; `latents` is how it loads what `headcount convert --latent`
    makes: by our modelling file (`latent`), or as latent attention (`mla`), of which it runs
    `latent_sizes` elements of a token alone, the most first (none: any); `as_run` gives the model
    with the weights that it loads, and the caches that its class of it has.
    """

    name: str
    budget: Callable[[PlannedModel, Device | None, Workload], tuple[Budget, ...]]
    pool: Callable[[PlannedModel, Workload], CachePool]
    launch: Callable[[PlannedModel, Workload, int], Launch] | None
    cache_type: Callable[[PlannedModel, PlanRequest, Version, str], CacheType]
    weights: Callable[[PlannedModel, str | None, str], Weights]
    options: frozenset[str] = frozenset()
    releases: Releases = NO_RELEASES
    narrower_caches: tuple[str, ...] = ()
    as_run: Callable[[PlannedModel], PlannedModel] = with_stored_head
    host: Callable[[PlannedModel, Workload], tuple[Term, ...]] | None = None
    listed_as: str | None = None
    latents: LatentHome | None = None
    latent_sizes: tuple[int, ...] = ()
    narrower_weights: tuple[str, ...] = ("float8_e4m3fn", "int4")
    profiles_sequences: bool = False
    keeps_float32: bool = True
    platforms: Callable[[Version], Platforms | None] = _everywhere
    refusals: Callable[[PlannedModel, Device | None, Workload], Iterable[str]] = _nothing
    most_at_once: Callable[[PlannedModel, Device | None, Workload], int | None] = _unlimited
    notes: Callable[[PlannedModel, Device | None, Workload], Iterable[str]] = _nothing

    @property
    def starts(self) -> bool:
        """Whether it is a program that is started, and whose own account counts."""
        return self.launch is not None

    def not_run_on(self, device: Device, version: Version) -> str | None:
        """Why that version does not run on the device; None where it does."""
        platforms = self.platforms(version)
        found = None if platforms is None else not_run_on(device, platforms)
        return None if found is None else f"{self.name} {version.text}".strip() + f" {found}"


def check_options(engine: Engine, request: PlanRequest) -> None:
    """Raises HeadcountError for an option that `engine` would pass over, naming who has it, or
    what it needs beside it."""
    for name in request.engine_options:
        if name not in engine.options:
            having = " or ".join(each for each in ENGINES if name in find_engine(each).options)
            raise HeadcountError(
                f"{engine.name} has no {flag(name)}: plans with it need an engine that has it:"
                f" --engine {having}"
            )
        if "lora" in name and not request.enable_lora:
            raise HeadcountError(f"{flag(name)} needs --enable-lora: without it nothing heeds it")


def find_engine(name: str) -> Engine:
    """The engine of that name. Raises HeadcountError, with those that are known."""
    if name not in ENGINES:
        raise HeadcountError(f"engine {name!r} is not known; known are {', '.join(ENGINES)}")
    known = ENGINES[name]
    found = import_module(f".{known}", __package__).ENGINE if isinstance(known, str) else known
    assert isinstance(found, Engine)
    return found
