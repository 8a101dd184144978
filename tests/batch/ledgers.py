"""Ledgers for tests: lines as a driver writes them, stamped in order."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from msgspec import structs

from recorder.batch.pinned import PinnedLine
from recorder.ledger.entries import (
    Billing,
    Caps,
    Cost,
    Line,
    Reported,
    RunStart,
    SessionEnd,
    SessionStart,
    Tokens,
    Why,
)
from recorder.ledger.state import State, fold

TOKENS = Tokens(input=10, output=20, cache_write=30, cache_read=40)
CENT = Decimal("0.01")


def run_start(jobs: int = 6, *, batch: str | None = None, **tiers: str) -> RunStart:
    caps = Caps(
        batch=None if batch is None else Decimal(batch),
        session=None,
        tiers={tier: Decimal(dollars) for tier, dollars in tiers.items()},
    )
    return RunStart(recorder="0", batch="sha256:0", jobs=jobs, parallel=1, caps=caps)


def start(
    session: str, attempt: int = 1, *, reserved: str | None = "0.50", why: Why = "first"
) -> SessionStart:
    return SessionStart(
        session=session,
        attempt=attempt,
        why=why,
        slot=0,
        uid=1,
        reserved=None if reserved is None else Decimal(reserved),
    )


def end(
    session: str,
    attempt: int = 1,
    *,
    code: int = 0,
    cost: Cost | None = None,
    tokens: Tokens | None = TOKENS,
    requests: int | None = 3,
    billing: Billing = "api",
    failure: str | None = None,
) -> SessionEnd:
    return SessionEnd(
        session=session,
        attempt=attempt,
        outcome="refused" if code else "recorded",
        code=code,
        capped=False,
        failure=failure,
        cost=Reported(Decimal("0.25")) if cost is None else cost,
        billing=billing,
        tokens=tokens,
        requests=requests,
        duration_ms=1000,
        files={},
    )


def stamped(lines: Iterable[Line], *, began: int = 1_000_000, every: int = 1000) -> list[Line]:
    """The lines as they would stand in a file: ``every`` milliseconds one."""
    run = 0
    found: list[Line] = []
    for number, line in enumerate(lines, start=1):
        run += isinstance(line, RunStart)
        found.append(structs.replace(line, ts=began + number * every, run=run, sequence=number))
    return found


def state_of(*lines: Line, began: int = 1_000_000, every: int = 1000) -> State:
    return fold(stamped(lines, began=began, every=every))


def pinned_line(tier: str, arm: str) -> PinnedLine:
    return PinnedLine(
        tier=tier,
        arm=arm,
        probes=("PROBE-A",),
        repetitions=1,
        lock="",
        tree="",
        selection="",
        read_set="",
        seed=0,
        harness="",
        manifest="",
    )
