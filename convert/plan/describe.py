"""A plan as lines of text, for `--dry-run`: equal steps of many layers on one line."""

import re
from collections.abc import Iterable, Iterator, Sequence

from headcount.arch.gguf.spec import CACHE_DTYPE_SOURCE
from headcount.model import limits
from headcount.model.units import format_bytes, format_indices
from headcount.report.report import shown

from ..budget.search_result import BudgetSearch
from ..gguf.gguf_file import NAME, GgufFile, GgufTensor
from .by_layer import by_layer_in_words
from .model_card import CARD
from .plan import ConversionPlan, LayerHeads
from .rewriting import Rewriting
from .side_files import SideFile
from .steps import Copy, Pool, Step

_LAYER = re.compile(r"(?<=\.)\d{1,9}(?=\.)", re.ASCII)


def describe_plan(plan: ConversionPlan) -> Iterator[str]:
    """What will be written, from what, and what will not, in about twenty lines."""
    yield from _head(plan)
    yield ""
    yield from _steps(plan.steps, "unchanged" if plan.rewriting is None else "other")
    yield from () if plan.gguf is None else _gguf(plan.gguf)
    for dropped in plan.dropped:
        yield f"  drop       {dropped.source.name}: {dropped.reason}"
    yield ""
    yield from (f"config.json  {change}" for change in plan.config_changes)
    yield f"made         {CARD}: a model card, with what was done"
    if plan.side_files:
        yield f"copied       {_names(plan.side_files)}"
    most = limits.FILES_SHOWN.most
    for file in plan.left_files[:most]:
        yield f"not copied   {file.name} ({file.reason})"
    if len(plan.left_files) > most:
        yield f"not copied   and {len(plan.left_files) - most:,} more"
    yield from (f"note         {note}" for note in (*plan.notes, *mean_costs(plan)))
    for finding in shown(plan.findings):
        yield f"warning      {finding.code} {finding.where}: {finding.message}"


def _gguf(file: GgufFile) -> Iterator[str]:
    """What becomes of these tensors in the file, as many of each kind."""
    kinds: dict[tuple[str, str], list[GgufTensor]] = {}
    for tensor in file.tensors:
        kinds.setdefault((tensor.verb, tensor.type), []).append(tensor)
    yield ""
    yield f"GGUF         {NAME}, architecture {file.architecture}, {len(file.metadata)} keys"
    for (verb, kind), same in sorted(kinds.items()):
        size = format_bytes(sum(tensor.nbytes for tensor in same))
        yield f"  {verb:<10} {len(same)} tensors to {kind}, {same[0].name} …  {size}"


def _names(files: Sequence[SideFile]) -> str:
    """Their names: the first, and how many more there are."""
    most = limits.FILES_SHOWN.most
    more = f" and {len(files) - most:,} more" if len(files) > most else ""
    return ", ".join(file.name for file in files[:most]) + more


def _head(plan: ConversionPlan) -> Iterator[str]:
    request = plan.request
    count = len(plan.files) if plan.gguf is None else 1
    files = f"{count} file{'s' if count > 1 else ''}"
    name = request.source_name or request.source
    yield f"source       {name} ({plan.model_type}, {len(plan.layers) or plan.layer_count} layers)"
    yield f"target       {request.target} ({plan.config.get('model_type', plan.model_type)})"
    yield from (f"heads        {heads}" for heads in _heads(plan))
    yield from (f"pruned       {heads}" for heads in _pruned(plan))
    if plan.layers:
        yield f"method       {method_in_words(plan)}"
    if plan.budget is not None:
        yield from (f"budget       {line}" for line in budget_in_words(plan.budget))
    yield f"home         {plan.home}"
    yield (
        f"weights      {format_bytes(plan.source_nbytes)} -> {format_bytes(plan.nbytes)} in {files}"
    )
    if plan.rewriting is not None:
        room = format_bytes(plan.rewriting.nbytes)
        layers = len(plan.rewriting.layers)
        yield (
            f"rewritten    {layers} layers first, {_parts(plan.rewriting)}; at most {room} on the"
            " disk until it is done"
        )
    if plan.layers:
        yield f"KV cache     {cache_in_words(plan)}"


def mean_costs(plan: ConversionPlan) -> Iterator[str]:
    """What heads that are averaged as they are cost, and what takes less without costing more."""
    if plan.layers and plan.request.method == "mean" and plan.request.latent is None:
        measured = "" if plan.request.is_gguf else ": --evaluate measures it"
        yield (
            "Mean pooling alone costs much where heads differ, until the model is trained on"
            f" (headcount uptrain){measured}. --quality fast asks for nothing more"
            " and mostly costs far less; --quality good, with --calibration, less again"
            " (docs/methods.md has figures)"
        )


def cache_in_words(plan: ConversionPlan) -> str:
    """What a token takes in the layers that change, before and after."""
    before, after = plan.cache_nbytes
    changed = f"{before:,} B -> {after:,} B a token"
    smaller = f"{before / after:.4g} times smaller than the source's{_in_these(plan)}"
    return f"{changed} ({plan.cache_dtype}{_whose_dtype(plan)}), {smaller}"


def _whose_dtype(plan: ConversionPlan) -> str:
    return "" if plan.gguf is None else f", {CACHE_DTYPE_SOURCE}"


def _parts(rewriting: Rewriting) -> str:
    if rewriting.ranks and rewriting.ladder.refit == "none":
        return "their k and v"
    return "their q, k, v and o" + (" and MLPs' last" if rewriting.ladder.refit == "mlp" else "")


def method_in_words(plan: ConversionPlan) -> str:
    """The method with its rungs and what they are drawn from."""
    request = plan.request
    words = [str(request.method) if request.latent is None else "latents"]
    if request.method == "random":
        words.append(f"seed {request.seed}")
    if request.grouping == "similar":
        words.append("similar heads")
    if request.temperature:
        words.append("temperature")
    if request.refit != "none":
        words.append(f"refit of {request.refit}")
    if request.reconstruct:
        words.append(f"{request.reconstruct} step{'s'[: request.reconstruct > 1]} a layer")
    if plan.rewriting is not None:
        tokens = f"on {plan.rewriting.tokens_read:,} tokens of {request.calibration}"
        words.append(tokens if request.calibration else "from the weights alone")
    return ", ".join(words)


def _heads(plan: ConversionPlan) -> Iterator[str]:
    """A line for each kind of layer that changes."""
    kinds: dict[str, list[int]] = {}
    for layer in plan.layers:
        fewer = f" -> {layer.query_heads}" if layer.pruned else ""
        query = f"{layer.num_attention_heads}{fewer} query heads of {layer.head_dim}"
        kind = f"{query}; {_kept(layer)}"
        kinds.setdefault(kind, []).append(layer.index)
    for kind, indices in kinds.items():
        yield kind if len(kinds) == 1 else f"{kind} (layers {format_indices(indices)})"


def _kept(layer: LayerHeads) -> str:
    if layer.latent_rank is None:
        return f"K/V heads {layer.before} -> {layer.after}"
    latent = f"a latent of {layer.latent_rank - layer.rotated}"
    rotated = f" and {layer.rotated} that rotate" if layer.rotated else ""
    return f"elements of a token {layer.kept_before} -> {latent}{rotated}"


def budget_in_words(found: BudgetSearch) -> Iterator[str]:
    """What was found for the budget, how, and what equal shares would cost."""
    yield (f"{found.reached:,} bytes a token of {found.asked:,} asked for; {found.source:,} before")
    spelled = by_layer_in_words(found.sizes)
    option = "--latent" if found.kind == "latent_rank" else "--kv-heads"
    yield f"the same as {option} {spelled}"
    if found.together is None or found.equal_together is None:
        yield "by what the weights lose of scores and outputs: --calibration measures the loss"
        return
    pair = (found.together, found.equal_together)
    added, equal = (f"{one.delta_loss:+.4g} (KL {one.kl_divergence:.4g})" for one in pair)
    yield (
        f"by {found.forward_passes:,} passes over {found.tokens:,} tokens: adds {added} nats a"
        f" token before anything is fitted, equal shares {equal}"
        + (": those are kept" if found.keeps_equal else "")
    )


def _pruned(plan: ConversionPlan) -> Iterator[str]:
    """By what heads were chosen, and a line for each layers that lose the same ones."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for layer in plan.layers:
        if layer.pruned:
            alike.setdefault(layer.pruned, []).append(layer.index)
    if alike:
        yield pruned_in_words(plan)
    most = limits.FILES_SHOWN.most
    for heads, indices in list(alike.items())[:most]:
        yield f"heads {format_indices(list(heads))} of layer {format_indices(indices)}"
    if len(alike) > most:
        yield f"and others of {len(alike) - most:,} more layers"


def pruned_in_words(plan: ConversionPlan) -> str:
    """What the query heads that go were chosen by."""
    importance = plan.importance
    if importance is None:
        return "the heads that were named"
    if importance.criterion == "weights":
        return "the least important by their weights alone; --calibration lets a text choose"
    tokens, text = importance.tokens, plan.request.calibration
    return f"the least important to the loss on {tokens:,} tokens of {text}"


def _in_these(plan: ConversionPlan) -> str:
    """Where not all layers change: which ones the factor is about."""
    indices = [layer.index for layer in plan.layers]
    whole = len(indices) == plan.layer_count
    return "" if whole else f" in layers {format_indices(indices)}"


def _steps(steps: Iterable[Step], kind: str) -> Iterator[str]:
    """Copies summed up, as of that `kind`; every other step's names with the layers together."""
    alike: dict[tuple[str, str, str], list[Step]] = {}
    for step in steps:
        copied = isinstance(step.action, Copy)
        name = f"{kind} tensors" if copied else _LAYER.sub("{}", step.name, count=1)
        key = (step.action.verb, name, "" if copied else _shapes(step))
        alike.setdefault(key, []).append(step)
    for (verb, name, shapes), same in sorted(alike.items()):
        size = format_bytes(sum(step.nbytes for step in same))
        numbers = [int(m[0]) for step in same if (m := _LAYER.search(step.name))]
        name = name if not shapes else name.replace("{}", "{" + format_indices(numbers) + "}", 1)
        count = f"{len(same)} " if not shapes else ""
        yield f"  {verb:<10} {count}{name}  {shapes}{', ' if shapes else ''}{size}"


def _shapes(step: Step) -> str:
    if not step.sources:
        return f"{list(step.shape)}"
    sources = f"{len(step.sources)} x " if len(step.sources) > 1 else ""
    pooled = f" ({step.action.role})" if isinstance(step.action, Pool) else ""
    return f"{sources}{list(step.sources[0].shape)} -> {list(step.shape)}{pooled}"
