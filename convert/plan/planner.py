"""From a request to a plan: every check that can be made without reading a tensor is made here."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from headcount.arch.gguf.spec import CACHE_DTYPE
from headcount.model.errors import HeadcountError, MissingExtraError
from headcount.model.sizes import AuditRequest, fill_in
from headcount.running.launched import is_launched
from headcount.sources.presence import is_there

from ..budget.settling import within_budget
from ..gguf.gguf_file import GgufFile
from ..homes.finding import find_home
from ..homes.home import Draft, Home
from ..homes.latent import latent
from ..homes.mla import mla
from ..homes.unchanged import unchanged
from ..importance.settling import pruned_in, settled
from ..rewrite.planned import plan_rewriting
from .cast import cast_config, cast_steps
from .existing import read_existing
from .leftovers import reclaimable
from .model_card import SOURCE_CARD, beside_the_card, model_card
from .output_files import index_name, index_of, output_files
from .plan import ConversionPlan, LayerHeads, OutputFile
from .request import CALIBRATION_DEVICE, CPU, ConversionRequest
from .same_job import check_same_job
from .side_files import is_about, shown_name, sort_side_files
from .source import CONFIG, MERGED, ConversionSource, read_source, source_state
from .target import check_space, check_target
from .untied_head import untied_config

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json"),
    *("spiece.model", "tekken.json"),
)


def plan_conversion(request: ConversionRequest) -> ConversionPlan:
    """What converting would do. Reads config, headers and folder entries; writes nothing.

    Raises HeadcountError for a source that is broken or cannot be converted, a target that may not
    be written, and WriteError where the result would not fit on the disk.
    """
    source = read_source(request.source)
    check_target(request.source, request.target)
    plan = plan_of(source, request)
    needed = plan.needed_nbytes - reclaimable(request.target)
    check_space(request.target, needed, plan.needed_files)
    existing = read_existing(request.target)
    if existing is not None and not request.overwrite:
        check_same_job(existing, plan)
    return plan


def plan_of(source: ConversionSource, request: ConversionRequest) -> ConversionPlan:
    """The plan for a source that was read, whatever its target is like. Raises HeadcountError."""
    _check_device(request)
    request, importance = settled(source, request)
    request, budget = within_budget(source, request)
    home = _home(source, request)
    heads, draft = home.heads, home.draft()
    rewriting, limits = plan_rewriting(source, home, draft.layers, request)
    steps = {file: cast_steps(made, request.cast) for file, made in draft.steps.items()}
    files = output_files(source, steps, request.max_shard_size)
    config, changes = home.config()
    config, untied = untied_config(source, config)
    cast, dtype_changes = cast_config(config, request.cast)
    index = index_name(source, files)
    made = (*(file.name for file in files), *(file.name for file in draft.side_files))
    written = frozenset({CONFIG, *made, *_index_names(source)})
    copied, left_files = sort_side_files(request.source, written)
    read = side_files = (*beside_the_card(copied), *draft.side_files)
    file = _gguf(source, files, cast, request)
    if file is not None:  # which holds what programs read of the others
        side_files, left_files = tuple(f for f in read if is_about(f.name)), ()
    plan = ConversionPlan(
        request=request,
        source=source_state(
            source,
            read,
            request.source_name,
            whole_folder=request.calibration is not None,
        ),
        model_type=source.model_type,
        home=f"{home.name}: {home.reason}",
        files=files,
        dropped=draft.dropped,
        layers=tuple(_layer(index, home) for index in draft.layers),
        cache_dtype=_cache_dtype(source, request),
        layer_count=len({*draft.layers, *(la.index for la in source.audit.spec.layers)}),
        config=cast,
        config_changes=(*changes, *untied, *dtype_changes),
        index_name=index,
        index=None if index is None else index_of(source, files),
        side_files=side_files,
        left_files=left_files,
        notes=(
            *(*draft.notes, *heads.notes, *limits),
            *(f"config.json: {change}" for change in untied),
            *(_notes(source, draft) if file is None else file.notes),
        ),
        findings=tuple(f for f in source.audit.findings if f.severity == "warning"),
        rewriting=rewriting,
        importance=importance,
        budget=budget,
        gguf=file,
    )
    source_card = next((file.path for file in side_files if file.name == SOURCE_CARD), None)
    return replace(plan, card=model_card(plan, source_card))


def _check_device(request: ConversionRequest) -> None:
    if request.device != CPU:
        from headcount.running.placement import resolve_device  # imports transformers

        resolve_device(request.device, CALIBRATION_DEVICE)
        if is_launched() and request.device != "cuda":
            raise HeadcountError(
                f"{CALIBRATION_DEVICE} {request.device}: a launcher gives each process its GPU; use"
                " cuda or cpu"
            )


def _home(source: ConversionSource, request: ConversionRequest) -> Home:
    if request.latent is not None and request.home == "mla":
        return mla(source, request.latent, request.cast, gguf=request.is_gguf)
    if request.latent is not None:
        return latent(source, request.latent, request.cast)
    if not request.changes_heads:
        return unchanged(source)
    return find_home(source, request.num_key_value_heads, request.home, pruned_in(request))


def _gguf(
    source: ConversionSource,
    files: Iterable[OutputFile],
    config: Mapping[str, Any],
    request: ConversionRequest,
) -> GgufFile | None:
    """The one file that is written instead of `files`, if one is asked for."""
    if not request.is_gguf:
        return None
    if find_spec("gguf") is None:
        raise MissingExtraError(
            "--format gguf needs gguf: install the extra `gguf`, in a clone of headcount with:"
            " pip install '.[gguf]'"
        )
    from ..gguf.planned_file import planned_file  # imports transformers and gguf

    steps = tuple(step for file in files for step in file.steps)
    name = request.source_name or shown_name(source.folder.name)
    return planned_file(steps, config, request.dtype, folder=source.folder, name=name)


def _cache_dtype(source: ConversionSource, request: ConversionRequest) -> str:
    """What an audit of the result will say that its cache holds."""
    if request.is_gguf:
        return CACHE_DTYPE
    return request.cast or fill_in(source.audit.spec, AuditRequest()).kv_dtype


def _layer(index: int, home: Home) -> LayerHeads:
    heads = home.heads.of(index) or home.heads.of(index, cross=True)
    assert heads is not None
    return LayerHeads(
        index=index,
        num_attention_heads=heads.num_attention_heads,
        before=heads.before,
        after=heads.after,
        head_dim=heads.head_dim,
        padded_heads=heads.padded_heads if heads.is_padded else None,
        pruned=tuple(sorted({*range(heads.num_attention_heads)} - {*heads.staying.query})),
        latent_rank=home.ranks.get((index, False)),
        rotated=0 if home.mla is None else home.mla.rotated,
        v_head_dim=heads.v_head_dim,
    )


def _index_names(source: ConversionSource) -> tuple[str, ...]:
    return (source.checkpoint.index.name,) if source.checkpoint.index else ()


def _notes(source: ConversionSource, draft: Draft) -> tuple[str, ...]:
    notes = [
        "the adapter beside the model was merged into its weights first: the source is both"
        for header in source.checkpoint.files[:1]
        if MERGED in header.metadata
    ]
    if source.config.get("auto_map") and not draft.side_files:
        notes.append(
            "config.json names code files (auto_map), which are not copied: transformers' own class"
            " loads the result"
        )
    if source.spelled is not None and source.spelled.conversion.uncompared is not None:
        notes.append(
            "no model of this type was ever converted and compared as a whole; its language model's"
            " type was"
        )
    if not source.architecture.conversion.eager:
        notes.append(
            "transformers' eager attention of this type fails with fewer K/V heads: load the result"
            " with sdpa, which is what its class takes by default"
        )
    if not any(is_there(source.folder / name) for name in _TOKENIZERS):
        notes.append("the source has no tokenizer, so the result has none")
    return tuple(notes)
