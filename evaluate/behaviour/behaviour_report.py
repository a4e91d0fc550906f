"""What the probes found, as people read it."""

from collections.abc import Iterator

from headcount.report.report import Chart, Column, Fact, Series, Table

from .behaviour import Behaviour, Copying
from .verdict import Word

_EXCERPT = 60  # characters
_LOSS, _LOSS_BEFORE = Column("model", "Loss", "loss"), Column("against", "Original", "loss")
_WORDS = {
    "kept": "kept",
    "weakened": "weakened",
    "destroyed": "destroyed: what stood in the context before is no longer copied",
    "none": "the original makes next to nothing of a second copy: nothing to lose",
}


def behaviour_facts(behaviour: Behaviour) -> Iterator[Fact]:
    """The verdict, and what it rests on."""
    if behaviour.verdict is not None:
        words = _WORDS[behaviour.verdict]
        yield Fact(key="copying", title="Copying from context", value=words, detail=True)
    for fact in _copying_facts("induction", "Repeated random tokens", behaviour.induction):
        yield fact._replace(detail=True)
    yield from _copying_facts("repeated_text", "Repeated text", behaviour.repeated_text)
    score = behaviour.in_context
    if score is not None:
        before = "" if score.against is None else f", original {score.against:+.4f}"
        places = f"loss at tokens {_range(score.late)} less at {_range(score.early)}"
        scaled = ", scaled to the window" if score.scaled else ""
        yield Fact(
            key="in_context_score",
            title="In-context score",
            value=f"{score.model:+.4f}{before}",
            note=places + scaled,
            detail=True,
        )


def _copying_facts(key: str, title: str, copying: Copying | None) -> Iterator[Fact]:
    if copying is None:
        return
    model, original = copying.model, copying.against
    right, loss = f"{_percent(model.second_accuracy)}", f"{model.second_loss:.2f} nats"
    if original is not None:
        right = f"{_percent(original.second_accuracy)} -> {right}"
        loss = f"{original.second_loss:.2f} -> {loss}"
    yield Fact(
        key=key,
        title=title,
        value=f"{right} of the second copy ranked first",
        note=f"{loss} a token{_told(copying.verdict)}",
    )


def _told(verdict: Word | None) -> str:
    """What became of copying, in a word."""
    if verdict is None:
        return ""
    return ": nothing to lose" if verdict == "none" else f": copying {verdict}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _range(places: tuple[int, int]) -> str:
    first, last = places
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def behaviour_tables(behaviour: Behaviour) -> Iterator[Table]:
    """Columns of the original are there if the original is."""
    alone = behaviour.generations[0].against is None
    for table in (
        _copying_table(behaviour),
        _position_table(behaviour),
        _window_table(behaviour),
        _worst_table(behaviour),
        _first_token_table(behaviour),
        _generation_table(behaviour),
    ):
        if table.rows:
            yield _without_original(table) if alone else table


def _without_original(table: Table) -> Table:
    keep = [
        at
        for at, column in enumerate(table.columns)
        if not column.key.startswith(("against", "delta", "same"))
    ]
    return table._replace(
        columns=tuple(table.columns[at] for at in keep),
        rows=tuple(tuple(row[at] for at in keep) for row in table.rows),
    )


def _copying_table(behaviour: Behaviour) -> Table:
    rows: list[tuple[object, ...]] = []
    for what, copying in (
        ("random tokens", behaviour.induction),
        ("text", behaviour.repeated_text),
    ):
        if copying is not None:
            rows += _copy_rows(what, copying)
    for one in behaviour.recall:
        before = one.against
        rows.append(
            (
                f"pair, {one.distance:,} tokens back",
                one.pairs,
                100 * one.model.accuracy,
                None if before is None else 100 * before.accuracy,
                one.model.loss,
                None if before is None else before.loss,
            )
        )
    return Table(
        key="context",
        title="Copying and recall",
        columns=(
            Column("what", "What"),
            Column("scored", "Tokens", "tokens"),
            Column("accuracy", "First", "percent"),
            Column("against_accuracy", "Original", "percent"),
            _LOSS,
            Column("against_loss", "Original", "loss"),
        ),
        rows=tuple(rows),
    )


def _copy_rows(what: str, copying: Copying) -> Iterator[tuple[object, ...]]:
    model, before = copying.model, copying.against
    yield (
        f"{what}, first copy",
        model.scored,
        100 * model.first_accuracy,
        None if before is None else 100 * before.first_accuracy,
        model.first_loss,
        None if before is None else before.first_loss,
    )
    yield (
        f"{what}, second copy",
        model.scored,
        100 * model.second_accuracy,
        None if before is None else 100 * before.second_accuracy,
        model.second_loss,
        None if before is None else before.second_loss,
    )


def _position_table(behaviour: Behaviour) -> Table:
    rows = (
        (_range((one.first, one.last)), one.tokens, one.model, one.against, one.delta)
        for one in behaviour.by_position
    )
    return Table(
        key="loss_by_position",
        title="Loss by position",
        columns=(
            Column("position", "Tokens before"),
            Column("tokens", "Tokens", "tokens"),
            _LOSS,
            _LOSS_BEFORE,
            Column("delta", "Change", "loss"),
        ),
        rows=tuple(rows),
    )


def _window_table(behaviour: Behaviour) -> Table:
    return Table(
        key="windows",
        title=f"Losses of {behaviour.windows.count} windows, each column by itself",
        columns=(
            Column("share", "At most, of windows", "percent"),
            _LOSS,
            _LOSS_BEFORE,
            Column("delta", "Change", "loss"),
        ),
        rows=tuple(
            (100 * one.share, one.model, one.against, one.delta)
            for one in behaviour.windows.quantiles
        ),
    )


def _worst_table(behaviour: Behaviour) -> Table:
    return Table(
        key="worst_windows",
        title="Worst windows",
        columns=(
            Column("start", "From token", "tokens"),
            _LOSS,
            _LOSS_BEFORE,
            Column("delta", "Change", "loss"),
            Column("text", "Begins"),
        ),
        rows=tuple(
            (one.start, one.model, one.against, one.delta, _excerpt(one.text))
            for one in behaviour.windows.worst
        ),
    )


def _first_token_table(behaviour: Behaviour) -> Table:
    """The worst of them, the middle one and the best."""

    def loss(at: int) -> float:
        one = behaviour.first_tokens[at]
        return one.model if one.delta is None else one.delta

    order = sorted(range(len(behaviour.first_tokens)), key=loss, reverse=True)
    shown = dict.fromkeys([*order[:5], *order[len(order) // 2 :][:1], *order[-1:]])
    return Table(
        key="first_tokens",
        title=f"The same words behind {len(order)} first tokens: worst, middle, best",
        columns=(
            Column("text", "First token"),
            _LOSS,
            _LOSS_BEFORE,
            Column("delta", "Change", "loss"),
        ),
        rows=tuple(
            (f'"{one.text}"', one.model, one.against, one.delta)
            for one in (behaviour.first_tokens[at] for at in shown)
        ),
    )


def _generation_table(behaviour: Behaviour) -> Table:
    rows = []
    for one in behaviour.generations:
        rows.append(("prompt", f"…{one.prompt[-_EXCERPT:]}"))
        rows.append(("model", one.model))
        if one.against is not None:
            rows.append(("original", one.against))
    return Table(
        key="generations",
        title=f"Greedy continuations, up to {behaviour.generations[0].tokens} tokens",
        columns=(Column("who", "By"), Column("text", "Text")),
        rows=tuple(rows),
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"


def behaviour_charts(behaviour: Behaviour) -> Iterator[Chart]:
    """Loss by position, and recall by distance."""
    positions = behaviour.by_position
    yield Chart(
        key="loss_by_position",
        title="Loss by position",
        kind="line",
        x_title="tokens before, at most",
        y_title="nats a token",
        places=tuple(float(one.last) for one in positions),
        series=_series([one.model for one in positions], [one.against for one in positions]),
        x_is_log=True,
    )
    if behaviour.recall:
        found = behaviour.recall
        yield Chart(
            key="recall",
            title="Recall of a planted pair",
            kind="line",
            x_title="tokens since the pair",
            y_title="ranked first, %",
            places=tuple(float(one.distance) for one in found),
            series=_series(
                [100 * one.model.accuracy for one in found],
                [None if one.against is None else 100 * one.against.accuracy for one in found],
            ),
            x_is_log=True,
        )


def _series(model: list[float], original: list[float | None]) -> tuple[Series, ...]:
    known = [value for value in original if value is not None]
    both = (Series("model", tuple(model)), Series("original", tuple(known)))
    return both if known else both[:1]


def behaviour_notes(behaviour: Behaviour) -> Iterator[str]:
    cost = behaviour.cost
    share = cost.seconds / cost.scoring_seconds if cost.scoring_seconds else 0.0
    yield (
        f"Behaviour ({behaviour.size}): {cost.tokens:,} tokens more by each model, {share:.2f}x the"
        f" time of scoring the text. First: the token that came was ranked first."
    )
    for key, reason in behaviour.not_measured.items():
        yield f"Not measured: {key.replace('_', ' ')}: {reason}."


def behaviour_warnings(behaviour: Behaviour) -> Iterator[str]:
    """Lines for stderr: what the mean loss does not say."""
    for what, one in (
        ("random tokens", behaviour.induction),
        ("its own text", behaviour.repeated_text),
    ):
        if one is not None and one.against is not None and one.verdict == "destroyed":
            before, after = one.against.second_accuracy, one.model.second_accuracy
            yield (
                f"the conversion destroyed copying of {what} from the context: of the second copy"
                f" {_percent(before)} was ranked first, now {_percent(after)}; the mean loss does"
                " not show it"
            )
