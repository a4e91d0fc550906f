"""A sweep as people read it: a line a conversion, a bar for its loss, a chart for the page."""

from collections.abc import Iterator
from dataclasses import asdict
from math import log10

from headcount.report.report import Chart, Column, Fact, Report, Series, Table

from ..evaluation_report import text_facts
from .sweep import Sweep
from .trial import Measured, frontier

SCHEMA_VERSION = 1
_LATENT = Column(key="latent", title="Latent")
_COLUMNS = (
    Column(key="kv_heads", title="K/V heads", unit="count"),
    _LATENT,
    Column(key="method", title="Method"),
    Column(key="cache", title="Cache", unit="bytes"),
    Column(key="share", title="Of the original", unit="percent", drop=1),
    Column(key="loss", title="Loss", unit="loss", drop=2),
    Column(key="delta_loss", title="Against it"),
    Column(key="kl_divergence", title="KL", unit="loss", drop=1),
    Column(key="top1_agreement", title="Top-1 agreement", unit="percent", drop=3),
    Column(key="frontier", title="Frontier"),
    Column(key="bar", title="Loss added, log scale", drop=4),
)
_LAYER_COLUMNS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="delta_loss", title="Loss added"),
    Column(key="key_error", title="K lost", unit="percent"),
    Column(key="value_error", title="V lost", unit="percent"),
)
_WIDTH = 24
_LEAST = 1e-3  # nats a token; what adds less has no bar


def sweep_report(sweep: Sweep) -> Report:
    """Table, chart and JSON of all trials."""
    return Report(
        title=f"What a smaller cache costs {sweep.source}",
        facts=tuple(_facts(sweep)),
        tables=(_table(sweep), *_layer_tables(sweep)),
        notes=tuple(_notes(sweep)),
        document=_document(sweep),
        charts=tuple(_charts(sweep)),
    )


def _facts(sweep: Sweep) -> Iterator[Fact]:
    if sweep.budget is None:
        yield Fact(key="verdict", title="Frontier", value=_frontier(sweep))
    yield from text_facts(sweep.settings, sweep.tokens)
    if sweep.budget is not None:
        yield Fact(
            key="verdict",
            title="Smallest cache within the budget",
            value=_name(sweep.chosen) if sweep.chosen else "none: nothing was written",
            note=f"loss may rise by {sweep.budget:g} nats a token",
            tone="good" if sweep.chosen else "bad",
        )


def _frontier(sweep: Sweep) -> str:
    """What each trial on it costs, the largest cache first."""
    ordered = sorted(frontier(sweep.trials), key=lambda one: one.cache_bytes, reverse=True)
    return "; ".join(
        f"{_share(one, sweep):.3g} % of the cache {one.delta_loss:+.3f} nats ({_name(one)})"
        for one in ordered
    )


def _name(one: Measured) -> str:
    assert one.trial is not None
    kept = f"{one.num_key_value_heads} K/V heads" if one.latent is None else one.latent.text
    return f"{kept} by {one.trial.method}"


def _table(sweep: Sweep) -> Table:
    best = frontier(sweep.trials)
    rows = tuple(_row(one, sweep, best) for one in (sweep.original, *sweep.trials))
    columns: tuple[Column, ...] = _COLUMNS
    skipped = _COLUMNS.index(_LATENT)
    if not any(one.latent for one in sweep.trials):
        columns = (*columns[:skipped], *columns[skipped + 1 :])
        rows = tuple((*row[:skipped], *row[skipped + 1 :]) for row in rows)
    return Table(key="trials", title="Trials", columns=columns, rows=rows)


def _layer_tables(sweep: Sweep) -> Iterator[Table]:
    if sweep.layers:
        yield Table(
            key="layers",
            title="Each layer alone",
            columns=_LAYER_COLUMNS,
            rows=tuple(
                (
                    layer.index,
                    f"{layer.delta_loss:+.4f}",
                    100 * layer.key_error,
                    100 * layer.value_error,
                )
                for layer in sweep.layers
            ),
        )


def _notes(sweep: Sweep) -> Iterator[str]:
    yield (
        f"Cache of one sequence after {sweep.original.cache_tokens:,} tokens. Losses are in nats a"
        " token; KL is original || result. Frontier: none with as small a cache adds less."
    )
    yield from _reading(sweep)
    if sweep.layers:
        fewest = min(one.num_key_value_heads for one in sweep.trials if one.num_key_value_heads)
        yield (
            f"Each layer alone: {fewest} K/V heads by --quality fast in that layer, from the"
            " weights alone, the others as they were. Layers that add much are worth more heads"
            " (--kv-heads 0-1:8,2-5:4)."
        )


def _reading(sweep: Sweep) -> Iterator[str]:
    """Which of the methods read text, and which the weights alone."""
    trials = [one.trial for one in sweep.trials if one.trial]
    fitted = {t.method: t.plan for t in trials if t.calibrated}
    others = dict.fromkeys(t.method for t in trials if not t.calibrated)
    if others:
        yield f"From the weights alone: {', '.join(others)}."
    for plan in [*fitted.values()][:1]:
        read = plan.importance.tokens if plan.importance else 0
        count = read if plan.rewriting is None else plan.rewriting.tokens_read
        tokens = f"{count:,} tokens of {plan.request.calibration}"
        yield f"By {tokens}: {', '.join(fitted)}."


def _row(one: Measured, sweep: Sweep, best: list[Measured]) -> tuple[object, ...]:
    return (
        one.num_key_value_heads,
        None if one.latent is None else one.latent.text,
        "original" if one.trial is None else one.trial.method,
        one.cache_bytes,
        _share(one, sweep),
        one.loss,
        f"{one.delta_loss:+.4f}",
        one.kl_divergence,
        100 * one.top1_agreement,
        "*" if one in best else "",
        _bar(one, sweep),
    )


def _share(one: Measured, sweep: Sweep) -> float:
    whole = sweep.original.cache_bytes
    return 100 * one.cache_bytes / whole if whole else 0.0


def _bar(one: Measured, sweep: Sweep) -> str:
    """As long as the logarithm of the loss that was added, up to the worst of the sweep."""
    worst = max(trial.delta_loss for trial in sweep.trials)
    if one.delta_loss <= _LEAST or worst <= _LEAST:
        return ""
    part = log10(one.delta_loss / _LEAST) / log10(worst / _LEAST)
    return "#" * max(1, round(_WIDTH * part))


def _charts(sweep: Sweep) -> Iterator[Chart]:
    names = dict.fromkeys(map(_series, sweep.trials))
    by_share = sorted(sweep.trials, key=lambda one: one.cache_bytes)
    places = tuple(dict.fromkeys(_share(one, sweep) for one in by_share))
    for key, title, scale in (
        ("delta_loss", "Loss added, nats a token", 1),
        ("top1_agreement", "Top-1 agreement, %", 100),
    ):
        found = {(_series(t), _share(t, sweep)): scale * getattr(t, key) for t in by_share}
        yield Chart(
            key=key,
            title=title,
            kind="line",
            x_title="cache, % of the original",
            y_title=title,
            places=places,
            series=tuple(
                Series(name=name, values=tuple(found.get((name, place)) for place in places))
                for name in names
            ),
        )


def _series(one: Measured) -> str:
    """The line of a chart that a trial lies on."""
    assert one.trial is not None
    kept = {None: "", "latent": "latents, ", "mla": "MLA, "}
    return kept[None if one.latent is None else one.latent.home] + one.trial.method


def _document(sweep: Sweep) -> dict[str, object]:
    best = frontier(sweep.trials)
    return {
        "schema_version": SCHEMA_VERSION,
        "source": sweep.source,
        "text": sweep.settings.text,
        "tokens": sweep.tokens,
        "settings": asdict(sweep.settings),
        "original": sweep.original.document(),
        "trials": [{**one.document(), "frontier": one in best} for one in sweep.trials],
        "layers": [layer.document() for layer in sweep.layers],
        "max_delta_loss": sweep.budget,
        "chosen": sweep.chosen.document() if sweep.chosen else None,
    }
