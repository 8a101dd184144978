"""How a batch stands, from its ledger alone: for the shell it runs in and for any other. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Literal

import msgspec

from recorder.ledger.entries import RunAbort, RunEnd, RunHalt, Totals
from recorder.ledger.state import Attempt, State
from recorder.refusal import ExitCode

SILENT_SECONDS = 150.0
"""Two heartbeats and a half: a driver that wrote nothing for so long is not there any more."""
REFUSALS = 3

# docs/batch.md has the same as a table.
_GOING_ON: Mapping[int, str] = {
    ExitCode.LEFT: "run the same command again",
    ExitCode.CAP: "no cap lets more start, or the disk is full",
    ExitCode.FAILED: "sessions failed: `--retry failed` runs them again",
    ExitCode.UNCERTAIN: "sessions may have spent: see `recorder batch reconcile`",
}

Phase = Literal["planned", "running", "halted", "silent", "ended", "aborted"]
"""``planned``: nothing ran yet. ``halted``: the driver waits, or ended so. ``silent``: it wrote
neither an end nor a heartbeat, so it was killed."""


class Running(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    session: str
    attempt: int
    seconds: float


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that failed last: its exit code and the harness's own word, where it said one."""

    session: str
    attempt: int
    code: int
    failure: str | None


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sessions, money and time. ``remaining`` are to run still, with those that run.

    ``uncertain`` have no end and no driver that runs them. ``cap`` is the batch's own, in dollars;
    ``reserved`` is held for what runs. ``per_hour`` are ended sessions of the latest run, and
    ``seconds_left`` what is left at that rate; None before one ended. ``until`` is when a halt
    passes, in seconds since 1970. ``code``: what the latest run ended with. ``canary``: so many
    sessions ran first and wait to be accepted; None where none do.
    """

    phase: Phase
    run: int
    jobs: int
    recorded: int
    failed: int
    left_out: int
    uncertain: int
    remaining: int
    running: tuple[Running, ...]
    totals: Totals
    cap: Decimal | None
    reserved: Decimal
    per_hour: float | None
    seconds_left: float | None
    refusals: tuple[Refusal, ...]
    halts: tuple[str, ...]
    until: float | None
    code: int | None
    canary: int | None

    @property
    def over(self) -> bool:
        """Whether no driver is at it any more."""
        return self.code is not None or self.phase in ("ended", "aborted", "silent")

    def said(self) -> Iterator[str]:
        """The whole status, a line at a time."""
        yield self.sessions()
        yield self.money()
        if (time := self.time()) is not None:
            yield time
        for running in self.running:
            yield f"running: {running.session} for {duration(running.seconds)}"
        for refusal in self.refusals:
            yield f"failed: {refusal.session} with exit {refusal.code}{_word(refusal.failure)}"
        for halt in self.halts:
            yield f"halted: {halt}"
        if (going_on := self.going_on()) is not None:
            yield going_on

    def going_on(self) -> str | None:
        """What the latest run ended with and what goes on from there; None where nothing is."""
        if not self.code:
            return None
        what = _GOING_ON.get(self.code)
        if self.code == ExitCode.LEFT and self.canary is not None:
            what = f"the canary of {self.canary} waits for `recorder batch accept`"
        return f"exit {self.code}" + ("" if what is None else f": {what}")

    def sessions(self) -> str:
        done = self.recorded + self.failed + self.left_out
        parts = [f"{self.phase}: {done} of {self.jobs} sessions over"]
        parts += [
            f"{count} {name}"
            for count, name in (
                (self.recorded, "recorded"),
                (self.failed, "failed"),
                (self.left_out, "left out"),
                (self.uncertain, "uncertain"),
                (len(self.running), "running"),
            )
            if count > 0
        ]
        return ", ".join(parts)

    def money(self) -> str:
        totals = self.totals
        against = "" if self.cap is None else f" of ${self.cap:.2f}"
        parts = [f"${totals.usd:.2f}{against}"]
        if self.reserved:
            parts.append(f"${self.reserved:.2f} held for what runs")
        if totals.estimated_usd:
            parts.append(f"${totals.estimated_usd:.2f} by the price table")
        unknown = totals.unknown_calls - len(self.running)
        if unknown > 0:
            parts.append(f"{unknown} attempts of unknown cost")
        return "money: " + ", ".join(parts)

    def time(self) -> str | None:
        if self.per_hour is None:
            return None
        left = "" if self.seconds_left is None else f", {duration(self.seconds_left)} left"
        return f"time: {self.per_hour:.0f} sessions an hour{left}"


def status_of(state: State, now: float) -> Status:
    """The status at a time, in seconds since 1970."""
    totals = state.totals()
    alive = state.stopped is None and now - state.last_ts / 1000 <= SILENT_SECONDS
    unended = state.unended()
    run = state.run
    mine = [attempt for attempt in unended if alive and attempt.start.run == run]
    per_hour = _rate(state, now if alive else state.last_ts / 1000)
    halt = _unpassed(state)
    until = None if halt is None or halt.until is None else halt.until / 1000
    latest = state.runs[-1] if state.runs else None
    stopped = state.stopped
    return Status(
        phase=_phase(state, alive, bool(mine), halt is not None),
        run=run,
        jobs=state.jobs,
        recorded=totals.recorded,
        failed=totals.failed,
        left_out=totals.left_out,
        uncertain=totals.uncertain - len(mine),
        remaining=totals.remaining + len(mine),
        running=tuple(
            Running(
                session=attempt.start.session,
                attempt=attempt.number,
                seconds=max(0.0, now - attempt.start.ts / 1000),
            )
            for attempt in mine
        ),
        totals=totals,
        cap=None if latest is None else latest.caps.batch,
        reserved=sum((a.start.reserved or Decimal(0) for a in mine), Decimal(0)),
        per_hour=per_hour,
        seconds_left=_left(per_hour, totals.remaining + len(mine)) if alive else None,
        refusals=_refusals(state),
        halts=tuple(dict.fromkeys(found.rule for found in state.halts)),
        until=until,
        code=stopped.code if isinstance(stopped, RunEnd) else None,
        canary=_waiting_canary(state, totals),
    )


def _waiting_canary(state: State, totals: Totals) -> int | None:
    asked = state.canary
    if asked is None or state.accepted is not None:
        return None
    return asked if totals.recorded + totals.failed + totals.left_out >= asked else None


def _unpassed(state: State) -> RunHalt | None:
    """The latest halt, where no session was started after it and the batch was not over then."""
    stopped = state.stopped
    if not state.halts or (isinstance(stopped, RunEnd) and stopped.code == 0):
        return None
    halt = state.halts[-1]
    after = any(attempt.start.sequence > halt.sequence for attempt in state.attempts())
    return None if after else halt


def _phase(state: State, alive: bool, runs: bool, halted: bool) -> Phase:
    if not state.runs:
        return "planned"
    if isinstance(state.stopped, RunAbort):
        return "aborted"
    if halted and not runs and (alive or state.stopped is not None):
        return "halted"
    if isinstance(state.stopped, RunEnd):
        return "ended"
    return "running" if alive else "silent"


def _rate(state: State, until: float) -> float | None:
    """Sessions that ended in the latest run, an hour of it."""
    if not state.runs:
        return None
    run = state.run
    ended = sum(a.end is not None and a.end.run == run for a in state.attempts())
    hours = (until - state.runs[-1].ts / 1000) / 3600
    return ended / hours if ended and hours > 0 else None


def _left(per_hour: float | None, sessions: int) -> float | None:
    return None if per_hour is None else sessions / per_hour * 3600


def _refusals(state: State) -> tuple[Refusal, ...]:
    failed: list[Attempt] = [a for a in state.attempts() if a.end is not None and a.end.code]
    failed.sort(key=lambda attempt: attempt.end.ts if attempt.end is not None else 0)
    return tuple(
        Refusal(
            session=attempt.end.session,
            attempt=attempt.number,
            code=attempt.end.code,
            failure=attempt.end.failure,
        )
        for attempt in failed[-REFUSALS:]
        if attempt.end is not None
    )


def _word(failure: str | None) -> str:
    return "" if failure is None else f" ({failure})"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = math.ceil(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
