"""A sweep as people read it: a line a conversion, and charts for the page."""

from collections.abc import Callable, Iterator
from dataclasses import asdict

from headcount.report.report import Chart, Column, Fact, Report, Series, Table

from ..evaluation_report import text_facts
from .sweep import Sweep
from .trial import Measured, frontier

SCHEMA_VERSION = 1
_MEASURED = (
    Column(key="method", title="Method"),
    Column(key="cache", title="Cache", unit="bytes"),
    Column(key="share", title="Of the original", unit="percent", drop=1),
    Column(key="kl_divergence", title="KL", unit="loss"),
    Column(key="top1_agreement", title="Top-1", unit="percent"),
    Column(key="loss", title="Loss", unit="loss", drop=2),
    Column(key="delta_loss", title="Loss added"),
    Column(key="frontier", title="Frontier"),
)
_COLUMNS = (Column(key="kept", title="Kept"), *_MEASURED)
_RECORDS = (
    Column(key="kv_heads", title="K/V heads", unit="count"),
    Column(key="latent", title="Latent"),
    *_MEASURED,
)
_LAYER_COLUMNS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="delta_loss", title="Loss added"),
    Column(key="key_error", title="K lost", unit="percent"),
    Column(key="value_error", title="V lost", unit="percent"),
)


def sweep_report(sweep: Sweep) -> Report:
    """Table, chart and JSON of all trials."""
    return Report(
        title=f"What a smaller cache costs {sweep.source}",
        facts=tuple(_facts(sweep)),
        tables=(_table(sweep), *_layer_tables(sweep)),
        notes=(*_notes(sweep), *sweep.warnings),
        document=_document(sweep),
        records=_records(sweep),
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
            note=f"loss added and KL divergence of at most {sweep.budget:g} nats a token",
            tone="good" if sweep.chosen else "bad",
        )


def _frontier(sweep: Sweep) -> str:
    """How far each trial on it diverges, the largest cache first."""
    ordered = sorted(frontier(sweep.trials), key=lambda one: one.cache_bytes, reverse=True)
    return "; ".join(
        f"{_share(one, sweep):.3g} % of the cache KL {one.kl_divergence:.4f} ({_name(one)})"
        for one in ordered
    )


def _name(one: Measured) -> str:
    assert one.trial is not None
    kept = f"{one.num_key_value_heads} K/V heads" if one.latent is None else one.latent.text
    return f"{kept} by {one.trial.method}"


def _table(sweep: Sweep) -> Table:
    return _trials(sweep, _COLUMNS, lambda one: (_kept(one),))


def _records(sweep: Sweep) -> Table:
    """The same, with what was asked for in columns of its own."""
    return _trials(
        sweep,
        _RECORDS,
        lambda one: (one.num_key_value_heads, one.latent.text if one.latent else None),
    )


def _trials(
    sweep: Sweep, columns: tuple[Column, ...], kept: Callable[[Measured], tuple[object, ...]]
) -> Table:
    """A row each, of what is `kept` and what was measured."""
    best, rows = frontier(sweep.trials), (sweep.original, *sweep.trials)
    return Table(
        key="trials",
        title="Trials",
        columns=columns,
        rows=tuple((*kept(one), *_measured(one, sweep, best)) for one in rows),
    )


def _kept(one: Measured) -> str:
    if one.latent is not None:
        return one.latent.text.replace(":", " ")
    count = one.num_key_value_heads
    return f"{count} head" if count == 1 else f"{count} heads"


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
        " token; KL is original || result, and Top-1 the share of tokens that both rank first."
        " Frontier: none with as small a cache has a smaller KL divergence."
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


def _measured(one: Measured, sweep: Sweep, best: list[Measured]) -> tuple[object, ...]:
    """The values of `_MEASURED`."""
    return (
        "original" if one.trial is None else one.trial.method,
        one.cache_bytes,
        _share(one, sweep),
        one.kl_divergence,
        100 * one.top1_agreement,
        one.loss,
        f"{one.delta_loss:+.4f}",
        "*" if one in best else "",
    )


def _share(one: Measured, sweep: Sweep) -> float:
    whole = sweep.original.cache_bytes
    return 100 * one.cache_bytes / whole if whole else 0.0


def _charts(sweep: Sweep) -> Iterator[Chart]:
    """What is lost against the bytes of a token; marks are around the same trials in each."""
    whole = _token_bytes(sweep.original)
    by_size = sorted(sweep.trials, key=_token_bytes)
    places = tuple(dict.fromkeys(map(_token_bytes, by_size)))
    for key, title, scale in (
        ("kl_divergence", "KL divergence, nats a token", 1),
        ("delta_loss", "Loss added, nats a token", 1),
        ("top1_agreement", "Top-1 agreement, %", 100),
    ):
        lines: dict[str, dict[float, float]] = {name: {} for name in map(_series, sweep.trials)}
        marks = {_token_bytes(one): scale * getattr(one, key) for one in frontier(by_size)}
        for one in by_size:
            lines[_series(one)][_token_bytes(one)] = scale * getattr(one, key)
        yield Chart(
            key=key,
            title=title,
            kind="line",
            x_title=f"cache, bytes a token (the original: {whole:,.0f})",
            y_title=title,
            places=places,
            series=(
                *(Series(name=name, values=_at(places, line)) for name, line in lines.items()),
                Series(name="frontier", values=_at(places, marks), is_mark=True),
            ),
        )


def _at(places: tuple[float, ...], line: dict[float, float]) -> tuple[float | None, ...]:
    return tuple(line.get(place) for place in places)


def _token_bytes(one: Measured) -> float:
    return one.cache_bytes / one.cache_tokens


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
        "warnings": list(sweep.warnings),
    }
