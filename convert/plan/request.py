"""What the user asks for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from headcount.arch.rehoming.deepseek import LIKE_LLAMA
from headcount.model.errors import HeadcountError
from headcount.model.pruned_heads import PrunedShare
from headcount.running.asked_for import BUILTIN

from ..latent.size import (
    BY_LAYER,
    CacheBudget,
    LatentSize,
    check_cache_budget,
    check_latent_size,
)
from ..merge.ladder import (
    GROUPINGS,
    MERGE_METHODS,
    REFITS,
    HeadGrouping,
    Ladder,
    MergeMethod,
    Refit,
)
from .by_layer import parse_by_layer
from .cast import CAST_NAMES, CastName

# What the result is: a folder as transformers reads it, or one with a file for llama.cpp.
Format = Literal["safetensors", "gguf"]
FORMAT_CHOICES: tuple[Format, ...] = get_args(Format)
# An element type of GGUF alone: blocks of 32 8-bit numbers that share a scale.
Q8_0: Literal["q8_0"] = "q8_0"
ElementType = CastName | Literal["q8_0"]
ELEMENT_TYPES: tuple[ElementType, ...] = (*CAST_NAMES, Q8_0)
# How several K/V heads become one; docs/methods.md has the formulas and sources.
ChoosingMethod = Literal["first", "medoid", "random"]
CHOOSING: tuple[ChoosingMethod, ...] = get_args(ChoosingMethod)
Method = MergeMethod | ChoosingMethod
METHODS: tuple[Method, ...] = (*MERGE_METHODS, *CHOOSING)
# Tokens of a calibration text that are read, unless another number is asked for: the packaged text
# has as many for most tokenizers.
CALIBRATION_TOKENS = 32_768
CALIBRATION_ROW_TOKENS = 512
# Where layers are run and fitted, unless another device is asked for: so every machine writes the
# same numbers.
CPU, CALIBRATION_DEVICE = "cpu", "--calibration-device"
# Which class holds the result; auto takes the first that can, in this order.
HomeChoice = Literal["auto", "native", "rehome", "custom", "latent", "mla"]
HOME_CHOICES: tuple[HomeChoice, ...] = get_args(HomeChoice)
LATENT_HOMES = ("latent", "mla")
# A number for all layers, or one for each of some: the others keep their heads.
KeyValueHeads = int | Mapping[int, int]
# Query heads that are taken away: a number or a share of each layer's, or single ones by layer.
HeadsOfLayers = Mapping[int, tuple[int, ...]]
PrunedHeads = PrunedShare | HeadsOfLayers


def beside_latent(option: str) -> str:
    """Why an option of merging heads is refused."""
    return f"{option} does not go with --latent, which merges no heads: leave one of them out"


def needs_text(option: str) -> str:
    """Why an option is refused that nothing was given to measure on."""
    return (
        f"{option} needs text that the source is run on: add --calibration FILE, or"
        f" --calibration {BUILTIN}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionRequest:
    """Convert the model in the folder `source` to `num_key_value_heads` K/V heads, into `target`.

    Layers that have no more of them keep theirs; None: as many as stay when the query heads
    `pruned_heads` go, of each layer or, with `across_layers`, of all together. With `latent` they
    all stay, and the cache holds a latent of that size in place of their keys and values. Within
    `cache_budget`, bytes a token of all layers or a share of the source's, each layer gets the
    heads (or, with `latent` BY_LAYER, the rank) that cost the model least. `method`
    to `reconstruct` are the rungs of the `Ladder`, where `method` is one of them; `calibration` is
    a text file, or `builtin`, of which at
    most `calibration_tokens` (None: CALIBRATION_TOKENS) are read, in rows of at most
    `calibration_row_tokens` (None: CALIBRATION_ROW_TOKENS). The source's
    layers run on `calibration_device` (None: CPU). `seed` matters to what is drawn
    only: the method `random`, and calibration. `home` is the kind of class that holds the result.
    Floats become `dtype`, and files hold at most `max_shard_size` bytes, where these are given.
    `format` gguf: the result is one file for llama.cpp, and both numbers of heads may be left out.
    `source_name` is what the record calls the source; its folder's name if not given.
    `source_made`: its files were made for this run, as old as what they were made from. `workers`
    threads merge heads, and as many finish files, while others are written. `overwrite` replaces an
    earlier output of ours.
    """

    source: Path
    target: Path
    num_key_value_heads: KeyValueHeads | None
    pruned_heads: PrunedHeads | None = None
    across_layers: bool = False
    latent: LatentSize | None = None
    cache_budget: CacheBudget | None = None
    method: Method = "mean"
    grouping: HeadGrouping = "contiguous"
    temperature: bool = False
    refit: Refit = "none"
    reconstruct: int = 0
    calibration: str | None = None
    calibration_tokens: int | None = None
    calibration_row_tokens: int | None = None
    calibration_device: str | None = None
    seed: int = 0
    home: HomeChoice = "auto"
    dtype: ElementType | None = None
    format: Format = "safetensors"
    max_shard_size: int | None = None
    source_name: str | None = None
    source_made: bool = False
    workers: int = 2
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise HeadcountError(f"method {self.method!r} is not one of {', '.join(METHODS)}")
        if self.home not in HOME_CHOICES:
            raise HeadcountError(f"home {self.home!r} is not one of {', '.join(HOME_CHOICES)}")
        self._check_format()
        if self.max_shard_size is not None and self.max_shard_size < 1:
            raise HeadcountError(f"{self.max_shard_size} bytes: a file has to hold at least one")
        if self.workers < 1:
            raise HeadcountError(f"{self.workers} workers: at least one has to do the work")
        self._check_counts()
        self._check_ladder()

    def _check_format(self) -> None:
        if self.format not in FORMAT_CHOICES:
            formats = ", ".join(FORMAT_CHOICES)
            raise HeadcountError(f"format {self.format!r} is not one of {formats}")
        known: tuple[str, ...] = ELEMENT_TYPES if self.is_gguf else CAST_NAMES
        if self.dtype is not None and self.dtype not in known:
            hint = "; q8_0 is for --format gguf" if self.dtype == Q8_0 else ""
            raise HeadcountError(f"dtype {self.dtype!r} is not one of {', '.join(known)}{hint}")
        if self.is_gguf and self.max_shard_size is not None:
            raise HeadcountError("--max-shard-size: a GGUF file is written as one; leave it out")
        if self.is_gguf and self.latent is not None and self.home != "mla":
            raise HeadcountError(
                "--format gguf does not go with --latent in our own modelling file (home latent):"
                " llama.cpp has no architecture whose cache holds such latents; add --home mla,"
                f" which holds those of {', '.join(LIKE_LLAMA)} as its architecture deepseek2, or"
                " leave one of them out"
            )
        if self.is_gguf and self.target.name.endswith(".gguf"):
            raise HeadcountError(
                f"{self.target}: is to be a folder, which will hold the file beside its record:"
                " name it without .gguf"
            )

    @property
    def is_gguf(self) -> bool:
        """Whether the result is a GGUF file."""
        return self.format == "gguf"

    @property
    def changes_heads(self) -> bool:
        """Whether any heads are to go; if not, the model is only written in another format."""
        asked = (self.num_key_value_heads, self.pruned_heads, self.cache_budget)
        return any(one is not None for one in asked)

    @property
    def device(self) -> str:
        """Where layers are run."""
        return self.calibration_device or CPU

    @property
    def cast(self) -> CastName | None:
        """The type that floats of the tensors of safetensors files become. Those of a GGUF file
        get theirs, tensor by tensor, when they are laid out."""
        return next((n for n in CAST_NAMES if n == self.dtype and not self.is_gguf), None)

    def _check_counts(self) -> None:
        wanted, pruned = self.num_key_value_heads, self.pruned_heads
        self._check_budget()
        if self.latent is not None:
            self._check_latent(self.latent)
        elif self.home in LATENT_HOMES:
            raise HeadcountError(
                f"--home {self.home}: say how large the latents are, with --latent SIZE"
            )
        elif not self.changes_heads and not self.is_gguf:
            raise HeadcountError("nothing is asked for: say how many K/V heads, or what to prune")
        if wanted is not None:
            least = min(wanted.values(), default=0) if isinstance(wanted, Mapping) else wanted
            if least < 1:
                raise HeadcountError(f"{least} K/V heads: a model needs at least one")
        if pruned in (0, {}):
            raise HeadcountError("no query heads to prune: name at least one")
        if self.across_layers:
            self._check_across_layers()

    def _check_budget(self) -> None:
        if self.cache_budget is None:
            if self.latent == BY_LAYER:
                raise HeadcountError(
                    "--latent without a size: say how large the latents are (--latent 1/4), or how"
                    " large the cache, of which each layer gets its part (--latent --budget 1/4)"
                )
            return
        check_cache_budget(self.cache_budget)
        others: dict[str, bool] = {
            "--kv-heads": self.num_key_value_heads is not None,
            "--prune-heads": self.pruned_heads is not None,
            "a size of --latent": self.latent not in (None, BY_LAYER),
            "--home mla, whose class has one size for all layers,": self.home == "mla",
            f"--method {self.method}": self.method in CHOOSING,
        }
        name = next((name for name, is_given in others.items() if is_given), None)
        if name is not None:
            raise HeadcountError(
                f"{name} does not go with --budget, which finds what each layer gets: leave one of"
                " them out"
            )

    def _check_across_layers(self) -> None:
        if self.pruned_heads is None or isinstance(self.pruned_heads, Mapping):
            raise HeadcountError(
                "--across-layers chooses among the heads of all layers: add --prune-heads with a"
                " number or a share of them, 1/4 say"
            )
        if self.calibration is None:
            raise HeadcountError(
                "--across-layers weighs heads of one layer against those of another, which weights"
                f" alone do not tell: add --calibration FILE, or --calibration {BUILTIN}"
            )

    def _check_latent(self, size: LatentSize) -> None:
        check_latent_size(size)
        others: dict[str, bool] = {
            "--kv-heads": self.num_key_value_heads is not None,
            "--prune-heads": self.pruned_heads is not None,
            f"--home {self.home}": self.home not in ("auto", *LATENT_HOMES),
            f"--method {self.method}": self.method != "mean",
            f"--grouping {self.grouping}": self.grouping != "contiguous",
            "--temperature": self.temperature,
        }
        name = next((name for name, is_given in others.items() if is_given), None)
        if name is not None:
            raise HeadcountError(beside_latent(name))

    def _check_ladder(self) -> None:
        """Raises HeadcountError for rungs that do not go together, or lack text to calibrate on."""
        if self.grouping not in GROUPINGS:
            raise HeadcountError(f"grouping {self.grouping!r} is not one of {', '.join(GROUPINGS)}")
        if self.refit not in REFITS:
            raise HeadcountError(f"refit {self.refit!r} is not one of {', '.join(REFITS)}")
        if self.reconstruct < 0:
            raise HeadcountError(f"{self.reconstruct} steps of --reconstruct: at least 0 are taken")
        self._check_calibration("--calibration-tokens", self.calibration_tokens)
        self._check_calibration("--calibration-row-tokens", self.calibration_row_tokens)
        asked = dict(_asked(self))
        reads = self.calibration is not None and self.pruned_heads is None
        if self.method in CHOOSING and (asked or reads):
            name = next(iter(asked), "--calibration")
            raise HeadcountError(
                f"--method {self.method} keeps heads as they are, so that {name} has nothing to"
                f" work on: add --method merge (or one of {', '.join(MERGE_METHODS)})"
            )
        needing = [name for name, needs in asked.items() if needs]
        if needing and self.calibration is None:
            raise HeadcountError(needs_text(needing[0]))
        rewrites = any(one is not None for one in (self.ladder, self.latent, self.cache_budget))
        if reads and not rewrites:
            raise unread_text("the mean of neighbouring heads")
        if self.device != CPU and not (rewrites or self.calibration is not None):
            raise HeadcountError(
                f"{CALIBRATION_DEVICE} {self.device}: no layer is run for what is"
                " asked: leave it out, or add --quality fast, good or best"
            )

    def _check_calibration(self, option: str, tokens: int | None) -> None:
        if tokens is None:
            return
        if tokens < 1:
            raise HeadcountError(f"{tokens} {option}: at least one has to be read")
        if self.calibration is None:
            raise HeadcountError(
                f"{option} says how much of a text is read: add --calibration FILE, or"
                f" --calibration {BUILTIN}"
            )

    @property
    def ladder(self) -> Ladder | None:
        """What is done to the source's heads before they are pooled; None where nothing is."""
        method = next((known for known in MERGE_METHODS if known == self.method), None)
        if method is None or (method == "mean" and not dict(_asked(self))):
            return None
        return Ladder(
            method=method,
            grouping=self.grouping,
            temperature=self.temperature,
            refit=self.refit,
            reconstruct=self.reconstruct,
            seed=self.seed,
        )


def unread_text(what: str) -> HeadcountError:
    """A calibration text that nothing of a request reads."""
    return HeadcountError(
        f"--calibration changes nothing about {what}: add --method merge, --refit output or"
        " --quality good"
    )


def _asked(request: ConversionRequest) -> Iterator[tuple[str, bool]]:
    """The rungs beside the method that are asked for, and whether each needs calibration text."""
    if request.grouping != "contiguous":
        yield f"--grouping {request.grouping}", False
    if request.temperature:
        yield "--temperature", True
    if request.refit != "none":
        yield f"--refit {request.refit}", True
    if request.reconstruct:
        yield "--reconstruct", True


def parse_key_value_heads(text: str) -> KeyValueHeads:
    """`8`, or `0-15:8,16-31:4` for layers 0 to 15 and 16 to 31. Raises HeadcountError."""
    if text.isascii() and text.isdecimal() and len(text) <= 5:
        return int(text)
    found = parse_by_layer(text)
    if found is None:
        raise HeadcountError(
            f"{text!r} is no number of K/V heads: write 8 for all layers, or 0-15:8,16-31:4"
        )
    return found
