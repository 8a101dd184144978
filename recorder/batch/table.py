"""The table that a batch ends with, one row a session."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table

from recorder.batch.assembly import Kept
from recorder.batch.money import Money
from recorder.ledger.entries import Totals

SHOWN = 60
"""Longer than a page is no summary: then the sessions that did not record are shown."""


def shown_rows(rows: Sequence[tuple[str, Kept | None]]) -> Sequence[tuple[str, Kept | None]]:
    """The sessions that the table at the end shows."""
    if len(rows) <= SHOWN:
        return rows
    failed = [(name, kept) for name, kept in rows if kept is not None and kept.event is None]
    return failed[:SHOWN]


def summary(totals: Totals, money: Money) -> Iterator[str]:
    """The batch in a few lines: its sessions, then its money by tier and arm and in all."""
    counts = (
        (totals.recorded, "recorded"),
        (totals.failed, "failed"),
        (totals.left_out, "left out"),
        (totals.uncertain, "uncertain"),
        (totals.remaining, "remain"),
    )
    yield "sessions: " + ", ".join(f"{count} {name}" for count, name in counts if count)
    if len(money.arms) > 1:
        for arm in money.arms:
            yield f"money {arm.name}: {arm.said()}"
    yield f"money in all: {money.batch.said()}"


def session_table(rows: Sequence[tuple[str, Kept | None]]) -> Table:
    """Name, exit, calls, answer, requests allowed and refused, seconds, cost."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", no_wrap=True)
    for heading in ("exit", "calls", "answer", "allowed", "refused", "seconds", "cost"):
        table.add_column(heading, justify="left" if heading == "answer" else "right")
    for name, kept in rows:
        if kept is None:
            table.add_row(name, "-", "-", "-", "-", "-", "-", "-")
            continue
        evidence = kept.evidence
        answer = "-"
        if kept.event is not None:
            answer = kept.event.answer if isinstance(kept.event.answer, str) else "null"
        cost = "unknown" if kept.identity is None else f"${kept.identity.cost_cents / 100:.2f}"
        seconds = sum(
            value
            for key, value in evidence.seconds.items()
            if value is not None and key in ("create", "start", "session", "collect")
        )
        table.add_row(
            name,
            str(evidence.refusal.code if evidence.refusal else 0),
            str(evidence.counts.calls),
            answer,
            str(sum(asked.count for asked in evidence.egress.allowed)),
            str(sum(asked.count for asked in evidence.egress.refused)),
            f"{seconds:.1f}",
            cost,
        )
    return table


def print_table(table: RenderableType) -> None:
    """On standard output; where that is no terminal, 160 wide and with no space at a line's end."""
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    plain = Console(width=160, file=io.StringIO())
    with plain.capture() as printed:
        plain.print(table)
    for line in printed.get().removesuffix("\n").split("\n"):
        print(line.rstrip(" "))
