"""A ledger of every kind of line, written by the journal itself."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from pathlib import Path

from msgspec import structs

from recorder.ledger.entries import (
    BatchAccept,
    Caps,
    Estimated,
    FileChange,
    Heartbeat,
    Line,
    RunAbort,
    RunEnd,
    RunHalt,
    RunStart,
    SessionChange,
    SessionDecision,
    SessionEgress,
    SessionEnd,
    SessionStart,
    Tokens,
    Unknown,
)
from recorder.ledger.journal import open_journal
from recorder.ledger.state import State
from tests.batch import ledgers

DIGEST = "sha256:" + "3" * 64
TOKENS = Tokens(input=1, output=2, cache_write=3, cache_read=4)
CAPS = Caps(batch=Decimal(5), session=None, tiers={"campaign": Decimal("2.50")})


def started(session: str, attempt: int = 1) -> SessionStart:
    return structs.replace(ledgers.start(session, attempt), uid=1000)


def ended(session: str, attempt: int = 1, code: int = 0) -> SessionEnd:
    end = ledgers.end(session, attempt, code=code, tokens=TOKENS, requests=2)
    return structs.replace(end, duration_ms=1500, files={"raw.jsonl": DIGEST})


def run_start(jobs: int = 3) -> RunStart:
    return RunStart(recorder="0.1.0", batch=DIGEST, jobs=jobs, parallel=1, caps=CAPS)


def every_kind() -> list[Line]:
    """A run that was killed and one that ended, in an order that a driver writes."""
    change = SessionChange(
        session="a", attempt=1, files=(FileChange(path="reports/\u00fc.md", added=3, removed=0),)
    )
    said = SessionEgress(
        session="b",
        attempt=1,
        sha256=DIGEST,
        whole=False,
        requests=1,
        cost=Estimated(Decimal("0.10"), ("claude-sonnet-4-5",)),
        tokens=None,
    )
    decided = SessionDecision(
        session="b", attempt=1, decision="leave-out", reason="seen", cost=said.cost
    )
    halted = RunHalt(rule="usage-limit", session="c", until=1_800_000_000_000)
    return [
        run_start(),
        started("a"),
        Heartbeat(running=1),
        change,
        ended("a"),
        BatchAccept(sessions=("a",), reason=None),
        started("b"),
        RunAbort(signal="SIGTERM"),
        said,
        decided,
        run_start(),
        started("c"),
        ended("c", code=10),
        halted,
        RunEnd(code=17, totals=State().totals(3)),
    ]


def write(directory: Path, lines: list[Line]) -> bytes:
    """The ledger of a directory with those lines, at a clock that counts."""
    ticks = count(1_700_000_000_000)
    with open_journal(directory, lambda: next(ticks)) as journal:
        for line in lines:
            journal.append(line)
    return (directory / "ledger.jsonl").read_bytes()


UNKNOWN = Unknown()
