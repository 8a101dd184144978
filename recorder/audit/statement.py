"""The one line that answers what left. Derived, and said only where everything holds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from recorder.audit.attempts import attempts
from recorder.audit.logs import Logs, SessionLog


def statement(logs: Logs) -> str:
    """``N requests of M sessions reached H; K were refused; nothing else left.``

    Where a log is absent or does not verify, or no evidence says that the socket was the one way
    out, it says what cannot be said and why.
    """
    if not logs.sessions:
        return "No session ran, so nothing left."
    doubts = [*logs.faults, *logs.unproven]
    if not doubts:
        return f"{_counted(logs.sessions)}; nothing else left."
    whole = [session for session in logs.sessions if not session.faults]
    broken = len(logs.sessions) - len(whole)
    why = (
        f"{broken} of {_logs(len(logs.sessions))} {'does' if broken == 1 else 'do'} not verify"
        if broken
        else "every log verifies, and not every session is known to have had one way out alone"
    )
    more = f" and {len(doubts) - 1} more" if len(doubts) > 1 else ""
    shown = f" What verifies says: {_counted(whole)}." if whole else ""
    return f"What left cannot be said: {why} ({doubts[0]}{more}).{shown}"


def _counted(sessions: Sequence[SessionLog]) -> str:
    tried = list(attempts(sessions))
    left = [attempt for attempt in tried if attempt.request is not None]
    reached = [attempt for attempt in left if attempt.answered]
    hosts = " and ".join(sorted({attempt.host for attempt in reached})) or "a host"
    if any(session.rehearsal for session in sessions):
        hosts += " (in a rehearsal: a script in its place)" if reached else ""
    refused = sum(not attempt.allowed for attempt in tried)
    silent = len(left) - len(reached)
    parts = [f"{_number(len(reached), 'request')} of {_sessions(len(sessions))} reached {hosts}"]
    if silent:
        parts.append(f"{silent} more {_was(silent)} let out and got no answer")
    parts.append(f"{refused} {_was(refused)} refused")
    return "; ".join(parts)


def _number(count: int, noun: str) -> str:
    return f"{count or 'No'} {noun}{'s' if count > 1 else ''}"


def _sessions(count: int) -> str:
    return f"{count} session" if count == 1 else f"{count} sessions"


def _logs(count: int) -> str:
    return f"{count} log" if count == 1 else f"{count} logs"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
