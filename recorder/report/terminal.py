"""The view in a terminal: the same data as the page, as tables and one line of time. Pure.

Text of a session is put into ``Text`` and never into markup, and has gone through ``visible``: it
can neither style itself nor move the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recorder.disciplines.rates import Rate as DisciplineRate
from recorder.report.view import (
    OUTCOMES,
    BatchView,
    CallView,
    Fact,
    FileView,
    Mark,
    Outcome,
    RequestView,
    SessionView,
)

REHEARSAL = "Rehearsal, not a measurement: a script answered, nothing was spent."
TRACK = 28
SHOWN_ARGUMENT = 400
SHOWN_LINES = 40

_STYLES: dict[Outcome, str] = {
    "recorded": "green",
    "capped": "yellow",
    "refused": "bold red",
    "unreadable": "bold red",
    "unfinished": "yellow",
    "not run": "dim",
}
_MARKS: dict[Mark, tuple[str, str]] = {
    "given": ("✓ given", "green"),
    "normalised": ("≈ normalised", "yellow"),
    "disagrees": ("✗ disagrees", "bold red"),
    "not joined": ("? not joined", "dim"),
}


def session_group(session: SessionView, *, everything: bool = False) -> Group:
    """One session: how it ended and why, its timeline, what it produced, what was measured.

    ``everything``: arguments and files to their end.
    """
    return Group(*_session_parts(session, everything))


def batch_group(view: BatchView) -> Group:
    """A batch: its lines, its rates, its egress map and a row a session."""
    return Group(*_batch_parts(view))


def _session_parts(session: SessionView, everything: bool) -> Iterator[RenderableType]:
    if session.rehearsal:
        yield Text(REHEARSAL, style="bold yellow")
    title = Text(session.name, style="bold")
    end = session.outcome if not session.code else f"{session.outcome}, exit {session.code}"
    title.append(f"  {end}", style=_STYLES[session.outcome])
    yield title
    about = [session.probe, session.tier and f"tier {session.tier}"]
    about.append(session.arm and f"arm {session.arm}")
    if any(about):
        yield Text(", ".join(part for part in about if part), style="dim")
    for reason in session.reasons:
        yield Text(f"refused: {reason}", style="red")
    for fault in session.faults:
        yield Text(f"fault: {fault}", style="red")
    yield _figures(session)
    yield _heading("Timeline")
    if session.calls or session.requests:
        yield _timeline(session, everything)
    else:
        yield Text("nothing was watched")
    yield from _judged(session)
    yield _heading("Produced")
    yield from _produced(session.files, everything)
    for fact in session.left:
        yield Text(f"{fact.name}: {fact.value}", style="dim")
    yield _heading("Measured")
    yield _facts(session.facts)


def _figures(session: SessionView) -> Text:
    answer = "-" if not session.answer_known else session.answer or "none"
    return Text("   ").join(
        Text.assemble((f"{name} ", "dim"), value)
        for name, value in (
            ("answer", answer),
            ("calls", _count(session.call_count)),
            ("turns", _count(session.turns)),
            ("allowed", _count(session.allowed)),
            ("refused", _count(session.refused)),
            ("time", _seconds(session.seconds)),
            ("cost", _cost(session)),
        )
    )


def _timeline(session: SessionView, everything: bool) -> Table:
    """Calls and requests in the order of time, each with its place on one track."""
    items: list[CallView | RequestView] = [*session.calls, *session.requests]
    stamped = [item.at for item in items if item.at is not None]
    ends = [_end(item) for item in items if item.at is not None]
    low, high = min([0.0, *stamped]), max([0.1, *ends])
    # What has no time stays after what the list holds before it.
    order = sorted(
        enumerate(items), key=lambda pair: (pair[1].at if pair[1].at is not None else high, pair[0])
    )
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column(f"{low:.1f} to {high:.1f} s", no_wrap=True)
    table.add_column("what")
    table.add_column("seen", no_wrap=True)
    for _, item in order:
        track = _track(item, low, high)
        at = "-" if item.at is None else f"{item.at:.2f}"
        if isinstance(item, CallView):
            table.add_row(at, track, _call(item, everything), _seen(item))
        else:
            table.add_row(at, track, _request(item), _decided(item))
    return table


def _end(item: CallView | RequestView) -> float:
    at = item.at or 0.0
    if isinstance(item, CallView):
        return max(at, item.end if item.end is not None else at)
    return at + (item.seconds or 0.0)


def _track(item: CallView | RequestView, low: float, high: float) -> Text:
    if item.at is None:
        return Text("")
    scale = (TRACK - 1) / (high - low)
    start, end = round((item.at - low) * scale), round((_end(item) - low) * scale)
    if isinstance(item, RequestView) and item.outcome != "allowed":
        return Text(" " * start + "x", style="red")
    style = "blue" if isinstance(item, RequestView) else "green"
    return Text(" " * start + "━" * max(1, end - start), style=style)


def _call(call: CallView, everything: bool) -> Text:
    argument = call.argument.replace("\n", "\\n")
    if not everything and len(argument) > SHOWN_ARGUMENT:
        argument = f"{argument[:SHOWN_ARGUMENT]}… ({len(argument) - SHOWN_ARGUMENT} more)"
    text = Text.assemble((call.tool, "bold"), " ", argument)
    if call.failed:
        text.append("  failed", style="red")
    if call.result:
        text.append(f"  {call.result[:19]}…", style="dim")
    if call.breaks:
        text.append(f"  breaks {', '.join(call.breaks)}", style="bold red")
    if call.finding:
        text.append(f"\n{call.finding}", style="red")
    return text


def _judged(session: SessionView) -> Iterator[RenderableType]:
    if session.verdicts is None and not session.not_judged:
        return
    yield _heading("Disciplines")
    if session.verdicts is None:
        yield Text(f"not judged: {session.not_judged}", style="yellow")
        return
    for each in session.breaks:
        where = "the whole session" if each.call is None else f"call {each.call}"
        yield Text.assemble(
            (each.discipline, "bold red"), f" {each.event}, {where}, {each.subject}"
        )
    counted = ", ".join(f"{count} {event}" for event, count in session.verdicts.items())
    yield Text(f"verdicts: {counted or 'none'}", style="dim")


def _disciplines(rates: Sequence[DisciplineRate]) -> Iterator[RenderableType]:
    if not rates:
        return
    yield _heading("Disciplines broken, by arm, with Wilson's 95 % intervals")
    table = _table("discipline", "arm", "broken", "interval", "not judged", words=2)
    for rate in rates:
        interval = "-"
        if rate.low is not None and rate.high is not None:
            interval = f"{rate.low * 100:.0f} to {rate.high * 100:.0f} %"
        table.add_row(
            Text(rate.discipline),
            Text(f"{rate.tier} {rate.arm}"),
            f"{rate.broken} of {rate.judged}",
            interval,
            str(rate.others or "-"),
        )
    yield table


def _seen(call: CallView) -> Text:
    said, style = _MARKS[call.mark]
    where = "" if call.request is None else f" in {call.request}"
    return Text(f"{said}{where}", style=style)


def _request(request: RequestView) -> Text:
    text = Text.assemble(("→ ", "dim"), request.host, (f" {request.asked}", "dim"))
    if request.detail:
        text.append(f" {request.detail}", style="dim")
    return text


def _decided(request: RequestView) -> Text:
    if request.outcome != "allowed":
        return Text(f"refused: {request.outcome}", style="red")
    number = "" if request.request is None else f" {request.request}"
    status = "" if request.status is None else f", {request.status}"
    return Text(f"allowed{number}{status}", style="blue")


def _produced(files: Sequence[FileView] | None, everything: bool) -> Iterator[RenderableType]:
    if files is None:
        yield Text("not watched, or not to its end")
        return
    if not files:
        yield Text("nothing")
    for file in files:
        line = Text.assemble((file.path, "bold"), f"  {file.kind}")
        if file.digest:
            line.append(f"  {file.digest}", style="dim")
        yield line
        if file.cites:
            yield Text(f"  cites {', '.join(file.cites)}")
        for finding in file.findings or ():
            yield Text(f"  finding: {finding}", style="red")
        if file.why:
            yield Text(f"  {file.why}", style="dim")
        shown = (file.diff or ()) if everything else (file.diff or ())[:SHOWN_LINES]
        more = len(file.diff or ()) - len(shown) + file.cut
        styles = {"+": "green", "-": "red", "@": "dim"}
        body = Text("\n").join(Text(row, style=styles.get(row[:1], "")) for row in shown)
        if shown:
            yield Padding(body, (0, 0, 0, 2))
        if more:
            yield Text(f"  {more} lines more", style="dim")


def _facts(facts: Sequence[Fact]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for fact in facts:
        table.add_row(Text(fact.name), Text(fact.value))
    return table


def _batch_parts(view: BatchView) -> Iterator[RenderableType]:
    if view.rehearsal:
        yield Text(REHEARSAL, style="bold yellow")
    yield Text(view.title, style="bold")
    for note in view.notes:
        yield Text(note, style="yellow")
    yield _heading("By line and arm")
    shown = [name for name in OUTCOMES if any(line.outcomes[name] for line in view.lines)]
    lines = _table("line", "arm", "sessions", *shown, "calls", "median time", "cost", words=2)
    for line in view.lines:
        unknown = f" + {line.unknown_costs} unknown" if line.unknown_costs else ""
        lines.add_row(
            Text(line.name),
            Text(line.arm),
            str(line.sessions),
            *(str(line.outcomes[name]) for name in shown),
            str(line.calls),
            _seconds(line.median_seconds),
            f"${line.dollars:.2f}{unknown}",
        )
    yield lines
    names = {line.number: line.name for line in view.lines}
    if view.rates:
        yield _heading("Rates, with Wilson's 95 % intervals")
        rates = _table("probe", "session", "line", "count", "interval", words=3)
        for rate in view.rates:
            interval = "-"
            if rate.low is not None and rate.high is not None:
                interval = f"{rate.low * 100:.0f} to {rate.high * 100:.0f} %"
            rates.add_row(
                Text(rate.probe),
                Text(rate.what),
                Text(names[rate.line]),
                f"{rate.count} of {rate.total}",
                interval,
            )
        yield rates
    yield from _disciplines(view.disciplines)
    if view.hosts:
        yield _heading("What the sessions tried to reach")
        hosts = _table("host", "sessions", *view.outcomes, words=1)
        for host in view.hosts:
            cells = [str(count or "·") for count in host.counts]
            hosts.add_row(Text(host.host), str(host.sessions), *cells)
        yield hosts
    yield _heading("Sessions")
    rows = _table(
        "session", "end", "answer", "calls", "allowed", "refused", "time", "cost", words=3
    )
    for session in view.sessions:
        end = session.outcome if not session.code else f"exit {session.code}"
        rows.add_row(
            Text(session.name),
            Text(end, style=_STYLES[session.outcome]),
            Text("-" if not session.answer_known else session.answer or "none"),
            _count(session.call_count),
            _count(session.allowed),
            _count(session.refused),
            _seconds(session.seconds),
            _cost(session),
        )
    yield rows
    yield from (
        Text(f"{session.name}: {reason}", style="red")
        for session in view.sessions
        for reason in (*session.reasons[:1], *session.faults[:1])
    )


def _heading(text: str) -> Padding:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _table(*headings: str, words: int) -> Table:
    """The first ``words`` columns hold words, the others numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if number < words else "right")
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _cost(session: SessionView) -> str:
    return "-" if session.outcome == "not run" else _dollars(session.dollars)


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"${Decimal(value):.4f}"
