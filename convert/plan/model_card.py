"""The README.md of the output, a model card as the Hub reads it: what was made of what, and how.

The source's own card describes another model; it goes along as README.source.md. What it says of
its licence and languages still holds, so that is taken over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from headcount.model import limits
from headcount.model.text import printable
from headcount.model.version import __version__
from headcount.report.markdown import plain
from headcount.sources.hub import is_repository
from headcount.sources.json_file import open_bytes

from ..gguf.gguf_file import NAME
from .card_evaluation import not_evaluated, not_evaluated_file, with_evaluation
from .card_loading import loading, task
from .plan import ConversionPlan
from .side_files import RECORD, SideFile

# What a source's card says that is as true of the result.
_TASK = "pipeline_tag"
_KEPT = ("license", "license_name", "license_link", "language", _TASK)
_DIVIDER = b"\n---"
CARD = "README.md"
SOURCE_CARD = "README.source.md"


def beside_the_card(files: Iterable[SideFile]) -> tuple[SideFile, ...]:
    """The files to copy, the source's card under its other name; of two such the newer one."""
    found = tuple(files)
    cards = [file for file in found if file.name.lower() == CARD.lower()]
    if not cards:
        return found
    others = [file for file in found if file not in cards and file.name != SOURCE_CARD]
    return (*others, replace(cards[0], name=SOURCE_CARD))


def model_card(plan: ConversionPlan, source_card: Path | None) -> str:
    """The card of the result of `plan`; `source_card` is the README.md of the source, if it has
    one. No times and no paths, so that one plan gives one card. Raises HeadcountError."""
    base, _, revision = plan.source.name.partition("@")
    known = {} if source_card is None else _front_matter(source_card)
    used_for = known.get(_TASK) or task(plan)
    data = ModelCardData(
        base_model=base if is_repository(base) else None,
        library_name="transformers" if plan.gguf is None else "gguf",
        tags=["headcount", *_tags(plan)],
        **{**known, _TASK: used_for},
    )
    body = "\n".join(_body(plan, plain(base), revision, None if source_card is None else known))
    card = f"---\n{data.to_yaml()}\n---\n\n{body}\n"
    return with_evaluation(card, _not_evaluated(plan))


def _body(
    plan: ConversionPlan, base: str, revision: str, known: Mapping[str, Any] | None
) -> Iterator[str]:
    """`known` is what is kept of the source's card, None where it has none."""
    pruned = [layer for layer in plan.layers if layer.pruned]
    yield f"# {base}{_with(plan)}{'' if plan.gguf is None else ' as GGUF'}"
    yield ""
    of = f" at revision {revision}" if revision else ""
    yield f"Made from {base}{of} with headcount {__version__}."
    yield ""
    if plan.layers:
        yield f"- {_kept(plan)}, in {len(plan.layers)} of {plan.layer_count} layers."
    if pruned:
        counts = dict.fromkeys((la.num_attention_heads, la.query_heads) for la in pruned)
        said = ", ".join(f"{before} to {after}" for before, after in counts)
        yield f"- Query heads: {said}, in {len(pruned)} of {plan.layer_count} layers."
    if plan.layers:
        yield f"- Method: {_method(plan)}."
        yield f"- Cache of a token, in these layers: {_cache(plan)}."
    if plan.gguf is None:
        yield f"- Kept as: {plain(plan.home)}."
    else:
        types = ", ".join(sorted({tensor.type for tensor in plan.gguf.tensors}))
        yield f"- File: `{NAME}`, architecture `{plan.gguf.architecture}` of llama.cpp, {types}."
    yield f"- Licence: {_licence(known)}."
    yield ""
    yield "## Loading"
    yield ""
    yield from loading(plan)
    yield ""
    yield (
        f"`{RECORD}` beside this file says what became of every tensor and what was done since, and"
        " holds the digests of all files."
    )
    if known is not None:
        yield f"`{SOURCE_CARD}` is the card of the model that this one was made from."


def _not_evaluated(plan: ConversionPlan) -> Iterator[str]:
    if plan.gguf is None:
        return not_evaluated("", pairs=bool(plan.config.get("is_encoder_decoder")))
    return not_evaluated_file(is_changed=bool(plan.layers))


def _licence(known: Mapping[str, Any] | None) -> str:
    """In words, for those who do not read the metadata."""
    if known and (name := known.get("license_name") or known.get("license")):
        return f"the source's, {plain(str(name))}"
    return "the source's; it has no card that names it"


def _tags(plan: ConversionPlan) -> tuple[str, ...]:
    """What the Hub finds it by."""
    if not plan.layers:
        return ()
    return ("grouped-query-attention" if plan.request.latent is None else "latents",)


def _with(plan: ConversionPlan) -> str:
    """What its cache holds, for its title."""
    if not plan.layers:
        return ""
    if plan.request.latent is not None:
        return " with latents as its cache"
    pruned = any(layer.pruned for layer in plan.layers)
    return f" with fewer {'attention' if pruned else 'key/value'} heads"


def _kept(plan: ConversionPlan) -> str:
    """What is cached of a token before and after."""
    heads = plan.request.latent is None
    pairs = dict.fromkeys(
        (la.before, la.after) if heads else (la.kept_before, la.latent_rank) for la in plan.layers
    )
    said = ", ".join(f"{before} to {after}" for before, after in pairs)
    return f"{'Key/value heads' if heads else 'Cached elements of a token'}: {said}"


def _cache(plan: ConversionPlan) -> str:
    before, after = plan.cache_nbytes
    return f"{before:,} to {after:,} bytes ({plan.cache_dtype})"


def _method(plan: ConversionPlan) -> str:
    """As the record names its parts; of a calibration text how much was read, and its digest."""
    request = plan.request
    said = [f"`{request.method}`", f"grouping `{request.grouping}`"]
    if request.latent is not None:
        said = ["keys and values rebuilt from latents"]
    said += ["temperature"] if request.temperature else []
    said += [f"refit of `{request.refit}`"] if request.refit != "none" else []
    said += [f"{request.reconstruct} steps a layer"] if request.reconstruct else []
    return ", ".join((*said, *(_texts(plan) or ("from the weights alone",))))


def _texts(plan: ConversionPlan) -> tuple[str, ...]:
    """What was done by a text, and how much was read of it."""
    rewriting, importance, budget = plan.rewriting, plan.importance, plan.budget
    read = []
    if rewriting is not None:
        read.append(("calibrated", rewriting.tokens_read, rewriting.calibration_sha256))
    if importance is not None:
        read.append(("query heads chosen", importance.tokens, importance.sha256))
    if budget is not None:
        read.append(("sizes chosen", budget.tokens, budget.sha256))
    return tuple(
        f"{done} on a text ({tokens:,} tokens, SHA-256 {digest[:16]})"
        for done, tokens, digest in read
        if digest is not None
    )


def _front_matter(path: Path) -> dict[str, Any]:
    """What is kept of the YAML that a card begins with; nothing of one that cannot be read, since
    a card is prose to everybody but the Hub."""
    with open_bytes(path) as file:
        start = file.read(limits.JSON_BYTES.most)
    if not start.startswith(b"---") or _DIVIDER not in start:
        return {}
    try:
        text = start[: start.index(_DIVIDER) + len(_DIVIDER)].decode("utf-8-sig") + "\n"
        found = ModelCard(text, ignore_metadata_errors=True).data
    except Exception:  # yaml's errors, and what huggingface_hub makes of wrong types
        return {}
    kept = {key: _safe(found.get(key)) for key in _KEPT}
    return {key: value for key, value in kept.items() if value}


def _safe(value: Any) -> Any:
    """A text, or a list of such, as YAML will write it; None for anything else."""
    if isinstance(value, list):
        return [_safe(item) for item in value] if all(map(_safe, value)) else None
    return printable(value) if isinstance(value, str) and len(value) < 200 else None
