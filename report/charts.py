"""Charts in an html page, drawn by plotly.js, which the page carries whole."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple

from headcount.model.text import printable

from .report import Chart

# Okabe and Ito's colours, which people tell apart whatever their eyes, on light and dark.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a000")
_RING = {"symbol": "circle-open", "size": 15, "color": "#808080", "line": {"width": 2}}
# Draws each chart in its place, in the page's own colours, and again when those change.
_DRAW = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = () => ({gridcolor: colour('--line'), linecolor: colour('--line'),
  zerolinecolor: colour('--line'), automargin: true});
const layoutOf = chart => ({...chart.layout, paper_bgcolor: 'rgba(0,0,0,0)',
  plot_bgcolor: 'rgba(0,0,0,0)', font: {color: colour('--ink'), family: 'system-ui, sans-serif'},
  margin: {l: 56, r: 16, t: 16, b: 48}, hovermode: 'x unified',
  hoverlabel: {bgcolor: colour('--band'), font: {color: colour('--ink')}},
  modebar: {bgcolor: 'rgba(0,0,0,0)', color: colour('--soft'), activecolor: colour('--ink')},
  legend: {orientation: 'h', y: -0.22, yanchor: 'top'},
  xaxis: {...chart.layout.xaxis, ...axis()}, yaxis: {...chart.layout.yaxis, ...axis()}});
// plotly.js reads tags and links in what it writes.
const quoted = (_, value) => typeof value !== 'string' ? value
  : value.replace(/&/g, '&amp;').replace(/</g, '&lt;');
const charts = [...document.querySelectorAll('script[type="application/json"]')].map(data =>
  [document.getElementById(data.dataset.chart), JSON.parse(data.textContent, quoted)]);
const settings = {responsive: true, displaylogo: false,
  modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]};
const draw = () => charts.forEach(([place, chart]) =>
  Plotly.react(place, chart.data, layoutOf(chart), settings));
draw();
dark.addEventListener('change', draw);
"""


class Drawing(NamedTuple):
    """What a page needs to draw its charts: an addition to its policy, and its scripts."""

    policy: str = ""
    scripts: tuple[str, ...] = ()


def is_available() -> bool:
    """Whether the extra `charts` is installed."""
    return find_spec("plotly") is not None


def drawing_of(charts: Sequence[Chart]) -> Drawing:
    """Nothing where there are no charts, or the extra is not installed."""
    if not charts or not is_available():
        return Drawing()
    from plotly.offline import get_plotlyjs

    scripts = (get_plotlyjs().replace("</script", "<\\/script"), _DRAW)
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return Drawing(
        policy=f"; script-src {hashes}; img-src data: blob:",
        scripts=tuple(f"<script>{script}</script>" for script in scripts),
    )


def _hash(script: str) -> str:
    return b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")


def figures_of(charts: Sequence[Chart], section: str) -> Iterator[str]:
    """The place of each chart of a section of the page, and its data; nothing without the extra:
    who is sent a page cannot install it."""
    if not is_available():
        return
    for chart in charts:
        key = escape(printable(f"{section}-{chart.key}"), quote=True)
        yield f"<h2>{escape(printable(chart.title))}</h2>"
        yield f'<div class="chart" id="{key}" role="img"'
        yield f' aria-label="{escape(printable(chart.title), quote=True)}"></div>'
        data = json.dumps(_figure(chart), allow_nan=False).replace("<", "\\u003c")
        yield f'<script type="application/json" data-chart="{key}">{data}</script>'


def _figure(chart: Chart) -> dict[str, Any]:
    """The chart as plotly.js takes it."""
    axis: dict[str, Any] = {"title": {"text": chart.x_title}}
    if chart.x_is_log:
        labels = [f"{int(place):,}" for place in chart.places]
        axis |= {"type": "log", "tickvals": list(chart.places), "ticktext": labels}
    layout: dict[str, Any] = {
        "xaxis": axis,
        "yaxis": {"title": {"text": chart.y_title}, "rangemode": "tozero"},
    }
    if chart.kind == "bar":
        layout["barmode"] = "stack"
    return {"data": [*_series(chart), *_limits(chart)], "layout": layout}


def _series(chart: Chart) -> Iterator[dict[str, Any]]:
    for series, colour in zip(chart.series, _COLOURS * len(chart.series), strict=False):
        trace: dict[str, Any] = {
            "name": printable(series.name),
            "x": list(chart.places),
            "y": [None if value is None else round(value, 4) for value in series.values],
        }
        if chart.kind == "bar":
            yield {**trace, "type": "bar", "marker": {"color": colour}}
            continue
        if series.is_mark:
            yield {**trace, "type": "scatter", "mode": "markers", "marker": _RING}
            continue
        stack = {"stackgroup": "one"} if chart.kind == "area" else {}
        mode = "lines" if chart.kind == "area" else "lines+markers"
        yield {**trace, **stack, "type": "scatter", "mode": mode, "line": {"color": colour}}


def _limits(chart: Chart) -> Iterator[dict[str, Any]]:
    ends = [chart.places[0], chart.places[-1]] if chart.places else []
    for name, value in chart.limits:
        yield {
            "name": printable(name),
            "x": ends,
            "y": [round(value, 4)] * len(ends),
            "type": "scatter",
            "mode": "lines",
            "line": {"dash": "dash", "width": 1.5},
        }
