"""The importance of heads as people read it: a map of layers and heads, and a row a layer."""

from collections.abc import Iterator, Sequence
from typing import Any

from headcount.report.report import Column, Fact, HeatCell, HeatMap, Report, Table
from headcount.running.asked_for import BUILTIN

from .importance import LayerImportance, ModelImportance
from .rank_correlation import spearman

SCHEMA_VERSION = 1
_HUE = 2
_LAYERS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="heads", title="Heads", unit="count"),
    Column(key="key_value_heads", title="K/V heads", unit="count"),
    Column(key="most", title="Most important"),
    Column(key="most_cost", title="Nats", unit="loss"),
    Column(key="least", title="Least important"),
    Column(key="least_cost", title="Nats", unit="loss"),
    Column(key="correlation", title="Estimate to exact", unit="similarity"),
)
_RECORDS = ("layer", "head", "key_value_head", "estimate", "exact")


def importance_report(found: ModelImportance) -> Report:
    """The whole report."""
    columns = _LAYERS if found.is_exact else _LAYERS[:-1]
    return Report(
        title=f"Importance of the heads of {found.id}",
        facts=tuple(_facts(found)),
        heat_maps=tuple(_maps(found)),
        tables=(
            Table(
                key="layers",
                title="Layers",
                columns=columns,
                rows=tuple(_row(layer)[: len(columns)] for layer in found.layers),
            ),
        ),
        notes=tuple(_notes(found)),
        document=importance_document(found),
        records=Table(
            key="heads",
            title="Heads",
            columns=tuple(Column(key=name, title=name) for name in _RECORDS),
            rows=tuple(_records(found)),
        ),
    )


def importance_document(found: ModelImportance) -> dict[str, Any]:
    """Stable keys, raw numbers (docs/pruning.md has the schema)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {"id": found.id, "model_type": found.model_type},
        "text": {"sha256": found.sha256, "tokens": found.tokens, "seed": found.seed},
        "rank_correlation": found.correlation,
        "layers": [
            {
                "index": layer.layer,
                "num_key_value_heads": layer.num_key_value_heads,
                "estimate": list(layer.estimate),
                "exact": None if layer.exact is None else list(layer.exact),
            }
            for layer in found.layers
        ],
        "seconds": round(found.seconds, 2),
    }


def _facts(found: ModelImportance) -> Iterator[Fact]:
    ranked = sorted(
        (score, layer.layer, head)
        for layer in found.layers
        for head, score in enumerate(_best(layer))
    )
    if ranked:
        cost, layer, head = ranked[-1]
        words = f"layer {layer}'s head {head} is worth most, {cost:.4f} nats a token"
        least, layer, head = ranked[0]
        note = f"layer {layer}'s head {head} least, {least:.4f}"
        yield Fact(key="verdict", title="Verdict", value=words, note=note)
    name = "the text that comes with headcount" if found.text == BUILTIN else found.text
    yield Fact(key="text", title="Text", value=f"{found.tokens:,} tokens of {name}")
    heads = sum(len(layer.estimate) for layer in found.layers)
    passes = "3 passes through one layer after the other" if heads else ""
    if found.is_exact:
        passes += f", and {heads:,} from a layer on"
    yield Fact(key="cost", title="Cost", value=passes, note=f"{found.seconds:.1f} s")
    if found.correlation is not None:
        yield Fact(
            key="rank_correlation",
            title="Estimate to exact",
            value=f"{found.correlation:.2f}",
            note=f"Spearman's rank correlation over {heads:,} heads",
        )


def _best(layer: LayerImportance) -> Sequence[float]:
    """What is known best."""
    return layer.estimate if layer.exact is None else layer.exact


def _row(layer: LayerImportance) -> tuple[object, ...]:
    scores = _best(layer)
    order = sorted(range(len(scores)), key=lambda head: -scores[head])
    return (
        layer.layer,
        len(scores),
        layer.num_key_value_heads,
        str(order[0]),
        scores[order[0]],
        str(order[-1]),
        scores[order[-1]],
        None if layer.exact is None else spearman(layer.exact, layer.estimate),
    )


def _maps(found: ModelImportance) -> Iterator[HeatMap]:
    kinds = [("estimate", "Estimate", [layer.estimate for layer in found.layers])]
    if found.is_exact:
        exact = [layer.exact or () for layer in found.layers]
        kinds.insert(0, ("exact", "Loss added by mean ablation", exact))
    for number, (key, title, rows) in enumerate(kinds):
        most = max((score for row in rows for score in row), default=0.0) or 1.0
        yield HeatMap(
            key=key,
            title=f"{title}, thousandths of a nat a token",
            row_title="Layer",
            rows=tuple(str(layer.layer) for layer in found.layers),
            cells=tuple(tuple(_cell(score, most) for score in row) for row in rows),
            in_text=number == 0,
        )


def _cell(score: float, most: float) -> HeatCell:
    """Shaded by the root of its share of the largest: a few heads are worth most of all."""
    thousandths = 1000 * score
    text = f"{thousandths:,.0f}" if abs(thousandths) >= 9.95 else f"{thousandths:.1f}"
    return HeatCell(text=text, share=max(0.0, score / most) ** 0.5, hue=_HUE)


def _records(found: ModelImportance) -> Iterator[tuple[object, ...]]:
    for layer in found.layers:
        size = len(layer.estimate) // layer.num_key_value_heads
        for head, estimate in enumerate(layer.estimate):
            exact = None if layer.exact is None else layer.exact[head]
            yield layer.layer, head, head // size, estimate, exact


def _notes(found: ModelImportance) -> Iterator[str]:
    yield (
        "Importance: the loss added, in nats a token, when a head's output before the o projection"
        " is its mean over the text. The estimate follows the loss along a gate on the head, to"
        " second order, of all heads in one pass back (Michel et al. 2019, Kwon et al. 2022)."
    )
    if not found.is_exact:
        yield "--exact also measures each head by itself, a pass a head."
