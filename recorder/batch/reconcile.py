"""Sessions without an end that may have spent: what is known of each, and what a person decides.

A decision is about one attempt. It is in the ledger before anything follows from it, and says
nothing of another attempt of the same session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recorder.batch.assembling import ASSEMBLED, SESSIONS, assemble_batch, read_pinned
from recorder.batch.attempts import place_of
from recorder.batch.batch import held
from recorder.batch.batch_ledger import account_unended
from recorder.batch.pinned import Pinned
from recorder.batch.resume import due_of
from recorder.evidence.pricing import shipped_prices
from recorder.ledger.chain import LEDGER
from recorder.ledger.entries import Choice, Cost, SessionDecision, Tokens
from recorder.ledger.journal import Journal, open_journal, read_state
from recorder.ledger.state import Attempt, State
from recorder.refusal import ExitCode, Refusal

Collect = Callable[[Callable[[], None], str], None]
"""Keeps what dead drivers left on the engine, calls the first, and takes it away; the second tells
the batch's own from all else."""


class Uncertain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that waits. ``started`` is in milliseconds since 1970; ``requests`` reached the
    provider, None where nothing decides it; ``files`` are those in ``directory``."""

    session: str
    attempt: int
    started: int
    requests: int | None
    cost: Cost
    tokens: Tokens | None
    log_whole: bool
    directory: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What a person decided: for the sessions by name, or for all that wait. Why, in one line."""

    sessions: Mapping[str, Choice]
    every: Choice | None
    reason: str

    def of(self, session: str) -> Choice | None:
        return self.sessions.get(session, self.every)


def uncertain(directory: Path, collect: Collect) -> tuple[Uncertain, ...]:
    """The sessions of a batch that wait for a decision.

    An engine is asked only where the ledger does not know yet what an attempt's log says. Refusal
    20 where a driver runs then, 2 for what is no batch's directory, 19 for a corrupt ledger.
    """
    pinned = read_pinned(directory)
    state = _state(directory)
    if any(attempt.egress is None for attempt in state.unended()):
        with held(directory), open_journal(directory) as journal:
            _account(journal, directory, collect, pinned)
            state = journal.state
    return tuple(_told(directory, attempt) for attempt in _waiting(state, pinned))


def decide(directory: Path, decision: Decision, collect: Collect) -> tuple[SessionDecision, ...]:
    """Write a decision down, and assemble again what follows from it.

    Refusal 2 for a session that does not wait, and for a reason that is none; 20 where a driver
    holds the batch.
    """
    reason = " ".join(decision.reason.split())
    if not reason:
        raise Refusal(ExitCode.USAGE, "--reason is empty: say why, for whoever reads the ledger")
    pinned = read_pinned(directory)
    _state(directory)
    with held(directory), open_journal(directory) as journal:
        if any(attempt.egress is None for attempt in journal.state.unended()):
            _account(journal, directory, collect, pinned)
        waiting = {attempt.start.session: attempt for attempt in _waiting(journal.state, pinned)}
        strangers = [name for name in decision.sessions if name not in waiting]
        if strangers:
            raise Refusal(
                ExitCode.USAGE,
                *(
                    f"{name}: waits for no decision ({_why_not(journal.state, name)}); see "
                    f"`recorder batch reconcile {directory}`"
                    for name in strangers
                ),
            )
        decisions = tuple(
            SessionDecision(
                session=name,
                attempt=attempt.number,
                decision=choice,
                reason=reason,
                cost=attempt.cost,
            )
            for name, attempt in waiting.items()
            if (choice := decision.of(name)) is not None
        )
        journal.append(*decisions)
        assemble_batch(directory, journal.state).write(directory / ASSEMBLED)
    return decisions


def _account(journal: Journal, directory: Path, collect: Collect, pinned: Pinned) -> None:
    prices = pinned.prices or shipped_prices()
    collect(
        lambda: account_unended(journal, directory / SESSIONS, prices, final=True),
        journal.identity,
    )


def _state(directory: Path) -> State:
    state = read_state(directory)
    if state is None:
        raise Refusal(ExitCode.CORRUPT, f"{directory}: holds no {LEDGER}, so nothing says what ran")
    return state


def _waiting(state: State, pinned: Pinned) -> tuple[Attempt, ...]:
    rehearsal = pinned.rehearsal is not None
    return tuple(
        attempts[-1]
        for attempts in state.sessions.values()
        if due_of(attempts, rehearsal=rehearsal, retry_failed=False) == "uncertain"
    )


def _why_not(state: State, session: str) -> str:
    latest = state.latest(session)
    if latest is None:
        return "no attempt of it was started"
    if latest.standing == "unended":
        return "it runs again by itself"
    return {
        "recorded": "it recorded",
        "failed": "it failed: run the batch with --retry failed",
        "left-out": "it was left out",
        "again": "it was decided to run again",
    }[latest.standing]


def _told(directory: Path, attempt: Attempt) -> Uncertain:
    session = attempt.start.session
    place = place_of(directory / SESSIONS / session, attempt.number, attempt.number)
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    return Uncertain(
        session=session,
        attempt=attempt.number,
        started=attempt.start.ts,
        requests=attempt.requests,
        cost=attempt.cost,
        tokens=attempt.tokens,
        log_whole=attempt.egress is not None and attempt.egress.whole,
        directory=str(place),
        files=tuple(names),
    )
