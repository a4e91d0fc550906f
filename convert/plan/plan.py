"""The plan itself: a value that says everything about the output before it exists."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.model.dtypes import CACHE_BITS
from headcount.report.report import Finding

from ..budget.search_result import BudgetSearch
from ..gguf.gguf_file import GgufFile
from ..importance.head_importance import HeadImportance
from .request import ConversionRequest
from .rewriting import Rewriting
from .side_files import LeftFile, SideFile
from .source import SourceState
from .steps import Dropped, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """One safetensors file of the output; its tensors in the order of their bytes."""

    name: str
    metadata: Mapping[str, str]
    steps: tuple[Step, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, the header left out."""
        return sum(step.nbytes for step in self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerHeads:
    """The K/V heads of one layer, before and after. `padded_heads` are the query heads after where
    some of them are padding; `pruned` those of before that are gone. `latent_rank`: so many
    elements of a token are kept in place of keys and values, `rotated` of them a key that rotates;
    None: these are. `v_head_dim` None: as head_dim."""

    index: int
    num_attention_heads: int
    before: int
    after: int
    head_dim: int
    padded_heads: int | None = None
    pruned: tuple[int, ...] = ()
    latent_rank: int | None = None
    rotated: int = 0
    v_head_dim: int | None = None

    @property
    def query_heads(self) -> int:
        """Those after, without padding."""
        return self.num_attention_heads - len(self.pruned)

    @property
    def kept_before(self) -> int:
        """Elements that are kept of a token."""
        return self.before * (self.head_dim + (self.v_head_dim or self.head_dim))

    @property
    def kept_after(self) -> int:
        if self.latent_rank is not None:
            return self.latent_rank
        return self.after * (self.head_dim + (self.v_head_dim or self.head_dim))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionPlan:
    """Every tensor and file of the output, and where it comes from.

    `home` says which class holds the result and why; `config` and `index` are the JSON objects to
    write; `findings` are the source's warnings, which the output may inherit. `layer_count` are all
    layers of the model, `layers` those whose K/V heads change; `cache_dtype` is the element type of
    the result's cache, in which sizes of both caches are said. `rewriting` says what is done to the
    source's tensors before the steps read them, None: nothing. `importance` is what the query heads
    that go were chosen by, None where they were named, or none goes; `budget` how K/V heads or
    ranks were found for each layer, None where they were named. `card` is the README.md to
    write. `gguf` is the one file that is written in place of `files`, from what their steps make,
    and of config and index; None for a folder as transformers reads it.
    """

    request: ConversionRequest
    source: SourceState
    model_type: str
    home: str
    files: tuple[OutputFile, ...]
    dropped: tuple[Dropped, ...]
    layers: tuple[LayerHeads, ...]
    layer_count: int
    cache_dtype: str
    config: Mapping[str, Any]
    config_changes: tuple[str, ...]
    index_name: str | None
    index: Mapping[str, Any] | None
    side_files: tuple[SideFile, ...]
    left_files: tuple[LeftFile, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    rewriting: Rewriting | None = None
    importance: HeadImportance | None = None
    budget: BudgetSearch | None = None
    card: str = ""
    gguf: GgufFile | None = None

    @property
    def cache_nbytes(self) -> tuple[int, int]:
        """Bytes that the layers which change keep of a token, before and after."""
        bits = CACHE_BITS[self.cache_dtype]
        before = sum(layer.kept_before for layer in self.layers)
        return before * bits // 8, sum(layer.kept_after for layer in self.layers) * bits // 8

    @property
    def steps(self) -> Iterator[Step]:
        return (step for file in self.files for step in file.steps)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors of the output: its index's `total_size`, if it has one."""
        if self.gguf is not None:
            return self.gguf.nbytes
        return sum(file.nbytes for file in self.files)

    @property
    def source_nbytes(self) -> int:
        """Bytes of all tensors of the source."""
        return sum(t.nbytes for header in self.source.headers for t in header.tensors)

    @property
    def total_nbytes(self) -> int:
        """Bytes that the output's tensors and copied files take on disk, small JSON left out."""
        return self.nbytes + sum(file.nbytes for file in self.side_files)

    @property
    def needed_nbytes(self) -> int:
        """Bytes that have to be free while it is carried out."""
        return self.total_nbytes + (0 if self.rewriting is None else self.rewriting.nbytes)

    @property
    def needed_files(self) -> int:
        """Files of weights and copies that are made while it is carried out."""
        rewritten = 0 if self.rewriting is None else len(self.rewriting.layers)
        files = len(self.files) if self.gguf is None else 1
        return files + len(self.side_files) + rewritten
