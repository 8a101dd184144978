"""What a ledger says that ran: a fold over its lines. Pure.

``State.take`` takes one line after another, from a file that is read or as they are written, and
refuses one that cannot follow. Nothing is decided here: ``recorder.batch.resume`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import msgspec

from recorder.ledger.chain import LineFault, Reading
from recorder.ledger.entries import (
    BatchAccept,
    Cost,
    Estimated,
    Heartbeat,
    LedgerCut,
    Line,
    Reported,
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
    Totals,
    Unknown,
)

Standing = Literal["missing", "recorded", "failed", "unended", "again", "left-out"]
"""A session by its latest attempt: none; ended so; without an end; decided so by a person."""


class OrderError(Exception):
    """A line that cannot follow those before it; the message is the rule."""


@dataclass(slots=True)
class Attempt:
    """One attempt of a session, as far as the ledger goes."""

    start: SessionStart
    egress: SessionEgress | None = None
    end: SessionEnd | None = None
    decision: SessionDecision | None = None
    changed: SessionChange | None = None
    halted: str | None = None
    """The rule of the halt that it was."""

    @property
    def number(self) -> int:
        return self.start.attempt

    @property
    def cost(self) -> Cost:
        """What it cost, as far as it is known; ``Unknown`` for one that has not ended."""
        if self.end is not None:
            return self.end.cost
        if self.decision is not None:
            return self.decision.cost
        return Unknown() if self.egress is None else self.egress.cost

    @property
    def tokens(self) -> Tokens | None:
        told = self.end or self.egress
        return None if told is None else told.tokens

    @property
    def requests(self) -> int | None:
        """Requests that reached the provider; None where nothing decides it."""
        told = self.end or self.egress
        return None if told is None else told.requests

    @property
    def spent_nothing(self) -> bool:
        """Whether evidence says so: no request reached the provider, or it answered none of them
        with a message and the harness states no cost."""
        if self.requests == 0:
            return True
        counts = None if self.tokens is None else msgspec.structs.astuple(self.tokens)
        cost = self.cost
        return not isinstance(cost, Unknown) and cost.usd == 0 and counts == (0, 0, 0, 0)

    @property
    def standing(self) -> Standing:
        if self.end is not None:
            return "recorded" if self.end.outcome == "recorded" else "failed"
        if self.decision is not None:
            return "again" if self.decision.decision == "again" else "left-out"
        return "unended"


@dataclass(frozen=True, slots=True)
class Spending:
    """What attempts cost, each once, in dollars; ``unknown_calls`` have no figure, and
    ``unmeasured_calls`` no tokens."""

    attempts: int
    reported_usd: Decimal
    estimated_usd: Decimal
    unknown_calls: int
    unknown_models: tuple[str, ...]
    tokens: Tokens
    unmeasured_calls: int

    @property
    def usd(self) -> Decimal:
        return self.reported_usd + self.estimated_usd


def spending_of(attempts: Iterable[Attempt]) -> Spending:
    """The one sum over attempts: of a batch, or of any part of it."""
    reported = estimated = Decimal(0)
    models: set[str] = set()
    number = unknown = unmeasured = 0
    sums = [0, 0, 0, 0]
    for attempt in attempts:
        number += 1
        match attempt.cost:
            case Reported(usd=usd):
                reported += usd
            case Estimated(usd=usd):
                estimated += usd
            case Unknown(models=unpriced):
                unknown += 1
                models.update(unpriced)
        tokens = attempt.tokens
        if tokens is None:
            unmeasured += 1
            continue
        sums[0] += tokens.input
        sums[1] += tokens.output
        sums[2] += tokens.cache_write
        sums[3] += tokens.cache_read
    return Spending(
        attempts=number,
        reported_usd=reported,
        estimated_usd=estimated,
        unknown_calls=unknown,
        unknown_models=tuple(sorted(models)),
        tokens=Tokens(input=sums[0], output=sums[1], cache_write=sums[2], cache_read=sums[3]),
        unmeasured_calls=unmeasured,
    )


@dataclass
class State:
    """A batch as its ledger tells it. ``sessions``: every session's attempts, in order."""

    sessions: dict[str, list[Attempt]] = field(default_factory=dict)
    runs: list[RunStart] = field(default_factory=list)
    cuts: list[LedgerCut] = field(default_factory=list)
    halts: list[RunHalt] = field(default_factory=list)
    accepted: BatchAccept | None = None
    stopped: RunEnd | RunAbort | None = None
    """How the latest run ended; None where it runs, or was killed."""
    last_ts: int = 0
    lines: int = 0

    @property
    def run(self) -> int:
        """The latest run's number; 0 before the first."""
        return self.runs[-1].run if self.runs else 0

    @property
    def jobs(self) -> int:
        return self.runs[-1].jobs if self.runs else 0

    @property
    def canary(self) -> int | None:
        """How many sessions ran first and alone, by the latest run that asked for that."""
        return next((run.canary for run in reversed(self.runs) if run.canary), None)

    def latest(self, session: str) -> Attempt | None:
        attempts = self.sessions.get(session)
        return attempts[-1] if attempts else None

    def standing(self, session: str) -> Standing:
        attempt = self.latest(session)
        return "missing" if attempt is None else attempt.standing

    def attempts(self) -> Iterator[Attempt]:
        for attempts in self.sessions.values():
            yield from attempts

    def unended(self) -> tuple[Attempt, ...]:
        """The latest attempts that have neither an end nor a decision."""
        latest = (attempts[-1] for attempts in self.sessions.values())
        return tuple(attempt for attempt in latest if attempt.standing == "unended")

    def take(self, line: Line) -> None:
        """Go on with a line. Raises ``OrderError``."""
        if not self.runs and not isinstance(line, RunStart | LedgerCut):
            raise OrderError(f"{_kind(line)} stands before any run:start")
        match line:
            case RunStart():
                self.runs.append(line)
                self.halts.clear()
                self.stopped = None
            case LedgerCut():
                self.cuts.append(line)
            case SessionStart():
                self._start(line)
            case SessionEgress():
                attempt = self._attempt(line)
                _refuse_another(line, attempt.egress)
                attempt.egress = line
            case SessionChange():
                attempt = self._attempt(line)
                _refuse_another(line, attempt.changed)
                attempt.changed = line
            case SessionEnd():
                self._attempt(line).end = line
            case SessionDecision():
                self._attempt(line).decision = line
            case RunHalt():
                self.halts.append(line)
                met = None if line.session is None else self.latest(line.session)
                if met is not None:
                    met.halted = line.rule
            case RunEnd() | RunAbort():
                self.stopped = line
            case BatchAccept():
                self.accepted = line
            case Heartbeat():
                pass
        self.last_ts = line.ts
        self.lines += 1

    def _start(self, line: SessionStart) -> None:
        attempts = self.sessions.get(line.session, [])
        if line.attempt != len(attempts) + 1:
            raise OrderError(
                f"session:start is of attempt {line.attempt} of {line.session}, after "
                f"{len(attempts)}"
            )
        if attempts and attempts[-1].standing in ("recorded", "left-out"):
            raise OrderError(
                f"session:start of {line.session}, which is {attempts[-1].standing} already"
            )
        self.sessions[line.session] = attempts
        attempts.append(Attempt(line))

    def _attempt(
        self, line: SessionEgress | SessionChange | SessionEnd | SessionDecision
    ) -> Attempt:
        attempt = self.latest(line.session)
        if attempt is None or attempt.number != line.attempt:
            now = "none was started" if attempt is None else f"the latest is {attempt.number}"
            raise OrderError(
                f"{_kind(line)} is of attempt {line.attempt} of {line.session}, and {now}"
            )
        if attempt.standing != "unended":
            raise OrderError(
                f"{_kind(line)} is of attempt {line.attempt} of {line.session}, which is "
                f"{attempt.standing} already"
            )
        return attempt

    def totals(self, jobs: int | None = None) -> Totals:
        """The batch as it stands; ``jobs``: its sessions in all, the latest run's where None.

        An attempt that reached no provider has spent nothing, whatever became of it.
        """
        count = dict.fromkeys(("recorded", "failed", "left-out", "unended", "again"), 0)
        unspent = 0
        for attempts in self.sessions.values():
            latest = attempts[-1]
            count[latest.standing] += 1
            unspent += latest.standing == "unended" and latest.requests == 0
        spending = spending_of(self.attempts())
        total = self.jobs if jobs is None else jobs
        over = count["recorded"] + count["failed"] + count["left-out"]
        uncertain = count["unended"] - unspent
        return Totals(
            recorded=count["recorded"],
            failed=count["failed"],
            left_out=count["left-out"],
            uncertain=uncertain,
            remaining=total - over - uncertain,
            attempts=spending.attempts,
            usd=spending.usd,
            reported_usd=spending.reported_usd,
            estimated_usd=spending.estimated_usd,
            unknown_calls=spending.unknown_calls,
            unknown_models=spending.unknown_models,
            tokens=spending.tokens,
            unmeasured_calls=spending.unmeasured_calls,
        )


def fold(lines: Iterable[Line]) -> State:
    """The state after all of them. Raises ``OrderError``."""
    state = State()
    for line in lines:
        state.take(line)
    return state


def fold_reading(reading: Reading) -> tuple[State, tuple[LineFault, ...]]:
    """The state, as far as the lines follow, and every line that does not."""
    state = State()
    faults = list(reading.faults)
    for line in reading.lines:
        try:
            state.take(line)
        except OrderError as error:
            faults.append(LineFault(line.sequence, str(error)))
    return state, tuple(faults)


def _kind(line: Line) -> str:
    return str(line.__struct_config__.tag)


def _refuse_another(line: SessionEgress | SessionChange, before: Line | None) -> None:
    if before is not None:
        raise OrderError(f"{_kind(line)} of attempt {line.attempt} of {line.session} stands twice")
